"""AntMan (OSDI'20): opportunistic jobs in what guaranteed jobs leave of their GPUs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.columns import IntColumn
from cluster_exp.domain.plan import GroupPlan, Plan
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.policies.parts import holding, waiting

Gpu = tuple[int, int]  # node id, GPU id

# Shares of a GPU in tenths, as in the simulator published with Muri (SIGCOMM'22).
GUARANTEED_TENTHS = 1
WHOLE_TENTHS = 10  # of a job that was to be alone until it was measured: it keeps the whole GPU
OPPORTUNISTIC_TENTHS = 9
FULL_TENTHS = 8  # a GPU of which this much is asked for takes no opportunistic job


class _Gpus:
    """Who has which GPUs while a plan is made."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.sizes = sizes  # GPUs by node id, ascending
        self._asked = {(node, gpu): 0 for node, size in sizes.items() for gpu in range(size)}  # tenths
        self.room = {node: [(node, gpu) for gpu in range(size)] for node, size in sizes.items()}

    def take(self, gpus: Sequence[Gpu], tenths: int) -> None:
        """Gives so much of each GPU to a job that runs or starts."""
        for gpu in gpus:
            self._asked[gpu] += tenths
        if tenths != OPPORTUNISTIC_TENTHS:
            self.keep(gpus)

    def keep(self, gpus: Iterable[Gpu]) -> None:
        """Closes GPUs to other guaranteed jobs."""
        for gpu in gpus:
            if gpu in self.room[gpu[0]]:
                self.room[gpu[0]].remove(gpu)

    def collect(self, num_gpu: int, kept: Sequence[Gpu]) -> list[Gpu]:
        """GPUs that a guaranteed job has after this plan, with those that it kept: all it needs, or some to keep.

        Up to a node's size: on the fullest node with room, or, where none has enough, on the one with most room, to
        which it sticks. Larger: whole nodes as they come free, at last a remainder like a small job.
        """
        gpus = list(kept)
        whole, partial = self._split(kept)
        rest = num_gpu - sum(self.sizes[node] for node in whole)
        largest = max(self.sizes.values())
        if num_gpu > largest:
            for node in sorted(self.sizes, key=lambda node: (-self.sizes[node], node)):
                if partial is None and len(self.room[node]) == self.sizes[node] <= rest:
                    gpus += self.room[node]
                    rest -= self.sizes[node]
                    self.room[node] = []
        if rest and (num_gpu <= largest or rest < largest):
            node = self._node_for(rest) if partial is None else partial
            added = self.room[node][: num_gpu - len(gpus)]
            gpus += added
            self.keep(added)
        return gpus

    def for_opportunistic(self, num_gpu: int) -> list[Gpu] | None:
        """Those of which least is asked for, wherever they are; None where too few are open."""
        open_gpus = [gpu for gpu, tenths in self._asked.items() if tenths < FULL_TENTHS]
        if len(open_gpus) < num_gpu:
            return None
        return sorted(open_gpus, key=lambda gpu: self._asked[gpu])[:num_gpu]

    def unshared(self, num_gpu: int) -> list[Gpu] | None:
        """GPUs that nobody asks for and nobody keeps; None where too few are."""
        idle = [gpu for gpus in self.room.values() for gpu in gpus if not self._asked[gpu]]
        return idle[:num_gpu] if len(idle) >= num_gpu else None

    def _split(self, kept: Sequence[Gpu]) -> tuple[list[int], int | None]:
        """Nodes that a job keeps wholly, and the one that it keeps in part."""
        counts: dict[int, int] = {}
        for node, _ in kept:
            counts[node] = counts.get(node, 0) + 1
        whole = [node for node, count in counts.items() if count == self.sizes[node]]
        return whole, next((node for node in counts if node not in whole), None)

    def _node_for(self, num_gpu: int) -> int:
        """The fullest node with room for all, of equals the one of which most is asked for; else the roomiest."""
        large = [node for node, size in self.sizes.items() if size >= num_gpu]
        roomy = [node for node in large if len(self.room[node]) >= num_gpu]
        if not roomy:
            return max(large, key=lambda node: len(self.room[node]))
        return min(roomy, key=lambda node: (len(self.room[node]), -self._asked_of(node)))

    def _asked_of(self, node: int) -> int:
        return sum(self._asked[(node, gpu)] for gpu in range(self.sizes[node]))


