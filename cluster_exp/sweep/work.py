"""One run of a sweep, in a process of its own."""

import math
import time
from dataclasses import dataclass
from pathlib import Path

from cluster_exp.parallel.crew import Tell
from cluster_exp.results.run_directory import RunDirectory, read_run
from cluster_exp.results.summary import Summary, summarise
from cluster_exp.sim.simulate import make_cost, simulate
from cluster_exp.sweep.folder import stay_in
from cluster_exp.sweep.grid import Cell


@dataclass(frozen=True, slots=True)
class CellTask:
    """A run to do."""

    cell: Cell
    root: Path  # of the sweep
    directory: Path  # of the run


@dataclass(frozen=True, slots=True)
class CellResult:
    """What came of a run that finished."""

    summary: Summary
    wall_s: float  # of its process, from reading the inputs to the last event; NaN when not known
    peak_memory_mib: float  # of its process; NaN when not known


def run_cell(task: CellTask, tell: Tell) -> CellResult:
    """Simulates a run into its directory, which holds none.

    Raises:
        InputError: its inputs are unusable, or changed since they were checked.
        InvariantError: the policy's plans contradict the rules.
        OSError: the disk does not take it.
    """
    started_s = time.monotonic()
    cell = task.cell
    policy, cluster, start_cost = cell.make_policy(), cell.cluster.read(), cell.start_cost()
    jobs = cell.trace.jobs(cluster, cell.seed, drop_unfit=cell.drop_unfit)
    speed = make_cost(policy, cell.rules, start_cost).speed
    with (
        stay_in(task.root),
        RunDirectory(task.directory, cell.described(), cluster.num_gpu, speed, cell.detail) as out,
    ):
        result = simulate(policy, jobs, cluster, cell.rules, start_cost, out, lambda _, ended, __: tell(ended))
        out.note(plans=result.plans, wall_s=time.monotonic() - started_s)
    tell(result.jobs_ended)
    return read_result(task.directory)


def read_result(directory: Path) -> CellResult:
    """What a finished run came to, from its files. Raises InputError when they are missing or damaged."""
    run = read_run(directory)
    wall_s, peak_mib = (float(run.get(name) or math.nan) for name in ("wall_s", "peak_memory_mib"))
    return CellResult(summarise(directory), wall_s, peak_mib)
