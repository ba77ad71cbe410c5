"""A sweep's table: a row a run, in the order of the grid, also for those that are still to come."""

import csv
import io
import math
from dataclasses import dataclass, field
from pathlib import Path

from cluster_exp.results.tables import Cell as Shown
from cluster_exp.results.tables import table
from cluster_exp.sweep.folder import write_whole
from cluster_exp.sweep.grid import AXES, Grid
from cluster_exp.sweep.work import CellResult

FINISHED, FAILED, INTERRUPTED, WAITING = "finished", "failed", "interrupted", "waiting"
# Column of the CSV file and of the printed table.
MEASURES = {
    "jobs": "jobs",
    "average_jct_s": "avg JCT s",
    "median_jct_s": "median JCT s",
    "p99_jct_s": "p99 JCT s",
    "makespan_s": "makespan s",
    "mean_queueing_s": "queueing s",
    "gpu_utilisation": "GPU util",
    "mean_efficiency": "efficiency",
    "wall_s": "wall s",
    "peak_memory_mib": "peak MiB",
}
COLUMNS = ("run", *AXES, "status", *MEASURES, "error")


@dataclass(slots=True)
class SweepTable:
    """What is known of the runs of a grid."""

    grid: Grid
    results: dict[int, CellResult] = field(default_factory=dict)  # by the run's place in the grid
    errors: dict[int, str] = field(default_factory=dict)
    interrupted: set[int] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether every run finished."""
        return len(self.results) == len(self.grid.cells)

    def status(self, index: int) -> str:
        """How far a run came."""
        if index in self.results:
            return FINISHED
        if index in self.errors:
            return FAILED
        return INTERRUPTED if index in self.interrupted else WAITING

    def write(self, path: Path) -> None:
        """Writes the table as CSV, whole or not at all; what is not known stays empty. Raises OSError."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for index, (cell, name) in enumerate(zip(self.grid.cells, self.grid.names, strict=True)):
            measures = ["" if _unknown(value) else value for value in self._measures(index)]
            error = self.errors.get(index, "")
            writer.writerow([name, *cell.labels().values(), self.status(index), *measures, error])
        write_whole(path, text.getvalue())

    def shown(self) -> str:
        """The table for people: the axes that vary and the measures."""
        axes = [axis for axis in AXES if axis == "policy" or axis in self.grid.varying]
        status = [] if self.complete else ["status"]
        rows: list[list[Shown]] = []
        for index, cell in enumerate(self.grid.cells):
            labels = cell.labels()
            place: list[Shown] = [labels[axis] for axis in axes]
            state: list[Shown] = [self.status(index)] if status else []
            rows.append([*place, *state, *self._measures(index)])
        return table([*axes, *status, *MEASURES.values()], rows)

    def _measures(self, index: int) -> tuple[int | float, ...]:
        """Values under `MEASURES`; NaN where there is none."""
        result = self.results.get(index)
        if result is None:
            return (math.nan,) * len(MEASURES)
        summary, metrics = result.summary, result.summary.metrics
        return (
            metrics.jobs,
            metrics.average_jct_s,
            metrics.median_jct_s,
            metrics.p99_jct_s,
            metrics.makespan_s,
            metrics.mean_queueing_s,
            summary.gpu_utilisation,
            summary.mean_efficiency,
            result.wall_s,
            result.peak_memory_mib,
        )


def _unknown(value: float) -> bool:
    return math.isnan(value)
