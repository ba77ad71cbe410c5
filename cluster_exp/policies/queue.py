"""Policies that run jobs one by one in some order, without sharing GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_exp.domain.plan import GroupPlan, Misfit, Plan
from cluster_exp.domain.policy import Trait
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.policies.parts import (
    BY_DURATION,
    BY_REMAINING,
    BY_REMAINING_SERVICE,
    BY_SUBMIT,
    JobOrder,
    fill,
    holding,
    waiting,
)


@dataclass(frozen=True)
class PreemptiveQueue:
    """Runs the jobs that come first in an order, whatever runs now; what does not fit is passed over."""

    name: str
    order: JobOrder
    traits: frozenset[Trait] = frozenset({Trait.FILLS})
    learns: bool = False
    plans_rates: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """Columns that the order needs."""
        return self.order.reads

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """The first jobs of the order that fit."""
        order = self.order.sort(snapshot, snapshot.jobs)
        return Plan(fill(snapshot, order, f"policy={self.name}"), reason=f"order={self.order.name!r}")


@dataclass(frozen=True)
class RunToCompletionQueue:
    """Never preempts; waiting jobs start in an order, and none overtakes one that does not fit."""

    name: str
    order: JobOrder
    traits: frozenset[Trait] = frozenset({Trait.FILLS})
    learns: bool = False
    plans_rates: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """Columns that the order needs."""
        return self.order.reads

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """The running jobs, and the waiting ones up to the first that cannot be placed."""
        running = holding(snapshot)
        queue = self.order.sort(snapshot, waiting(snapshot))
        free = snapshot.cluster.num_gpu - int(snapshot.num_gpu[running].sum())
        # One more than the GPUs suffice for: the core finds out where the line stops.
        fits = int(np.searchsorted(np.cumsum(snapshot.num_gpu[queue]), free, side="right"))
        groups = [GroupPlan((int(slot),), reason="runs") for slot in running]
        groups += [
            GroupPlan((int(slot),), reason=f"policy={self.name} rank={rank}")
            for rank, slot in enumerate(queue[: fits + 1])
        ]
        return Plan(tuple(groups), Misfit.STOP, pinned=True, reason=f"order={self.order.name!r}")


def fifo() -> RunToCompletionQueue:
    """First in, first out."""
    return RunToCompletionQueue("fifo", BY_SUBMIT)


def sjf() -> RunToCompletionQueue:
    """Shortest job first, by stated duration, without preemption."""
    return RunToCompletionQueue("sjf", BY_DURATION)


def srtf() -> PreemptiveQueue:
    """Shortest remaining time first."""
    return PreemptiveQueue("srtf", BY_REMAINING)


def srsf() -> PreemptiveQueue:
    """Shortest remaining service first: remaining time x GPUs (Tiresias, NSDI'19, section 5)."""
    return PreemptiveQueue("srsf", BY_REMAINING_SERVICE)
