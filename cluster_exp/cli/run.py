"""run: a trace under one or several policies, simulated or live."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster_exp.cli.options import RunSpec
    from cluster_exp.domain.policy import Policy
    from cluster_exp.runtime.store import StateFile

HELP = "runs a trace under one or several policies, simulated or live"
EXAMPLE = (
    "python run.py --policy srsf,muri-s --trace trace_data/demo.csv --cluster cluster_spec/n2g4.csv"
    " --mode sim --out out/first"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    add = parser.add_argument
    add("--policy", metavar="NAME[,NAME...]", help="what decides; see --list-policies")
    add("--trace", metavar="FILE", help="jobs (CSV, docs/inputs.md)")
    add("--cluster", metavar="FILE", help="nodes (CSV or YAML, docs/inputs.md)")
    add("--mode", default="sim", metavar="MODE", help="sim (default), local: workers on this machine, testbed: yours")
    add("--out", type=directory, metavar="DIR", help="new directory for the results; several policies: DIR/POLICY")
    add("--interval", type=float, default=0.0, metavar="SECONDS", help="plan in rounds; 0 (default) = at every event")
    add("--seed", type=int, default=0, metavar="N", help="kept with the run, for whatever draws random numbers")
    add("--time-scale", type=float, metavar="X", help="live: simulated seconds per second (local 500, testbed 1)")
    add("--cost-model", default="physical", metavar="NAME", help="rules of the simulation (docs/cost-models.md)")
    add("--speed-model", metavar="NAME", help="lockstep or rates; default: as the policy plans")
    add(
        "--contention",
        default="none",
        metavar="NAME",
        help="slow-down beyond turns: none, muri22, learned, drawn:SEED",
    )
    add(
        "--true-contention", metavar="NAME", help="simulated: what the cluster really does; default: what is believed"
    )
    add("--placement", metavar="NAME", help="consolidated, yarn or count; default: the cost model's")
    add("--start-cost", type=float, metavar="SECONDS", help="simulated: of every start; default: by model")
    add("--journal", default="full", metavar="DETAIL", help="full (default), summary or none")
    add("--stage-logs", action="store_true", help="live: trainers write when each stage began and ended, below logs/")
    add("--profiles", metavar="FILE", help="stage times of models (CSV, docs/profiles.md) before the shipped ones")
    add("--admit-unprofiled", action="store_true", help="jobs without stage times run alone until measured")
    measuring = parser.add_mutually_exclusive_group()
    measuring.add_argument("--measured-profiles", action="store_true", help="live: decide by measured stage times")
    measuring.add_argument(
        "--stated-profiles", action="store_true", help="live: decide by the given ones (default of emulated jobs)"
    )
    add("--workloads", type=Path, metavar="FILE", help="live: which program trains which model (YAML); else emulated")
    add(
        "--comm",
        metavar="NAME",
        help="live, with --workloads: how ranks exchange gradients: horovod (default) or torch",
    )
    add(
        "--checkpoint-dir",
        type=directory,
        metavar="DIR",
        help="shared by all nodes; default: checkpoints below --out",
    )
    add("--checkpoint-every", type=int, default=500, metavar="N", help="iterations; 0 = only when told to leave")
    add("--stage-limit", type=float, default=60.0, metavar="SECONDS", help="live: of a turn; 0 = none")
    add("--hang-limit", type=float, default=600.0, metavar="SECONDS", help="live: without an iteration; 0 = none")
    add("--retries", type=int, default=3, metavar="N", help="live: times that a job that fails is started again")
    add(
        "--retry-wait", type=float, default=10.0, metavar="SECONDS", help="live: before the first; then twice as long"
    )
    add("--bind", metavar="HOST:PORT", help="testbed: where the master listens; default: loopback, any port")
    add("--tls", type=Path, metavar="DIR", help="testbed: ca.pem, cert.pem and key.pem of this host")
    add("--token-file", type=Path, metavar="FILE", help="testbed: tokens of a master (docs/security.md)")
    add(
        "--assume-memory",
        type=float,
        metavar="MIB",
        help="GPU memory of jobs that state none; else they do not share",
    )
    add("--drop-unfit", action="store_true", help="leave out jobs that the cluster can never hold")
    add("--profile", action="store_true", help="simulated: say at the end where the time went")
    add(
        "--faults",
        metavar="SPEC",
        help="simulated: what breaks, e.g. seed=1,workers=3,crashes=9,lost=0.01 (docs/reliability.md)",
    )
    add("--dry-run", action="store_true", help="print the first plan and stop")
    add("--list-policies", action="store_true", help="list the policies and stop")


def directory(text: str) -> Path:
    """The path that an option names; an empty one would be the current directory, which nobody means by it."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} given; allowed: a directory's path")
    return Path(text)


def run(arguments: argparse.Namespace) -> int:
    """Runs the policies one after another and prints a table."""
    if arguments.list_policies:
        from cluster_exp.cli import policies

        return policies.run(arguments)
    from cluster_exp.cli.options import run_spec
    from cluster_exp.results.summary import summarise, summary_table

    spec = run_spec(arguments)
    if arguments.dry_run:
        from cluster_exp.cli.dry_run import print_first_plan

        for policy in spec.policies:
            print_first_plan(spec, policy)
        return 0
    for policy in spec.policies:
        code = run_one(spec, policy, spec.directory(policy))
        if code:
            return code
    print(summary_table([summarise(spec.directory(policy)) for policy in spec.policies]))
    if spec.profile:
        from cluster_exp.results.time_profile import profile_table

        print(profile_table([spec.directory(policy) for policy in spec.policies]))
    return 0


def run_one(spec: "RunSpec", policy: "Policy", place: Path, state: "StateFile | None" = None) -> int:
    """Runs one policy into a directory, or, with the `state` of a live run that was stopped, what is left of it."""
    import sys

    from cluster_exp.cli import execute
    from cluster_exp.domain.errors import InvariantError
    from cluster_exp.runtime.local import LiveError
    from cluster_exp.sim.faults.run import fault_summary

    try:
        if spec.faults is not None:
            print(fault_summary(policy.name, execute.broken(spec, policy, place, spec.faults)))
            return 0
        if spec.mode == "sim":
            execute.simulated(spec, policy, place)
            return 0
        result = execute.live(spec, policy, place, state)
    except KeyboardInterrupt:
        sys.stderr.write(f"interrupted; the partial result lies in {place}\n")
        return 130
    except InvariantError as error:
        sys.stderr.write(f"error: {error}; the partial result lies in {place}\n")
        return 1
    except (LiveError, OSError) as error:
        if not place.is_dir():
            raise
        sys.stderr.write(f"error: {error}; {_what_is_left(place)}\n")
        return 1
    if result.complete:
        return 0
    sys.stderr.write(f"stopped ({result.reason}); {_what_is_left(place)}\n")
    return 130


def _what_is_left(place: Path) -> str:
    """Where a live run that did not end lies, and whether it can go on."""
    from cluster_exp.results.run_directory import STATE_FILE

    where = f"the partial result lies in {place}"
    return f"{where}, and `resume` goes on with it" if (place / STATE_FILE).exists() else where
