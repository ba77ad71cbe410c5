"""reproduce: the simulations of a published figure, beside what was published."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster_exp.parallel.crew import Outcome
    from cluster_exp.reproduce.comparison import Compared
    from cluster_exp.reproduce.figures import Figure
    from cluster_exp.reproduce.runs import Run
    from cluster_exp.results.metrics import JobMetrics

HELP = "simulates what a published figure shows and prints published, ours and the ratio"
EXAMPLE = "python run.py reproduce muri-fig9 --data ../data --traces trace3 --out out/fig9"
# Those of reproduce/figures.py, named here so that --help needs no numpy; a test compares them.
FIGURE_NAMES = ("muri-fig9", "muri-fig10", "muri-fig11", "muri-fig12", "muri-fig13", "helios-vc", "muri-testbed")
DATA_VARIABLE = "CLUSTER_EXP_DATA"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    add = parser.add_argument
    add("figure", metavar="FIGURE", help=", ".join(FIGURE_NAMES))
    add("--out", type=Path, metavar="DIR", help="where FIGURE.csv and FIGURE.png go; they must not exist")
    add("--traces", metavar="NAME[,NAME...]", help="only these traces")
    add("--policies", metavar="NAME[,NAME...]", help="only these policies, as the table names them")
    add("--data", type=Path, metavar="DIR", help=f"published results and traces (default: ${DATA_VARIABLE})")
    add("--jobs", type=int, metavar="N", help="simulations at once (default: one a core)")


def run(arguments: argparse.Namespace) -> int:
    """Prints the comparison; returns 1 when a simulation failed."""
    import os
    import sys

    from cluster_exp.cli.options import at_least, choose
    from cluster_exp.reproduce.comparison import compare, comparison_table, summary_line
    from cluster_exp.reproduce.figures import FIGURES
    from cluster_exp.reproduce.published import PUBLISHED_FILE, read_published

    figure = FIGURES[choose("FIGURE", arguments.figure, FIGURES)]
    workers = len(os.sched_getaffinity(0)) if arguments.jobs is None else int(at_least("--jobs", arguments.jobs, 1))
    folder = _data_folder(arguments.data)
    published = read_published(folder / PUBLISHED_FILE)
    runs = _runs(figure, folder, arguments.traces, arguments.policies)
    _check_out(arguments.out, figure)
    outcomes = _simulate(runs, workers)
    rows = compare(runs, outcomes, published)
    print(f"{figure.title}; cost model {figure.cost_model}; published: {figure.source}")
    print(comparison_table(rows))
    print(summary_line(rows))
    if arguments.out is not None:
        _write(arguments.out, figure, rows)
    failed = [(run, outcome) for run, outcome in zip(runs, outcomes, strict=True) if outcome.error]
    for run, outcome in failed:
        sys.stderr.write(f"error: {run.policy.label} on {run.trace.name}: {outcome.error}\n")
    return 1 if failed else 0


def _data_folder(given: Path | None) -> Path:
    import os

    from cluster_exp.domain.errors import InputError

    folder = given or (Path(os.environ[DATA_VARIABLE]) if os.environ.get(DATA_VARIABLE) else None)
    if folder is None:
        message = f"is missing; name the folder of the published results and traces, or set {DATA_VARIABLE}"
        raise InputError(message, where="--data")
    return folder


def _runs(figure: "Figure", folder: Path, traces: str | None, policies: str | None) -> "list[Run]":
    """The figure's runs, without those whose trace is not there; says which traces are skipped."""
    from cluster_exp.domain.errors import InputError
    from cluster_exp.reproduce.runs import Run, trace_path

    names = _chosen("--traces", traces, [trace.name for trace in figure.traces])
    specs = _chosen("--policies", policies, [policy.spec for policy in figure.policies])
    wanted = [use for use in figure.uses() if use[0].name in names and use[1].spec in specs]
    absent = {trace.name: trace_path(folder, trace) for trace, _ in wanted if not trace_path(folder, trace).exists()}
    for name, path in absent.items():
        print(f"skipped: {name} ({path} is not there)")
    runs = [Run(figure, trace, policy, folder) for trace, policy in wanted if trace.name not in absent]
    if not runs:
        raise InputError(f"{str(folder)!r} holds none of the traces of {figure.name}", where="--data")
    return runs


def _chosen(option: str, given: str | None, allowed: Sequence[str]) -> set[str]:
    from cluster_exp.cli.options import choose

    return set(allowed) if given is None else {choose(option, name.strip(), allowed) for name in given.split(",")}


def _check_out(out: Path | None, figure: "Figure") -> None:
    """Raises InputError where a file of results is in the way."""
    from cluster_exp.domain.errors import InputError

    if out is None:
        return
    for path in (out / f"{figure.name}.csv", out / f"{figure.name}.png"):
        if path.exists():
            raise InputError(f"{str(path)!r} exists already; name another directory", where="--out")
    out.mkdir(parents=True, exist_ok=True)


def _simulate(runs: "Sequence[Run]", workers: int) -> "list[Outcome[JobMetrics]]":
    from cluster_exp.cli.progress import job_bar
    from cluster_exp.reproduce.runs import jobs_of, run_all

    sizes = [len(jobs_of(run.folder, run.trace)) for run in runs]
    with job_bar(f"{len(runs)} runs", sum(sizes)) as bar:
        return run_all(runs, sizes, workers, bar.update)


def _write(out: Path, figure: "Figure", rows: "Sequence[Compared]") -> None:
    from cluster_exp.reproduce.comparison import write_csv
    from cluster_exp.reproduce.plot import can_plot, write_plot

    write_csv(out / f"{figure.name}.csv", figure.name, rows)
    print(f"written: {out / f'{figure.name}.csv'}")
    if can_plot():
        write_plot(out / f"{figure.name}.png", figure.title, rows)
        print(f"written: {out / f'{figure.name}.png'}")
    else:
        print("no picture: matplotlib is not installed; pip install 'cluster-exp[plots]'")