@dataclass(frozen=True)
class AntMan:
    """Never preempts; guaranteed jobs (priority 0) first, each kind first come, first served.

    A guaranteed job takes GPUs that no other guaranteed job has. While it finds too few it keeps those that it found
    from the guaranteed jobs behind it. An opportunistic job takes the GPUs of which least is asked for, all or none,
    and runs in what the guaranteed jobs there leave (section 4 of the paper; shares as in the simulator published
    with Muri, SIGCOMM'22).

    Memory: `kept`, (arrival number, GPUs as (node, GPU) pairs) of each waiting guaranteed job that keeps some.
    """

    name: str = "antman"
    reads: frozenset[str] = frozenset({"priority", "submit_s"})
    learns: bool = False
    plans_rates: bool = False

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """The running jobs where they are, and the waiting ones that find GPUs."""
        sizes = {node: spec.num_gpu for node, spec in zip(snapshot.node_ids, snapshot.cluster.nodes, strict=True)}
        kept = _still_kept(snapshot, sizes, memory.get("kept", ()))
        groups, keeping, guaranteed_run = _placed(snapshot, sizes, kept)
        if keeping and not guaranteed_run:
            # Jobs that wait for what others keep would wait forever: all give back what they keep.
            groups, keeping, _ = _placed(snapshot, sizes, {})
        keeps = [[int(snapshot.seq[slot]), [list(gpu) for gpu in gpus]] for slot, gpus in keeping.items()]
        return Plan(tuple(groups), pinned=True, reason=f"keeping={len(keeps)}", memory={"kept": keeps})


def _placed(
    snapshot: Snapshot, sizes: Mapping[int, int], kept: Mapping[int, Sequence[Gpu]]
) -> tuple[list[GroupPlan], dict[int, list[Gpu]], bool]:
    """Groups that run or start, what the waiting jobs keep by slot, and whether a guaranteed job runs."""
    guaranteed = (snapshot.column("priority") == 0).tolist()
    gpus = _Gpus(sizes)
    groups = []
    guaranteed_run = False
    for slot in holding(snapshot).tolist():
        gpus.take(snapshot.allotments[slot].gpus, round(10 * snapshot.allotments[slot].shares[0].fraction))
        groups.append(GroupPlan((slot,), reason="runs", allotments=(snapshot.allotments[slot],)))
        guaranteed_run |= guaranteed[slot]
    for mine in kept.values():
        gpus.keep(mine)
    keeping: dict[int, list[Gpu]] = {}
    order = _first_come(snapshot)
    for slot, num_gpu in zip(order.tolist(), snapshot.num_gpu[order].tolist(), strict=True):
        if num_gpu > snapshot.cluster.num_gpu:
            continue
        tenths = GUARANTEED_TENTHS if guaranteed[slot] else OPPORTUNISTIC_TENTHS
        if snapshot.guessed[slot] or _is_large(snapshot, slot):
            found = gpus.unshared(num_gpu)
            if found is None:
                continue
            chosen, tenths = found, WHOLE_TENTHS
            guaranteed_run |= guaranteed[slot]
        elif guaranteed[slot]:
            chosen = gpus.collect(num_gpu, kept.get(slot, ()))
            if 0 < len(chosen) < num_gpu:
                keeping[slot] = chosen
            if len(chosen) < num_gpu:
                continue
            guaranteed_run = True
        else:
            found = gpus.for_opportunistic(num_gpu)
            if found is None:
                continue
            chosen = found
        gpus.take(chosen, tenths)
        why = "guaranteed" if guaranteed[slot] else "opportunistic"
        groups.append(GroupPlan((slot,), reason=why, allotments=(_allotment(chosen, tenths),)))
    return groups, keeping, guaranteed_run


def _is_large(snapshot: Snapshot, slot: int) -> bool:
    """Whether a job needs more than half of a GPU's memory: two at most share a GPU here."""
    memory = snapshot.memory
    return memory is not None and 2 * snapshot.profiles[snapshot.profile_class[slot]].memory_mib > memory.gpu_mib


def _first_come(snapshot: Snapshot) -> IntColumn:
    """Slots of the waiting jobs by (priority, submit time, arrival)."""
    jobs = waiting(snapshot)
    return jobs[np.lexsort((snapshot.submit_s[jobs], snapshot.column("priority")[jobs]))]


def _still_kept(snapshot: Snapshot, sizes: Mapping[int, int], kept: Sequence[Any]) -> dict[int, list[Gpu]]:
    """What each job that still waits keeps, by slot, on nodes that are up."""
    slots = {int(snapshot.seq[slot]): slot for slot in waiting(snapshot).tolist()}
    return {
        slots[seq]: [(node, gpu) for node, gpu in gpus if gpu < sizes.get(node, 0)]
        for seq, gpus in kept
        if seq in slots
    }


def _allotment(gpus: Iterable[Gpu], tenths: int) -> Allotment:
    by_node: dict[int, list[int]] = {}
    for node, gpu in sorted(gpus):
        by_node.setdefault(node, []).append(gpu)
    return Allotment(tuple(NodeShare(node, tuple(ids), tenths / 10) for node, ids in by_node.items()))


def antman() -> AntMan:
    """AntMan, with jobs of priority 0 guaranteed and all others opportunistic."""
    return AntMan()
