"""Muri (SIGCOMM'22): groups of jobs with the same GPU count, by matching on interleaving efficiency."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.models import Order
from cluster_exp.domain.plan import GroupColumns, GroupRows, Plan
from cluster_exp.domain.policy import Trait
from cluster_exp.domain.resources import MAX_GROUP_SIZE
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.interleave.fitting import WORTHLESS
from cluster_exp.policies.muri_groups import (
    Grouping,
    Groups,
    GroupTable,
    by_chunks,
    by_matching,
    joined,
    present_kinds,
)
from cluster_exp.policies.options import SWITCH, choice
from cluster_exp.policies.pairing import WIDTH
from cluster_exp.policies.parts import BY_ATTAINED_SERVICE, JobOrder, as_left, has_to_be_alone, may_share


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

NO_GROUPS = Groups(np.empty(0, np.int64), np.empty((0, WIDTH), np.int64), np.empty(0, np.int64))


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
        table = self._table(snapshot)
        buckets = _candidates(snapshot, table, order, self.group_size)
        demand = sum(num_gpu * jobs.kind.size for num_gpu, jobs in buckets.items())
        excess = demand - snapshot.cluster.num_gpu
        if buckets:
            buckets, alone = _apart(snapshot, buckets)
            shared = self.grouping(table, snapshot.profile_class, buckets, excess, self.group_size)
            groups = joined([*shared, *alone])
            if self.unpack and excess > 0:
                groups = _unpacked(snapshot, table, groups, table.slower_than_alone)
            elif snapshot.memory is not None:
                groups = _unpacked(snapshot, table, groups, lambda kind: table.gamma(kind) < WORTHLESS)
            groups = groups[_fitting(snapshot, order, groups)]
        else:
            groups = NO_GROUPS
        left = order[np.argsort(-snapshot.num_gpu[order], kind="stable")]
        return Plan(
            _planned(table, groups),
            reason=f"demand={demand} gpus={snapshot.cluster.num_gpu}",
            memory={"order": snapshot.seq[left].tolist()},
        )

    def _table(self, snapshot: Snapshot) -> GroupTable:
        if not (self._tables and self._tables[0].learn(snapshot.speed, snapshot.profiles)):
            self._tables[:] = [GroupTable(snapshot.speed, self.turns, snapshot.profiles)]
        return self._tables[0]


def _candidates(snapshot: Snapshot, table: GroupTable, order: IntColumn, group_size: int) -> dict[int, Groups]:
    """Per GPU count, in order of first appearance, the jobs that could run if all shared in full groups.

    Of each GPU count the first job, and every `group_size`-th after it, asks for room, in `order`. It does so for
    those behind it, too.
    """
    sizes = snapshot.num_gpu[order]
    by_size = np.argsort(sizes, kind="stable")
    ascending = sizes[by_size]
    begins = np.flatnonzero(np.append(True, ascending[1:] != ascending[:-1])) if order.size else by_size
    counts = np.diff(np.append(begins, order.size))
    rank = np.arange(order.size) - np.repeat(begins, counts)
    asks = np.zeros(order.size, dtype=bool)
    asks[by_size] = rank % group_size == 0
    room = np.zeros(order.size, dtype=bool)
    room[asks] = snapshot.trial().take_many(sizes[asks])
    in_block = np.arange(order.size) - rank % group_size  # where, in `by_size`, the job is that asked for this one
    taken = room[by_size][in_block]
    homes = _numbered(snapshot.group[order])
    buckets = {}
    for bucket in np.argsort(by_size[begins], kind="stable").tolist():
        rows = np.arange(begins[bucket], begins[bucket] + counts[bucket])
        chosen = by_size[rows[taken[rows]]]
        if chosen.size:
            buckets[int(ascending[begins[bucket]])] = _singles(snapshot, table, order[chosen], homes[chosen])
    return buckets


def _apart(snapshot: Snapshot, buckets: dict[int, Groups]) -> tuple[dict[int, Groups], list[Groups]]:
    """The jobs that may share, per GPU count, and groups of those that have to be alone."""
    if not snapshot.guessed[snapshot.jobs].any():
        return buckets, []
    shared, alone = {}, []
    for num_gpu, jobs in buckets.items():
        slots = jobs.members[:, 0]
        alone.append(jobs[has_to_be_alone(snapshot, slots)])
        rest = jobs[may_share(snapshot, slots)]
        if rest.kind.size:
            shared[num_gpu] = rest
    return shared, alone


def _numbered(group: IntColumn) -> IntColumn:
    """Small numbers instead of group ids; -1 stays -1."""
    ids, number = np.unique(group, return_inverse=True)
    numbered: IntColumn = number - np.count_nonzero(ids < 0)
    return numbered


def _singles(snapshot: Snapshot, table: GroupTable, slots: IntColumn, home: IntColumn) -> Groups:
    members = np.full((slots.size, WIDTH), -1, np.int64)
    members[:, 0] = slots
    return Groups(table.singles(snapshot.profile_class[slots]), members, home)


def _unpacked(snapshot: Snapshot, table: GroupTable, groups: Groups, too_slow: Callable[[int], bool]) -> Groups:
    """The groups, and instead of those of a kind that is too slow, their members one by one."""
    kinds, local, _ = present_kinds(groups.kind)
    slow = np.array([len(table.kinds[kind]) > 1 and too_slow(kind) for kind in kinds.tolist()])[local]
    if not slow.any():
        return groups
    parts = np.where(slow, groups.size, 1)
    group = np.repeat(np.arange(parts.size), parts)  # by part: the group that it comes from
    number = np.arange(group.size) - np.repeat(np.cumsum(parts) - parts, parts)
    whole = groups[group]
    split = slow[group]
    alone = _singles(snapshot, table, whole.members[split, number[split]], np.full(int(split.sum()), -1, np.int64))
    whole.kind[split], whole.members[split], whole.home[split] = alone.kind, alone.members, alone.home
    return whole


def _fitting(snapshot: Snapshot, order: IntColumn, groups: Groups) -> IntColumn:
    """Indices of the groups that fit, tried in the order of their best member, by GPU count, descending."""
    rank = np.full(snapshot.seq.size + 1, order.size, np.int64)  # the last one is that of nobody
    rank[order] = np.arange(order.size)
    tried = np.argsort(rank[groups.members].min(axis=1), kind="stable")
    num_gpu = snapshot.num_gpu[groups.members[tried, 0]]
    fits = snapshot.trial().take_many(num_gpu)
    return tried[fits][np.argsort(-num_gpu[fits], kind="stable")]


def _planned(table: GroupTable, groups: Groups) -> GroupRows:
    """The groups with their orders of turns and reasons."""
    present = groups.members >= 0
    start = np.zeros(groups.kind.size + 1, np.int64)
    np.cumsum(np.count_nonzero(present, axis=1), out=start[1:])
    kinds, local, _ = present_kinds(groups.kind)
    offsets = np.zeros((kinds.size, WIDTH), np.int64)
    for row, kind in enumerate(kinds.tolist()):
        turns = table.group_speed(kind).offsets
        offsets[row, : len(turns)] = turns
    numbers = groups.kind.tolist()

    columns = GroupColumns(groups.members[present], offsets[local][present], start)
    return GroupRows(columns, lambda group: table.described(numbers[group]))


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
