"""The runs of a sweep: one for each combination of its axes."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

from cluster_exp.domain.policy import Policy
from cluster_exp.inputs.restart import default_restart_costs
from cluster_exp.policies.registry import make_policy
from cluster_exp.results.history import read_history
from cluster_exp.results.journal import Detail
from cluster_exp.sim.performance import StartCost
from cluster_exp.sim.simulate import SimulationOptions
from cluster_exp.sweep.sources import ClusterSource, TraceSource
from cluster_exp.sweep.spec import SweepSpec, label

AXES = (
    *("policy", "trace", "cluster", "seed", "interval_s"),
    *("cost_model", "speed_model", "contention", "placement", "start_cost_s"),
)
_BARE = ("policy", "trace", "cluster")  # their values say by themselves what they are
_MOST_NAME = 200  # characters


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the grid."""

    policy: str
    trace: TraceSource
    cluster: ClusterSource
    seed: int
    rules: SimulationOptions
    start_cost_s: float | None  # None = by model, from the shipped table
    detail: Detail
    drop_unfit: bool
    folder: Path  # of the sweep's file
    num_jobs: int  # at most

    def labels(self) -> dict[str, str]:
        """Its place in the grid: by `AXES`, as text."""
        rules = self.rules
        values = (
            *(self.policy, self.trace.name, self.cluster.name, self.seed, rules.interval_s),
            *(rules.cost_model, rules.speed_model, rules.contention, rules.placement, self.start_cost_s),
        )
        return {axis: label(value) for axis, value in zip(AXES, values, strict=True)}

    def make_policy(self) -> Policy:
        """The policy. Raises InputError."""
        return make_policy(self.policy, lambda given: read_history(str(self.folder / given)))

    def start_cost(self) -> StartCost:
        """Seconds that a start of a job takes."""
        if self.start_cost_s is not None:
            seconds = self.start_cost_s
            return lambda job: seconds
        costs = default_restart_costs()
        return lambda job: costs.start_s(job.model, job.num_gpu)

    def described(self) -> dict[str, Any]:
        """What run.json and the journal's header say of the run."""
        return {
            "policy": self.policy,
            "mode": "sim",
            "trace": self.trace.origin(self.seed),
            "cluster": str(self.cluster.path),
            "cost_model": self.rules.cost_model,
            "speed_model": self.rules.speed_model,
            "contention": self.rules.contention,
            "placement": self.rules.placement,
            "interval_s": self.rules.interval_s,
            "start_cost_s": self.start_cost_s,
            "time_scale": 1.0,
            "seed": self.seed,
        }


@dataclass(frozen=True, slots=True)
class Grid:
    """All runs of a sweep, in order."""

    cells: tuple[Cell, ...]
    names: tuple[str, ...]  # one a cell, unique: what differs between the runs, and a directory's name
    varying: tuple[str, ...]  # the axes of more than one value


def grid_of(spec: SweepSpec) -> Grid:
    """The runs: trace by trace, then cluster, rules and seed, the policies of one setting side by side."""
    cells = []
    for trace, cluster, interval_s, cost, speed, contention, placement, start_cost_s, seed, policy in product(
        spec.traces,
        spec.clusters,
        spec.intervals_s,
        spec.cost_models,
        spec.speed_models,
        spec.contentions,
        spec.placements,
        spec.start_costs_s,
        spec.seeds,
        spec.policies,
    ):
        rules = SimulationOptions(cost, speed, contention, placement=placement, interval_s=interval_s)
        cells.append(
            Cell(
                policy=policy,
                trace=trace,
                cluster=cluster,
                seed=seed,
                rules=rules,
                start_cost_s=start_cost_s,
                detail=spec.detail,
                drop_unfit=spec.drop_unfit,
                folder=spec.folder,
                num_jobs=spec.num_jobs[trace.name, cluster.name],
            )
        )
    labels = [cell.labels() for cell in cells]
    varying = tuple(axis for axis in AXES if len({each[axis] for each in labels}) > 1)
    return Grid(tuple(cells), _unique([_name(each, varying) for each in labels]), varying)


def _name(labels: dict[str, str], varying: Sequence[str]) -> str:
    parts = [
        labels[axis] if axis in _BARE else f"{axis.removesuffix('_s')}={labels[axis]}"
        for axis in AXES
        if axis in varying or axis == "policy"
    ]
    return "_".join(parts)


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """The names as directories may be called; with a digest of the whole name where that cuts or confuses it."""
    plain = [re.sub(r"[^\w.=+-]", "_", name) for name in names]
    count = Counter(name.lower() for name in plain)
    return tuple(
        short
        if len(short) <= _MOST_NAME and count[short.lower()] == 1 and short[0] != "."
        else f"{short[:_MOST_NAME].lstrip('.')}-{sha256(name.encode()).hexdigest()[:8]}"
        for name, short in zip(names, plain, strict=True)
    )
