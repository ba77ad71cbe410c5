"""Muri (SIGCOMM'22): groups of jobs with the same GPU count, by matching on interleaving efficiency."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster_exp.domain.models import GroupSpeed
from cluster_exp.domain.plan import GroupPlan, Plan
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import MAX_GROUP_SIZE
from cluster_exp.domain.snapshot import FloatColumn, IntColumn, Snapshot
from cluster_exp.interleave.efficiency import efficiency
from cluster_exp.interleave.matching import max_weight_matching
from cluster_exp.policies.parts import JobOrder, as_left

Group = tuple[int, ...]  # slots, by profile class


def _believed_remaining_service(snapshot: Snapshot) -> FloatColumn:
    """Remaining time x GPUs; of a job that never ran, the stated duration is all that is known."""
    starts = snapshot.column("starts")
    remaining_s = np.where(starts > 0, snapshot.remaining_s, snapshot.duration_s)
    return remaining_s * snapshot.num_gpu


BY_BELIEVED_REMAINING_SERVICE = JobOrder(
    "remaining time x GPUs, stated duration before the first run",
    frozenset({"starts", "remaining_s", "duration_s"}),
    _believed_remaining_service,
)


@dataclass(frozen=True)
class Muri:
    """Order, candidates, grouping, unpacking, as in section 4 of the paper and its published simulator.

    Memory: `order`, the arrival numbers of the live jobs as the last plan left them, which decides between equals.
    """

    name: str
    order: JobOrder
    group_size: int = MAX_GROUP_SIZE
    unpack: bool = True  # split groups that run slower than their members one after another
    learns: bool = False
    plans_rates: bool = False

    @property
    def reads(self) -> frozenset[str]:
        """Columns that the order needs."""
        return self.order.reads

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """Groups in order of GPU count, descending, as many as fit."""
        order = self.order.sort(snapshot, as_left(snapshot, memory.get("order", ())))
        buckets = _candidates(snapshot, order, self.group_size)
        demand = sum(num_gpu * len(jobs) for num_gpu, jobs in buckets.items())
        matcher = _Matcher(snapshot, self.group_size)
        groups = _merge(matcher, buckets, demand)
        if self.unpack:
            groups = [part for group in groups for part in matcher.unpacked(group)]
        fitting = _fitting(snapshot, order, groups)
        num_gpu = snapshot.num_gpu
        left = order[np.argsort(-num_gpu[order], kind="stable")]
        return Plan(
            tuple(matcher.planned(group) for group in fitting),
            reason=f"demand={demand} gpus={snapshot.cluster.num_gpu}",
            memory={"order": snapshot.seq[left].tolist()},
        )


def _candidates(snapshot: Snapshot, order: IntColumn, group_size: int) -> dict[int, list[int]]:
    """Per GPU count, in order of first appearance, the jobs that could run if all shared in full groups."""
    trial = snapshot.trial()
    queues: dict[int, list[int]] = {}
    room: dict[int, int] = {}  # per GPU count, how many jobs of the bucket are taken; they are its first
    closed: set[int] = set()
    for slot, size in zip(order.tolist(), snapshot.num_gpu[order].tolist(), strict=True):
        queue = queues.setdefault(size, [])
        if len(queue) == room.setdefault(size, 0) and size not in closed:
            if trial.take(size):
                room[size] += group_size
            else:
                closed.add(size)
        if len(queue) < room[size]:
            queue.append(slot)
    return {size: queue for size, queue in queues.items() if queue}


class _Matcher:
    """Group speeds and weights of one snapshot, each computed once per combination of profile classes."""

    def __init__(self, snapshot: Snapshot, group_size: int) -> None:
        self._snapshot = snapshot
        self._group_size = group_size
        self._class_of = snapshot.profile_class.tolist()
        self._speeds: dict[tuple[int, ...], GroupSpeed] = {}
        self._weights: dict[tuple[int, ...], float] = {}

    def pairs(self, groups: Sequence[Group]) -> list[tuple[int, int]]:
        """Maximum-weight matching: pairs of indices, by the larger index."""
        weights = {}
        for j, right in enumerate(groups):
            for i in range(j):
                if len(groups[i]) + len(right) <= self._group_size:
                    weights[(i, j)] = self._weight(self.joined(groups[i], right))
        return sorted(max_weight_matching(weights), key=lambda pair: pair[1])

    def joined(self, left: Group, right: Group) -> Group:
        """One group of both."""
        return tuple(sorted(left + right, key=lambda slot: self._class_of[slot]))

    def unpacked(self, group: Group) -> list[Group]:
        """The group, or its members one by one when they are faster one after another."""
        alone_s = sum(self._snapshot.speed.alone_s(profile) for profile in self._profiles(self._key(group)))
        return [group] if self._speed(self._key(group)).cycle_s <= alone_s else [(slot,) for slot in group]

    def planned(self, group: Group) -> GroupPlan:
        """The group with its best order of turns and the reason."""
        key = self._key(group)
        speed = self._speed(key)
        reason = f"gamma={self._weight(group):.4f} cycle_s={speed.cycle_s:.6g}"
        return GroupPlan(group, speed.offsets, reason)

    def _weight(self, group: Group) -> float:
        key = self._key(group)
        if key not in self._weights:
            self._weights[key] = efficiency(self._profiles(key), self._speed(key).cycle_s)
        return self._weights[key]

    def _speed(self, key: tuple[int, ...]) -> GroupSpeed:
        if key not in self._speeds:
            self._speeds[key] = self._snapshot.speed.group(self._profiles(key))
        return self._speeds[key]

    def _profiles(self, key: tuple[int, ...]) -> tuple[StageProfile, ...]:
        return tuple(self._snapshot.profiles[profile_class] for profile_class in key)

    def _key(self, group: Group) -> tuple[int, ...]:
        return tuple(self._class_of[slot] for slot in group)


def _merge(matcher: _Matcher, buckets: Mapping[int, Sequence[int]], demand: int) -> list[Group]:
    """Rounds of matching, merging pairs only while the groups want more GPUs than there are."""
    groups: dict[int, list[Group]] = {num_gpu: [(slot,) for slot in jobs] for num_gpu, jobs in buckets.items()}
    excess = demand - matcher._snapshot.cluster.num_gpu
    for _ in range(matcher._group_size):
        if excess <= 0:
            break
        for num_gpu, present in groups.items():
            merged: dict[int, Group] = dict(enumerate(present))
            for i, j in matcher.pairs(present):
                if excess <= 0:
                    break
                merged[i] = matcher.joined(merged[i], merged.pop(j))
                excess -= num_gpu
            groups[num_gpu] = list(merged.values())
    return [group for present in groups.values() for group in present]


def _fitting(snapshot: Snapshot, order: IntColumn, groups: Sequence[Group]) -> list[Group]:
    """The groups that fit, tried in the order of their best member, then by GPU count, descending."""
    rank = {int(slot): place for place, slot in enumerate(order)}
    trial = snapshot.trial()
    num_gpu = snapshot.num_gpu
    fitting = []
    for group in sorted(groups, key=lambda group: min(rank[slot] for slot in group)):
        if trial.free_gpus == 0:
            break
        if trial.take(int(num_gpu[group[0]])):
            fitting.append(group)
    return sorted(fitting, key=lambda group: -int(num_gpu[group[0]]))


def muri_s() -> Muri:
    """Muri with known durations: shortest remaining service first."""
    return Muri("muri-s", BY_BELIEVED_REMAINING_SERVICE)
