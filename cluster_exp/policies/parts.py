"""Named parts of which policies are composed: orders of jobs, and the walk that fills the cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.job import HOLDS_GPUS
from cluster_exp.domain.plan import GroupRows, single_jobs
from cluster_exp.domain.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class JobOrder:
    """An order of jobs: ascending by `key`; of equals, the one that arrived first."""

    name: str
    reads: frozenset[str]  # columns that the key needs
    key: Callable[[Snapshot], FloatColumn]  # by slot

    def sort(self, snapshot: Snapshot, jobs: IntColumn) -> IntColumn:
        """The given slots in this order; equal keys keep the order that they have."""
        return jobs[np.argsort(self.key(snapshot)[jobs], kind="stable")]


BY_SUBMIT = JobOrder("submit time", frozenset({"submit_s"}), lambda snapshot: snapshot.submit_s)
BY_DURATION = JobOrder("stated duration", frozenset({"duration_s"}), lambda snapshot: snapshot.duration_s)
BY_REMAINING = JobOrder("remaining time", frozenset({"remaining_s"}), lambda snapshot: snapshot.remaining_s)
BY_REMAINING_SERVICE = JobOrder(
    "remaining time x GPUs",
    frozenset({"remaining_s"}),
    lambda snapshot: snapshot.remaining_s * snapshot.num_gpu,
)
BY_ATTAINED_SERVICE = JobOrder(
    "attained service",
    frozenset({"attained_gpu_s"}),
    lambda snapshot: snapshot.attained_gpu_s,
)


def still_live(snapshot: Snapshot, order: Sequence[int]) -> IntColumn:
    """Slots of the jobs with these arrival numbers, in this order, without those that ended."""
    if not snapshot.jobs.size:
        return snapshot.jobs
    live = snapshot.seq[snapshot.jobs]  # ascending
    known = np.array(order, dtype=np.int64)
    at = np.minimum(np.searchsorted(live, known), live.size - 1)
    slots: IntColumn = snapshot.jobs[at[live[at] == known]]
    return slots


def arrived_since(snapshot: Snapshot, known: IntColumn) -> IntColumn:
    """Slots of the live jobs that are not among the known ones, by arrival."""
    arrived = np.ones(snapshot.seq.size, dtype=bool)
    arrived[known] = False
    slots: IntColumn = snapshot.jobs[arrived[snapshot.jobs]]
    return slots


def as_left(snapshot: Snapshot, order: Sequence[int]) -> IntColumn:
    """Slots of the live jobs: those that a former plan saw in its order, then the arrivals.

    `order`: arrival numbers in the order of that plan. A policy that sorts this list keeps, of equals, the one in
    front that was in front before.
    """
    known = still_live(snapshot, order)
    return np.concatenate([known, arrived_since(snapshot, known)])


def holding(snapshot: Snapshot) -> IntColumn:
    """Slots of the jobs that hold GPUs, by arrival."""
    status = snapshot.status[snapshot.jobs]
    return snapshot.jobs[np.isin(status, list(HOLDS_GPUS))]


def waiting(snapshot: Snapshot) -> IntColumn:
    """Slots of the jobs that hold none, by arrival."""
    status = snapshot.status[snapshot.jobs]
    return snapshot.jobs[~np.isin(status, list(HOLDS_GPUS))]


def may_share(snapshot: Snapshot, jobs: IntColumn) -> IntColumn:
    """Places in `jobs` of those whose profile is known; the others have to be alone until they were measured."""
    return np.flatnonzero(snapshot.guessed[jobs] == 0)


def has_to_be_alone(snapshot: Snapshot, jobs: IntColumn) -> IntColumn:
    """Places in `jobs` of those whose profile is a guess."""
    return np.flatnonzero(snapshot.guessed[jobs])


def fill(snapshot: Snapshot, order: IntColumn, why: str) -> GroupRows:
    """Groups of one job each, in the given order, for the jobs that fit; what does not fit is passed over."""
    fits = np.flatnonzero(snapshot.trial().take_many(snapshot.num_gpu[order]))
    return single_jobs(order[fits], lambda group: f"{why} rank={fits[group]}")
