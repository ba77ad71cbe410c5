"""Dominant resource fairness (Ghodsi et al., NSDI'11): equal dominant shares between users."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_exp.domain.columns import FloatColumn
from cluster_exp.domain.plan import GroupPlan, Plan
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.policies.options import Option, choice


@dataclass(frozen=True)
class DominantResourceFairness:
    """Gives the next GPUs to whoever has the smallest dominant share, and runs each one's jobs as they came.

    Shares are of the cluster's GPUs, CPUs and host memory. A job that does not state its CPUs or memory counts with
    the part that goes with its GPUs; a cluster that does not state them has no such resource. A job without a user
    (or queue) is a user of its own. What does not fit is passed over.
    """

    name: str = "drf"
    between: str = "user"  # column that tells who shares: user or queue
    learns: bool = False
    plans_rates: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """Whose the jobs are, and what they ask for."""
        return frozenset({self.between, "num_cpu", "memory_gib"})

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """Progressive filling: one job at a time for the smallest dominant share; ties: the owner who came first."""
        shares = dominant_shares(snapshot)
        queues = self._queues(snapshot)
        had = dict.fromkeys(queues, 0.0)
        trial = snapshot.trial()
        groups = []
        while queues and trial.free_gpus:
            owner = min(queues, key=lambda owner: had[owner])
            slot = queues[owner].pop(0)
            if trial.take(int(snapshot.num_gpu[slot])):
                had[owner] += float(shares[slot])
                groups.append(GroupPlan((slot,), reason=f"policy={self.name} dominant_share={had[owner]:.4f}"))
            if not queues[owner]:
                del queues[owner]
        return Plan(tuple(groups), reason=f"owners={len(had)}")

    def _queues(self, snapshot: Snapshot) -> dict[tuple[str, int], list[int]]:
        """Slots by owner; owners and their jobs in order of arrival."""
        owners = snapshot.column(self.between)
        queues: dict[tuple[str, int], list[int]] = {}
        for slot in snapshot.jobs.tolist():
            code = owners[slot]
            key = ("job", int(snapshot.seq[slot])) if code < 0 else ("owner", int(code))
            queues.setdefault(key, []).append(slot)
        return queues


def dominant_shares(snapshot: Snapshot) -> FloatColumn:
    """The largest share that a job asks of the cluster's GPUs, CPUs or host memory, by slot."""
    nodes = snapshot.cluster.nodes
    gpu_share = snapshot.num_gpu / max(1, snapshot.cluster.num_gpu)
    totals = {
        "num_cpu": float(sum(node.num_cpu for node in nodes)),
        "memory_gib": float(sum(node.memory_gib for node in nodes)),
    }
    largest: FloatColumn = gpu_share.astype(np.float64)
    for name, total in totals.items():
        if total > 0:
            stated = snapshot.column(name) / total
            largest = np.maximum(largest, np.where(np.isnan(stated), gpu_share, stated))
    return largest


OPTIONS: dict[str, Option] = {"between": choice({"users": "user", "queues": "queue"})}


def drf(name: str = "drf", between: str = "user") -> DominantResourceFairness:
    """The policy `drf`."""
    return DominantResourceFairness(name, between)
