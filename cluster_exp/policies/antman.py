"""AntMan (OSDI'20): opportunistic jobs in what guaranteed jobs leave of their GPUs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.plan import GroupPlan, Plan
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.policies.parts import holding, waiting

Gpu = tuple[int, int]  # node id, GPU id

GUARANTEED_SHARE = 0.1
OPPORTUNISTIC_SHARE = 0.9
FULL = 0.8  # a GPU of which this much is asked for takes no opportunistic job


@dataclass
class _Gpus:
    """What each GPU is asked for, while a plan is made."""

    nodes: dict[int, list[Gpu]]  # by node id, ascending
    asked: dict[Gpu, float] = field(default_factory=dict)  # sum of shares
    guaranteed: set[Gpu] = field(default_factory=set)  # taken, or kept, by a guaranteed job

    def take(self, gpus: Iterable[Gpu], share: float, guaranteed: bool) -> None:
        """Gives GPUs to a job."""
        for gpu in gpus:
            self.asked[gpu] = self.asked.get(gpu, 0.0) + share
            if guaranteed:
                self.guaranteed.add(gpu)

    def without_guaranteed(self, node: int) -> list[Gpu]:
        """GPUs of a node that a guaranteed job can have, ascending."""
        return [gpu for gpu in self.nodes[node] if gpu not in self.guaranteed]

    def for_guaranteed(self, num_gpu: int) -> list[Gpu] | None:
        """On the first node with enough of them; more than a node has: whole nodes, the remainder on one more."""
        room = {node: self.without_guaranteed(node) for node in self.nodes}
        chosen: list[Gpu] = []
        if num_gpu > max((len(gpus) for gpus in self.nodes.values()), default=0):
            for node in sorted(room, key=lambda node: (-len(self.nodes[node]), node)):
                if len(room[node]) == len(self.nodes[node]) <= num_gpu:
                    num_gpu -= len(room[node])
                    chosen += room.pop(node)
        if num_gpu == 0:
            return chosen
        rest = next((gpus for gpus in room.values() if len(gpus) >= num_gpu), None)
        return None if rest is None else chosen + rest[:num_gpu]

    def kept(self, num_gpu: int) -> list[Gpu]:
        """What a guaranteed job that does not fit keeps: up to its number on the node with most of them."""
        room = [self.without_guaranteed(node) for node in self.nodes]
        return max(room, key=len, default=[])[:num_gpu]

    def for_opportunistic(self, num_gpu: int) -> list[Gpu] | None:
        """Those of which least is asked for, wherever they are."""
        open_gpus = [gpu for gpus in self.nodes.values() for gpu in gpus if self.asked.get(gpu, 0.0) < FULL]
        if len(open_gpus) < num_gpu:
            return None
        return sorted(open_gpus, key=lambda gpu: (self.asked.get(gpu, 0.0), gpu))[:num_gpu]


@dataclass(frozen=True)
class AntMan:
    """Never preempts. Guaranteed jobs (priority 0) first, each kind first come, first served.

    A guaranteed job takes GPUs that no other guaranteed job has. While it finds too few it keeps those of the node
    with most of them from the guaranteed jobs behind it. An opportunistic job takes the GPUs of which least is asked
    for, and runs in what the guaranteed jobs there leave.
    """

    name: str = "antman"
    reads: frozenset[str] = frozenset({"priority", "submit_s"})
    learns: bool = False
    plans_rates: bool = False

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """The running jobs where they are, and the waiting ones that find GPUs."""
        guaranteed = snapshot.column("priority") == 0
        gpus = _Gpus(_nodes(snapshot))
        groups = []
        for slot in holding(snapshot).tolist():
            allotment = snapshot.allotments[slot]
            gpus.take(allotment.gpus, _share(guaranteed[slot]), bool(guaranteed[slot]))
            groups.append(GroupPlan((slot,), reason="runs", allotments=(allotment,)))
        order = waiting(snapshot)
        order = order[np.lexsort((snapshot.submit_s[order], snapshot.column("priority")[order]))]
        for slot, num_gpu in zip(order.tolist(), snapshot.num_gpu[order].tolist(), strict=True):
            first = bool(guaranteed[slot])
            chosen = gpus.for_guaranteed(num_gpu) if first else gpus.for_opportunistic(num_gpu)
            if chosen is not None:
                gpus.take(chosen, _share(first), first)
                why = "guaranteed" if first else "opportunistic"
                groups.append(GroupPlan((slot,), reason=why, allotments=(_allotment(chosen, _share(first)),)))
            elif first:
                gpus.take(gpus.kept(num_gpu), GUARANTEED_SHARE, True)
        return Plan(tuple(groups), pinned=True, reason=f"policy={self.name}")


def _share(guaranteed: bool) -> float:
    return GUARANTEED_SHARE if guaranteed else OPPORTUNISTIC_SHARE


def _nodes(snapshot: Snapshot) -> dict[int, list[Gpu]]:
    nodes = zip(snapshot.node_ids, snapshot.cluster.nodes, strict=True)
    return {node: [(node, gpu) for gpu in range(spec.num_gpu)] for node, spec in nodes}


def _allotment(gpus: Sequence[Gpu], share: float) -> Allotment:
    by_node: dict[int, list[int]] = {}
    for node, gpu in sorted(gpus):
        by_node.setdefault(node, []).append(gpu)
    return Allotment(tuple(NodeShare(node, tuple(ids), share) for node, ids in by_node.items()))


def antman() -> AntMan:
    """AntMan, with jobs of priority 0 guaranteed and all others opportunistic."""
    return AntMan()
