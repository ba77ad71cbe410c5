"""profile: measures a workload's stage times and peak memory in a short run alone."""

import argparse
from pathlib import Path

HELP = "measures a workload's stage times and memory in a short run alone"
EXAMPLE = (
    "python run.py profile --workload resnet18 --batch-size 16 --gpus 1 --profiles out/profiles.csv"
    " -- --data data/images --size tiny"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    add = parser.add_argument
    add("--workload", required=True, metavar="NAME", help="program: a module of workloads/, or a script's path (.py)")
    add("--batch-size", type=int, required=True, metavar="N", help="samples per GPU; told to the program")
    add("--gpus", type=int, default=1, metavar="N", help="ranks, a GPU each (default 1)")
    add(
        "--profiles",
        type=Path,
        required=True,
        metavar="FILE",
        help="CSV file that gets the profile; others in it stay",
    )
    add("--model", metavar="NAME", help="model name of the profile; default: the workload's")
    add("--gpu-type", default="", metavar="TYPE", help="type of GPU, where the cluster's description states types")
    add("--iterations", type=int, default=50, metavar="N", help="length of the run (default 50, at least 3)")
    add("--comm", default="torch", metavar="NAME", help="exchange between several ranks: torch (default), horovod")
    add("--timeout", type=float, default=600.0, metavar="SECONDS", help="for the whole run (default 600)")
    add("words", nargs="*", metavar="-- OPTION", help="further options of the program, behind --")


def run(arguments: argparse.Namespace) -> int:
    """Measures, stores and prints the profile; returns 1 when the program fails."""
    import sys

    from cluster_exp.cli.options import at_least, choose
    from cluster_exp.domain.profile import ProfileKey
    from cluster_exp.inputs.profiles import ProfileTable, read_profiles, write_profiles
    from cluster_exp.runtime.profiler import ProfilingError, ProfilingRun, measure
    from cluster_exp.runtime.trainer.comm import BackendMissingError

    command = _command(arguments)
    num_gpu = int(at_least("--gpus", arguments.gpus, 1))
    key = ProfileKey(
        arguments.model or Path(arguments.workload).stem,
        int(at_least("--batch-size", arguments.batch_size, 1)),
        num_gpu,
        arguments.gpu_type,
    )
    request = ProfilingRun(
        command,
        num_gpu,
        int(at_least("--iterations", arguments.iterations, 3)),
        choose("--comm", arguments.comm, ("torch", "horovod")),
        at_least("--timeout", arguments.timeout, 1.0),
    )
    path: Path = arguments.profiles
    profiles = read_profiles(path) if path.exists() else ProfileTable()
    path.parent.mkdir(parents=True, exist_ok=True)
    log = path.with_name(f"{path.name}.log")
    try:
        found = measure(request, log)
    except (ProfilingError, BackendMissingError) as error:
        sys.stderr.write(f"error: {error} (all output: {log})\n")
        return 1
    profiles.add(key, found.profile, found.gpu_memory_mib)
    write_profiles(path, profiles)
    memory = "no GPU" if found.gpu_memory_mib is None else f"{found.gpu_memory_mib:.0f} MiB of GPU memory"
    pairs = zip(("storage", "cpu", "gpu", "network"), found.profile.stages, strict=True)
    stages = ", ".join(f"{name} {seconds * 1000:.2f}" for name, seconds in pairs)
    print(f"{key.model}, {key.batch_size} samples per GPU, {num_gpu} ranks, mean of {found.iterations} iterations:")
    print(f"{found.profile.iteration_s * 1000:.2f} ms an iteration ({stages}), {memory}")
    print(f"stored in {path}; 'run.py run --profiles {path}' decides by it")
    return 0


def _command(arguments: argparse.Namespace) -> tuple[str, ...]:
    """What starts a rank. Raises InputError for a program that is not there."""
    import importlib.util
    import sys

    from cluster_exp.domain.errors import InputError

    name = arguments.workload
    options = ("--batch-size", str(arguments.batch_size), *arguments.words)
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise InputError(f"{name!r} is no file", where="--workload")
        return (sys.executable, name, *options)
    spec = importlib.util.find_spec("workloads")
    folder = Path(next(iter(spec.submodule_search_locations or ()), "")) if spec else None
    if folder is None or not name.isidentifier() or not (folder / f"{name}.py").is_file():
        known = sorted(path.stem for path in folder.glob("*.py")) if folder else []
        programs = [stem for stem in known if "PROGRAM" in (folder / f"{stem}.py").read_text()] if folder else []
        raise InputError(
            f"no workload {name!r}; allowed: {', '.join(programs) or 'none is here'}, or the path of a script (.py)",
            where="--workload",
        )
    return (sys.executable, "-m", f"workloads.{name}", *options)
