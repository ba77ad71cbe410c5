"""Named parts of which policies are composed: orders of jobs, and the walk that fills the cluster."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster_exp.domain.job import HOLDS_GPUS
from cluster_exp.domain.plan import GroupPlan
from cluster_exp.domain.snapshot import FloatColumn, IntColumn, Snapshot


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


def as_left(snapshot: Snapshot, order: Sequence[int]) -> IntColumn:
    """Slots of the live jobs: those that a former plan saw in its order, then the arrivals.

    `order`: arrival numbers in the order of that plan. A policy that sorts this list keeps, of equals, the one in
    front that was in front before.
    """
    jobs = snapshot.jobs
    if not jobs.size:
        return jobs
    live = snapshot.seq[jobs]  # ascending
    known = np.array(order, dtype=np.int64)
    at = np.minimum(np.searchsorted(live, known), live.size - 1)
    at = at[live[at] == known]
    arrived = np.ones(live.size, dtype=bool)
    arrived[at] = False
    return jobs[np.concatenate([at, np.flatnonzero(arrived)])]


def holding(snapshot: Snapshot) -> IntColumn:
    """Slots of the jobs that hold GPUs, by arrival."""
    status = snapshot.status[snapshot.jobs]
    return snapshot.jobs[np.isin(status, list(HOLDS_GPUS))]


def waiting(snapshot: Snapshot) -> IntColumn:
    """Slots of the jobs that hold none, by arrival."""
    status = snapshot.status[snapshot.jobs]
    return snapshot.jobs[~np.isin(status, list(HOLDS_GPUS))]


def fill(snapshot: Snapshot, order: Iterable[int], why: str) -> list[GroupPlan]:
    """Groups of one job each, in the given order, for the jobs that fit; what does not fit is passed over."""
    trial = snapshot.trial()
    groups = []
    for rank, slot in enumerate(order):
        if trial.free_gpus == 0:
            break
        if trial.take(int(snapshot.num_gpu[slot])):
            groups.append(GroupPlan((int(slot),), reason=f"{why} rank={rank}"))
    return groups
