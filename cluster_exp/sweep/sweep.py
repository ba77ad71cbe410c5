"""Carries out a sweep: what is not done yet, several runs at a time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster_exp.parallel.crew import Crew
from cluster_exp.results.run_directory import RunStatus
from cluster_exp.sweep.folder import TABLE_FILE, is_done, remove_run, status_of
from cluster_exp.sweep.grid import Grid
from cluster_exp.sweep.table import SweepTable
from cluster_exp.sweep.work import CellTask, read_result, run_cell

_CUT_SHORT = (RunStatus.RUNNING, RunStatus.INTERRUPTED)
_REST = 20  # times as long as a writing of the table took, until the next one


@dataclass(frozen=True, slots=True)
class Progress:
    """What happened since the last report, and how things stand."""

    jobs: int  # that ended since
    active: int  # runs at work
    done: int  # runs that ended


def resume(grid: Grid, directory: Path) -> SweepTable:
    """The table with the runs that lie in the directory; what runs that are not done left there is removed.

    Raises:
        InputError: a run's files are damaged, or something else lies between them.
        OSError: something cannot be removed.
    """
    table = SweepTable(grid)
    for index, name in enumerate(grid.names):
        if is_done(directory / name):
            table.results[index] = read_result(directory / name)
        else:
            remove_run(directory / name)
    return table


def sweep(table: SweepTable, directory: Path, workers: int, on_progress: Callable[[Progress], object]) -> bool:
    """Does the runs that are not done, the largest first, and keeps the table up to date, also as a file.

    A run that fails does not stop the others. Returns whether it came to its end: False after KeyboardInterrupt, when
    the runs at work are marked as interrupted. No process is left in any case.

    Raises:
        OSError: the table cannot be written.
    """
    grid = table.grid
    todo = [index for index in range(len(grid.cells)) if index not in table.results]
    tasks = [CellTask(grid.cells[index], directory, directory / grid.names[index]) for index in todo]
    file = _TableFile(table, directory / TABLE_FILE)
    file.write()

    def tell(jobs: int) -> None:
        on_progress(Progress(jobs, crew.active, len(table.results) + len(table.errors)))

    crew = Crew(run_cell, tasks, [task.cell.num_jobs for task in tasks], workers, tell)
    try:
        with crew:
            for position, outcome in crew:
                if outcome.result is None:
                    table.errors[todo[position]] = outcome.error
                else:
                    table.results[todo[position]] = outcome.result
                file.write_if_due()
                tell(0)
    except KeyboardInterrupt:
        _take_stock(table, directory)
        file.write()
        return False
    file.write()
    return True


def _take_stock(table: SweepTable, directory: Path) -> None:
    """After the processes are gone: what they finished without having said so, and what they had to leave."""
    for index, name in enumerate(table.grid.names):
        if index in table.results:
            continue
        status = status_of(directory / name)
        if is_done(directory / name):
            table.results[index] = read_result(directory / name)
        if status in (RunStatus.FINISHED, RunStatus.INTERRUPTED):
            table.errors.pop(index, None)  # its process was told to stop before we were
        if status in _CUT_SHORT and index not in table.errors:
            table.interrupted.add(index)


class _TableFile:
    """Writes the table now and then, so that this takes little time also when there are many runs."""

    def __init__(self, table: SweepTable, path: Path) -> None:
        self._table = table
        self._path = path
        self._due_s = 0.0

    def write(self) -> None:
        """Writes it. Raises OSError."""
        began_s = time.monotonic()
        self._table.write(self._path)
        now_s = time.monotonic()
        self._due_s = now_s + _REST * (now_s - began_s)

    def write_if_due(self) -> None:
        """Writes it unless that was done a moment ago. Raises OSError."""
        if time.monotonic() >= self._due_s:
            self.write()
