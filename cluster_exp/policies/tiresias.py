"""Tiresias (NSDI'19): least attained service with a few queues instead of a full order."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.plan import Plan
from cluster_exp.domain.policy import Trait
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.policies.options import Option
from cluster_exp.policies.parts import arrived_since, fill, holding, still_live

PUBLISHED_LIMITS_GPU_S = (3250.0, 7200.0)


@dataclass(frozen=True)
class Tiresias:
    """Discretised two-dimensional LAS (section 3.3), as in the simulator published with Muri (SIGCOMM'22).

    A job begins in the first queue and moves to the next one's tail, one queue a plan, when its attained service
    reaches its queue's limit. It never comes back. Queues are served in order; inside a queue who runs stays before
    who waits. What does not fit is passed over.

    Memory: `queues`, the arrival numbers of the live jobs in each queue, in order.
    """

    name: str = "tiresias"
    limits_gpu_s: tuple[float, ...] = PUBLISHED_LIMITS_GPU_S  # ascending; one queue more than limits
    reads: frozenset[str] = frozenset({"executed_s", "attained_gpu_s"})
    traits: frozenset[Trait] = frozenset({Trait.WAKES, Trait.COUNTS})
    learns: bool = False
    plans_rates: bool = False

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """The jobs of the first queues that fit; wakes when the next running job reaches its limit."""
        queues = self._demoted(snapshot, _queues(snapshot, memory.get("queues", ()), len(self.limits_gpu_s) + 1))
        groups = fill(snapshot, np.concatenate(queues), f"policy={self.name}")
        chosen = np.zeros(snapshot.seq.size, dtype=bool)
        chosen[groups.columns.jobs] = True
        queues = [np.concatenate([queue[chosen[queue]], queue[~chosen[queue]]]) for queue in queues]
        return Plan(
            groups,
            reason=f"queued={'/'.join(str(queue.size) for queue in queues)}",
            memory={"queues": [snapshot.seq[queue].tolist() for queue in queues]},
            wake_s=self._wake_s(snapshot, [queue[chosen[queue]] for queue in queues]),
        )

    def _demoted(self, snapshot: Snapshot, queues: list[IntColumn]) -> list[IntColumn]:
        """The queues after each running job that reached its limit moved one down."""
        level = np.zeros(snapshot.seq.size, dtype=np.int64)
        for number, queue in enumerate(queues):
            level[queue] = number
        running = holding(snapshot)
        limits = np.array([*self.limits_gpu_s, math.inf])[level[running]]
        attained = snapshot.attained_gpu_s[running]
        due_s = _due_s(snapshot, running, limits)
        # A job whose limit is nearer than time can be told apart has reached it.
        leaving = running[(attained >= limits) | (due_s <= snapshot.now_s)]
        if not leaving.size:
            return queues
        moving = np.zeros(snapshot.seq.size, dtype=bool)
        moving[leaving] = True
        kept = [queue[~moving[queue]] for queue in queues]
        return [np.concatenate([queue, leaving[level[leaving] == number - 1]]) for number, queue in enumerate(kept)]

    def _wake_s(self, snapshot: Snapshot, running: Sequence[IntColumn]) -> float | None:
        due_s = [
            _due_s(snapshot, jobs, np.full(jobs.size, limit))
            for jobs, limit in zip(running, self.limits_gpu_s, strict=False)
            if jobs.size
        ]
        return float(np.concatenate(due_s).min()) if due_s else None


def _due_s(snapshot: Snapshot, jobs: IntColumn, limits_gpu_s: FloatColumn) -> FloatColumn:
    """When each of the running jobs will have reached its limit, in whole seconds of execution."""
    due_s: FloatColumn = (np.ceil(limits_gpu_s / snapshot.num_gpu[jobs]) - snapshot.executed_s[jobs]) + snapshot.now_s
    return due_s


def _queues(snapshot: Snapshot, queues: Sequence[Sequence[int]], count: int) -> list[IntColumn]:
    """Slots of the live jobs by queue: as the last plan left them, arrivals at the tail of the first."""
    known = [still_live(snapshot, queue) for queue in queues] or [snapshot.jobs[:0]] * count
    return [np.concatenate([known[0], arrived_since(snapshot, np.concatenate(known))]), *known[1:]]


def _limits(text: str) -> tuple[float, ...]:
    limits = tuple(float(word) for word in text.split("/"))
    if not all(math.isfinite(limit) and limit > 0 for limit in limits) or list(limits) != sorted(set(limits)):
        raise ValueError(text)
    return limits


OPTIONS = {"limits": Option("GPU-seconds like 3250/7200, ascending, above 0", _limits)}


def tiresias(name: str = "tiresias", limits: tuple[float, ...] = PUBLISHED_LIMITS_GPU_S) -> Tiresias:
    """Two-dimensional LAS in queues bounded by `limits`, in GPU-seconds."""
    return Tiresias(name, limits)
