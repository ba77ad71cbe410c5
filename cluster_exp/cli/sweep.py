"""sweep: a grid of simulations over the cores, and one table of what came of them."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cluster_exp.cli.run import directory

if TYPE_CHECKING:
    from cluster_exp.sweep.grid import Grid
    from cluster_exp.sweep.table import SweepTable

HELP = "simulates every combination of policies, traces, clusters, seeds and rules, several at a time"
EXAMPLE = "python run.py sweep trace_data/sweep.yaml --out out/sweep"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    add = parser.add_argument
    add("spec", type=Path, metavar="SPEC", help="what to combine (YAML, docs/sweeps.md)")
    add("--out", type=directory, metavar="DIR", help="where the runs and sweep.csv go; new, or see --checkpoint")
    add(
        "--checkpoint",
        action="store_true",
        help="go on with the sweep in DIR, if there is one: only what is not done",
    )
    add("--workers", type=int, metavar="N", help="runs at once (default: one a CPU)")
    add("--dry-run", action="store_true", help="print the runs and stop")


def run(arguments: argparse.Namespace) -> int:
    """Prints the table; returns 1 when a run failed, 130 when the sweep was stopped."""
    import logging
    import os

    from cluster_exp.cli.options import at_least
    from cluster_exp.cli.stopping import terminable
    from cluster_exp.domain.errors import InputError
    from cluster_exp.sweep.folder import opened
    from cluster_exp.sweep.grid import grid_of
    from cluster_exp.sweep.reader import read_spec
    from cluster_exp.sweep.sweep import resume

    workers = len(os.sched_getaffinity(0)) if arguments.workers is None else arguments.workers
    workers = int(at_least("--workers", workers, 1))
    if arguments.out is None and not arguments.dry_run:
        raise InputError("is missing; name a new directory for the results", where="--out")
    spec = read_spec(arguments.spec)
    for warning in spec.warnings:
        logging.getLogger(__name__).warning("%s", warning)
    grid = grid_of(spec)
    if arguments.dry_run:
        _print_runs(grid)
        return 0
    with terminable(), opened(arguments.out, spec, checkpoint=arguments.checkpoint):
        table = resume(grid, arguments.out)
        ended = _carry_out(table, arguments.out, workers)
        print(table.shown())
    return _conclude(table, arguments, ended=ended)


def _print_runs(grid: "Grid") -> None:
    from cluster_exp.results.tables import table

    header = (*grid.cells[0].labels(), "jobs")
    print(table(header, [(*cell.labels().values(), str(cell.num_jobs)) for cell in grid.cells]))
    print(f"{len(grid.cells)} runs, {sum(cell.num_jobs for cell in grid.cells):,} jobs")


def _carry_out(table: "SweepTable", out: Path, workers: int) -> bool:
    from cluster_exp.cli.progress import job_bar
    from cluster_exp.sweep.sweep import Progress, sweep

    sizes = [cell.num_jobs for cell in table.grid.cells]
    with job_bar(f"{len(sizes)} runs", sum(sizes), sum(sizes[index] for index in table.results)) as bar:

        def show(progress: Progress) -> None:
            bar.set_postfix_str(f"{progress.active} active, {progress.done} done", refresh=False)
            bar.update(progress.jobs)

        return sweep(table, out, workers, show)


def _conclude(table: "SweepTable", arguments: argparse.Namespace, *, ended: bool) -> int:
    """Says what is missing and how to go on; returns the exit code."""
    import shlex
    import sys

    count = len(table.grid.cells)
    for index, error in sorted(table.errors.items()):
        sys.stderr.write(f"error: {table.grid.names[index]}: {error}\n")
    if table.complete:
        return 0
    print(f"Partial result: {len(table.results)} of {count} runs finished")
    again = shlex.join(["sweep", str(arguments.spec), "--out", str(arguments.out), "--checkpoint"])
    sys.stderr.write(f"{'' if ended else 'interrupted; '}to go on: python run.py {again}\n")
    return 1 if ended else 130
