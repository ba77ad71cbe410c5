"""Muri (SIGCOMM'22): groups of jobs with the same GPU count, by matching on interleaving efficiency."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.models import Order
from cluster_exp.domain.plan import GroupPlan, Plan
from cluster_exp.domain.policy import Trait
from cluster_exp.domain.resources import MAX_GROUP_SIZE
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.policies.muri_groups import Group, Grouping, GroupTable, by_chunks, by_matching
from cluster_exp.policies.options import SWITCH, choice
from cluster_exp.policies.parts import BY_ATTAINED_SERVICE, JobOrder, as_left


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
    turns: Order = Order.BEST
    grouping: Grouping = by_matching
    learns: bool = False
    plans_rates: bool = False
    # The last run's table: results of pure functions, kept because they are dear. It decides nothing.
    _tables: list[GroupTable] = field(default_factory=list, repr=False, compare=False)

    @property
    def reads(self) -> frozenset[str]:
        """Columns that the order needs."""
        return self.order.reads

    @property
    def traits(self) -> frozenset[Trait]:
        """Shares GPUs where they are short, with or without weighing who shares with whom."""
        shares = {Trait.SHARES} if self.grouping is by_matching else {Trait.SHARES, Trait.UNWEIGHED}
        return frozenset({Trait.FILLS, *shares})

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """Groups in order of GPU count, descending, as many as fit."""
        order = self.order.sort(snapshot, as_left(snapshot, memory.get("order", ())))
        buckets = _candidates(snapshot, order, self.group_size)
        demand = sum(num_gpu * len(jobs) for num_gpu, jobs in buckets.items())
        table = self._table(snapshot)
        groups = self.grouping(table, buckets, demand - snapshot.cluster.num_gpu, self.group_size)
        if self.unpack:
            groups = [part for group in groups for part in _unpacked(table, group)]
        num_gpu = snapshot.num_gpu
        left = order[np.argsort(-num_gpu[order], kind="stable")]
        return Plan(
            tuple(_planned(table, group) for group in _fitting(snapshot, order, groups)),
            reason=f"demand={demand} gpus={snapshot.cluster.num_gpu}",
            memory={"order": snapshot.seq[left].tolist()},
        )

    def _table(self, snapshot: Snapshot) -> GroupTable:
        if not (self._tables and self._tables[0].learn(snapshot.speed, snapshot.profiles)):
            self._tables[:] = [GroupTable(snapshot.speed, self.turns, snapshot.profiles)]
        return self._tables[0]


def _candidates(snapshot: Snapshot, order: IntColumn, group_size: int) -> dict[int, list[Group]]:
    """Per GPU count, in order of first appearance, the jobs that could run if all shared in full groups."""
    trial = snapshot.trial()
    queues: dict[int, list[Group]] = {}
    room: dict[int, int] = {}  # per GPU count, how many jobs of the bucket are taken; they are its first
    closed: set[int] = set()
    missing = 0  # jobs that there is still room for
    columns = (order, snapshot.num_gpu[order], snapshot.profile_class[order], snapshot.group[order])
    for slot, size, profile_class, home in zip(*(column.tolist() for column in columns), strict=True):
        queue = queues.setdefault(size, [])
        if len(queue) == room.setdefault(size, 0):
            if size in closed:
                continue
            if not trial.take(size):
                closed.add(size)
                continue
            room[size] += group_size
            missing += group_size
        queue.append(Group((profile_class,), (slot,), home))
        missing -= 1
        if not missing and not trial.free_gpus:
            break
    return {size: queue for size, queue in queues.items() if queue}


def _unpacked(table: GroupTable, group: Group) -> list[Group]:
    """The group, or its members one by one when they are faster one after another."""
    if len(group.jobs) == 1 or not table.slower_than_alone(group.kind):
        return [group]
    return [Group((kind,), (slot,)) for kind, slot in zip(group.kind, group.jobs, strict=True)]


def _fitting(snapshot: Snapshot, order: IntColumn, groups: Sequence[Group]) -> list[Group]:
    """The groups that fit, tried in the order of their best member, then by GPU count, descending."""
    rank = {slot: place for place, slot in enumerate(order.tolist())}
    trial = snapshot.trial()
    num_gpu = snapshot.num_gpu
    fitting = []
    for group in sorted(groups, key=lambda group: min(rank[slot] for slot in group.jobs)):
        if trial.free_gpus == 0:
            break
        if trial.take(int(num_gpu[group.jobs[0]])):
            fitting.append(group)
    return sorted(fitting, key=lambda group: -int(num_gpu[group.jobs[0]]))


def _planned(table: GroupTable, group: Group) -> GroupPlan:
    """The group with its order of turns and the reason."""
    speed = table.group_speed(group.kind)
    reason = f"gamma={table.gamma(group.kind):.4f} cycle_s={speed.cycle_s:.6g}"
    return GroupPlan(group.jobs, speed.offsets, reason)


OPTIONS = {
    "group": choice({str(size): size for size in range(2, MAX_GROUP_SIZE + 1)}),
    "unpack": SWITCH,
    "order": choice({order.value: order for order in Order}),
    "grouping": choice({"matching": by_matching, "chunks": by_chunks}),
}


def _muri(
    name: str,
    order_of_jobs: JobOrder,
    group: int = MAX_GROUP_SIZE,
    unpack: bool | None = None,
    order: Order = Order.BEST,
    grouping: Grouping = by_matching,
) -> Muri:
    # Chunks are what matching is compared with: they stay as they are, unless told otherwise.
    return Muri(name, order_of_jobs, group, grouping is by_matching if unpack is None else unpack, order, grouping)


def muri_s(name: str = "muri-s", **options: Any) -> Muri:
    """Muri with known durations: shortest remaining service first; `options` as in OPTIONS."""
    return _muri(name, BY_BELIEVED_REMAINING_SERVICE, **options)


def muri_l(name: str = "muri-l", **options: Any) -> Muri:
    """Muri with unknown durations: least attained service first; `options` as in OPTIONS."""
    return _muri(name, BY_ATTAINED_SERVICE, **options)
