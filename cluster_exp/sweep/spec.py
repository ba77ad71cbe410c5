"""What a sweep combines."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster_exp.results.journal import Detail
from cluster_exp.sweep.sources import ClusterSource, TraceSource

DEFAULT = "default"  # of a policy, a cost model or a job's model


@dataclass(frozen=True, slots=True)
class SweepSpec:
    """A checked sweep: the first ten tuples are the axes of the grid, and None in them is the default."""

    policies: tuple[str, ...]
    traces: tuple[TraceSource, ...]
    clusters: tuple[ClusterSource, ...]
    seeds: tuple[int, ...]
    intervals_s: tuple[float, ...]
    cost_models: tuple[str, ...]
    speed_models: tuple[str | None, ...]
    contentions: tuple[str, ...]
    placements: tuple[str | None, ...]
    start_costs_s: tuple[float | None, ...]
    detail: Detail  # of the journals
    drop_unfit: bool  # jobs that a cluster can never hold are left out
    folder: Path  # to which the paths in its file are relative
    num_jobs: Mapping[
        tuple[str, str], int
    ]  # by names of trace and cluster; of a generated trace before any is left out
    files: Mapping[str, Path]  # every file that it reads, by its path as written
    warnings: tuple[str, ...]  # one line each

    @property
    def num_runs(self) -> int:
        """Combinations of the axes."""
        rules = (self.intervals_s, self.cost_models, self.speed_models, self.contentions, self.placements)
        axes = (self.policies, self.traces, self.clusters, self.seeds, *rules, self.start_costs_s)
        return math.prod(len(axis) for axis in axes)

    def words(self) -> dict[str, str]:
        """What is combined, by the file's keys, in words that do not depend on where the file lies."""
        return {
            "policies": _listed(self.policies),
            "traces": _listed(trace.words() for trace in self.traces),
            "clusters": _listed(cluster.words() for cluster in self.clusters),
            "seeds": _listed(self.seeds),
            "interval": _listed(self.intervals_s),
            "cost_model": _listed(self.cost_models),
            "speed_model": _listed(self.speed_models),
            "contention": _listed(self.contentions),
            "placement": _listed(self.placements),
            "start_cost": _listed(self.start_costs_s),
            "journal": self.detail.value,
            "drop_unfit": "yes" if self.drop_unfit else "no",
        }


def label(value: object) -> str:
    """A value of an axis as text: numbers in full, the default by its name."""
    if value is None:
        return DEFAULT
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(label(value) for value in values)
