"""Published, ours and their ratio: as rows, as a table, as CSV."""

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster_exp.parallel.crew import Outcome
from cluster_exp.reproduce.published import Published
from cluster_exp.reproduce.runs import Run
from cluster_exp.results.metrics import JobMetrics
from cluster_exp.results.tables import table

# What the published table calls a metric -> our value in seconds.
METRICS: dict[str, Callable[[JobMetrics], float]] = {
    "avg_jct": lambda metrics: metrics.average_jct_s,
    "makespan": lambda metrics: metrics.makespan_s,
    "p99_jct": lambda metrics: metrics.p99_jct_s,
    "avg_queue": lambda metrics: metrics.mean_queueing_s,
}
WORDS = ("trace", "policy", "published as", "metric")
NUMBERS = ("published s", "ours s", "ratio")


@dataclass(frozen=True, slots=True)
class Compared:
    """One number beside ours, in seconds; NaN where there is none."""

    trace: str
    policy: str
    published_as: str
    metric: str
    published: float
    ours: float

    @property
    def ratio(self) -> float:
        """Ours by the published; NaN when one of them is missing, or the published is 0."""
        return self.ours / self.published if self.published else math.nan


def compare(runs: Sequence[Run], outcomes: Sequence[Outcome[JobMetrics]], published: Published) -> list[Compared]:
    """A row for every run and metric, in the order of the runs."""
    rows = []
    for run, outcome in zip(runs, outcomes, strict=True):
        for metric in run.figure.metrics:
            theirs = published.value(run.figure.source, run.trace.published, run.policy.published, metric)
            ours = METRICS[metric](outcome.result) if outcome.result is not None else math.nan
            name = run.trace.name
            rows.append(Compared(name, run.policy.label, run.policy.published, metric, theirs, ours))
    return rows


def comparison_table(rows: Sequence[Compared]) -> str:
    """The rows as text; ratios to six digits."""
    words = [(row.trace, row.policy, row.published_as, row.metric) for row in rows]
    numbers = [(_exact(row.published), _exact(row.ours), _ratio(row)) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(NUMBERS, *numbers, strict=True)]
    aligned = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in (NUMBERS, *numbers)]
    return table((*WORDS, *aligned[0]), [(*text, *row) for text, row in zip(words, aligned[1:], strict=True)])


def summary_line(rows: Sequence[Compared]) -> str:
    """How many numbers there are, and the smallest and the largest ratio."""
    known = [row for row in rows if not math.isnan(row.ratio)]
    if not known:
        return "no published number to compare with"
    least, most = min(known, key=lambda row: row.ratio), max(known, key=lambda row: row.ratio)
    return (
        f"{len(known)} numbers compared; ratio from {_ratio(least)} ({least.policy}, {least.trace}, {least.metric}) "
        f"to {_ratio(most)} ({most.policy}, {most.trace}, {most.metric})"
    )


def write_csv(path: Path, figure: str, rows: Sequence[Compared]) -> None:
    """Writes the rows into a new file, seconds; empty where there is no number. Raises OSError."""
    with path.open("x", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("figure", "trace", "policy", "published_as", "metric", "published_s", "ours_s", "ratio"))
        for row in rows:
            numbers = ("" if math.isnan(value) else value for value in (row.published, row.ours, row.ratio))
            writer.writerow((figure, row.trace, row.policy, row.published_as, row.metric, *numbers))


def _exact(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds:.2f}"


def _ratio(row: Compared) -> str:
    return "-" if math.isnan(row.ratio) else f"{row.ratio:.6f}"
