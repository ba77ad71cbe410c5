"""One row for a run, from what lies in its directory."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cluster_exp.domain.errors import InputError
from cluster_exp.results.job_table import read_job_table
from cluster_exp.results.metrics import JobMetrics, job_metrics
from cluster_exp.results.run_directory import JOBS_FILE, read_run
from cluster_exp.results.tables import Cell, table

HEADER = (
    "policy",
    "mode",
    "jobs",
    "avg JCT s",
    "median JCT s",
    "p99 JCT s",
    "makespan s",
    "queueing s",
    "GPU util",
    "efficiency",
)


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in one row."""

    run: str  # its directory
    policy: str
    mode: str
    status: str  # of the run; empty when run.json does not say
    metrics: JobMetrics
    gpu_utilisation: float  # share of the cluster's GPU time that was computed in; NaN when not known
    mean_efficiency: float  # mean interleaving efficiency; NaN when not known

    def row(self) -> tuple[Cell, ...]:
        """Cells under `HEADER`."""
        m = self.metrics
        return (
            self.policy,
            self.mode,
            m.jobs,
            m.average_jct_s,
            m.median_jct_s,
            m.p99_jct_s,
            m.makespan_s,
            m.mean_queueing_s,
            self.gpu_utilisation,
            self.mean_efficiency,
        )

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values; what is not known is null."""
        flat = asdict(self)
        flat |= flat.pop("metrics")
        unknown = [key for key, value in flat.items() if isinstance(value, float) and not math.isfinite(value)]
        return flat | dict.fromkeys(unknown)


def find_runs(directory: Path) -> list[Path]:
    """The directory itself when it holds a run, else those of its subdirectories that do, by name.

    Raises:
        InputError: there is none.
    """
    if (directory / JOBS_FILE).exists():
        return [directory]
    runs = sorted(path.parent for path in directory.glob(f"*/{JOBS_FILE}")) if directory.is_dir() else []
    if not runs:
        raise InputError(f"no {JOBS_FILE} here or one level below; give a run's directory", where=str(directory))
    return runs


def summarise(directory: Path) -> Summary:
    """The row of one run. Raises InputError when its files are missing or damaged."""
    metrics = job_metrics(read_job_table(directory / JOBS_FILE))
    run = read_run(directory)
    capacity_s = _number(run, "num_gpu") * metrics.makespan_s
    busy_s = _number(run, "gpu_busy_s")
    return Summary(
        run=str(directory),
        policy=str(run.get("policy", directory.name)),
        mode=str(run.get("mode", "")),
        status=str(run.get("status", "")),
        metrics=metrics,
        gpu_utilisation=busy_s / capacity_s if capacity_s > 0 else math.nan,
        mean_efficiency=_number(run, "mean_efficiency"),
    )


def _number(run: Mapping[str, Any], name: str) -> float:
    """A number of run.json; NaN when it is not there or none."""
    value = run.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return math.nan
    return value


def summary_table(summaries: Sequence[Summary]) -> str:
    """A table of runs."""
    return table(HEADER, [summary.row() for summary in summaries])
