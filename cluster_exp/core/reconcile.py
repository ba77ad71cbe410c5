"""From a plan to what has to change: who gets which GPUs, and how that differs from what runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster_exp.core.groups import TargetGroup
from cluster_exp.core.placement import ClusterTrial, Layout, Placed, Placement, place
from cluster_exp.core.placer import PLACED, STAYS, WAITS
from cluster_exp.core.places import Nodes, Places
from cluster_exp.core.pool import Bytes
from cluster_exp.core.state import JobTable
from cluster_exp.domain.columns import BoolColumn, IntColumn
from cluster_exp.domain.job import JobStatus
from cluster_exp.domain.plan import GroupColumns, GroupPlan, Plan

_DIFFER = -2  # members of a group are at different places


@dataclass(frozen=True, slots=True)
class Difference:
    """What separates what runs from what a plan wants."""

    targets: list[TargetGroup]  # groups that get GPUs and do not already run just so, in the order of the plan
    moved: list[int]  # slots that leave for another place, in that order
    stopped: list[int]  # slots that leave and wait, by launch


def reconcile(
    plan: Plan, wanted: GroupColumns, jobs: JobTable, nodes: Nodes, places: Places, placement: Placement
) -> Difference:
    """Places the groups of a plan and compares them with what runs.

    Jobs that were already told to stop can neither stay nor be told again.

    Args:
        plan: the plan.
        wanted: its groups.
        jobs: the live jobs.
        nodes: what there is.
        places: where jobs run.
        placement: the strategy.
    """
    at = jobs.int_column("place")[wanted.jobs]
    if jobs.leaving:
        at[jobs.int_column("status")[wanted.jobs] == JobStatus.PREEMPTING] = -1
    single = wanted.single
    if single and _all_run(at, wanted, jobs, nodes, placement, plan):
        return Difference([], [], [])
    present = at if single else _present(wanted, at)
    num_gpu = jobs.int_column("num_gpu")[wanted.jobs[wanted.start[:-1]]]
    gpus = _place(plan, wanted, num_gpu, present, nodes, places, placement)
    if wanted.placed:
        gpus = _as_stated(plan, gpus, jobs)
    runs = gpus.state != WAITS
    same = _as_it_runs(wanted, at, present, jobs, single) & (gpus.state == STAYS)
    stays = np.zeros(jobs.int_column("status").size, dtype=bool)
    stays[wanted.jobs if runs.all() else wanted.jobs[runs if single else np.repeat(runs, wanted.size)]] = True
    holding = jobs.holding
    stopped = [slot for slot in holding[~stays[holding]].tolist() if slot not in jobs.leaving]
    targets = [gpus.target(plan.groups[i], i) for i in np.flatnonzero(runs & ~same).tolist()]
    return Difference(targets, _moved(targets, jobs), stopped)


def _all_run(
    at: IntColumn, wanted: GroupColumns, jobs: JobTable, nodes: Nodes, placement: Placement, plan: Plan
) -> bool:
    """Whether the plan is just what runs: who holds GPUs, each alone. Then everybody stays."""
    if plan.pinned or jobs.leaving or at.size != len(jobs.holders) or (at.size and at.min() < 0):
        return False
    if (jobs.int_column("mates")[wanted.jobs] != 1).any() or jobs.int_column("offset")[wanted.jobs].any():
        return False
    num_gpu = jobs.int_column("num_gpu")[wanted.jobs]
    return bool(ClusterTrial(nodes.layout.pool(), placement.admission).take_many(num_gpu).all())


def _moved(targets: Sequence[TargetGroup], jobs: JobTable) -> list[int]:
    moved = []
    for target in targets:
        for slot, allotment in zip(target.plan.jobs, target.allotments, strict=True):
            if slot not in jobs.holders or slot in jobs.leaving:
                continue
            present = jobs.live[slot].allotment
            if present is not allotment and present != allotment:
                moved.append(slot)
    return moved


def _present(wanted: GroupColumns, at: IntColumn) -> IntColumn:
    """The place of most of each group's members; of equals, the first member's; -1 = none of them is anywhere."""
    if not at.size:
        return at
    lowest = np.minimum.reduceat(at, wanted.start[:-1])
    present: IntColumn = np.where(lowest == np.maximum.reduceat(at, wanted.start[:-1]), lowest, _DIFFER)
    for group in np.flatnonzero(present == _DIFFER).tolist():
        votes: dict[int, int] = {}
        for place_number in at[wanted.start[group] : wanted.start[group + 1]].tolist():
            if place_number >= 0:
                votes[place_number] = votes.get(place_number, 0) + 1
        present[group] = max(votes, key=lambda number: votes[number])
    return present


def _as_it_runs(wanted: GroupColumns, at: IntColumn, present: IntColumn, jobs: JobTable, single: bool) -> BoolColumn:
    """Whether each group is one that runs, with the same members in the same order of turns."""
    slots, mates = wanted.jobs, jobs.int_column("mates")[wanted.jobs]
    in_order = jobs.int_column("offset")[slots] == wanted.offsets
    if single:
        alone: BoolColumn = in_order & (mates == 1)
        return alone
    size, first = wanted.size, wanted.start[:-1]
    group = jobs.int_column("group")[slots]
    in_order &= jobs.int_column("turn")[slots] == np.arange(slots.size) - np.repeat(first, size)
    in_order &= mates == np.repeat(size, size)
    in_order &= at == np.repeat(present, size)
    in_order &= group == np.repeat(group[first], size)
    together: BoolColumn = np.logical_and.reduceat(in_order, first)
    return together


@dataclass(frozen=True, slots=True)
class _Gpus:
    """The GPUs that the groups of a plan get."""

    state: Bytes  # by group: WAITS, STAYS or PLACED
    placed: Placed
    present: IntColumn  # place by group
    places: Places
    layout: Layout
    index: IntColumn | None = None  # by group, its number in `placed`; None = the same, no group states its own

    def target(self, group: GroupPlan, i: int) -> TargetGroup:
        """A group that does not wait, with its GPUs."""
        if group.allotments is not None:
            return TargetGroup(group, group.allotments)
        if self.state[i] == STAYS:
            allotment = self.places.allotment(int(self.present[i]))
        else:
            number = i if self.index is None else int(self.index[i])
            allotment = self.layout.allotment(self.placed.numbers(number))
        return TargetGroup(group, (allotment,) * len(group.jobs))


def _place(
    plan: Plan,
    wanted: GroupColumns,
    num_gpu: IntColumn,
    present: IntColumn,
    nodes: Nodes,
    places: Places,
    placement: Placement,
) -> _Gpus:
    """Places the groups that do not state their GPUs themselves."""
    layout, index = nodes.layout, None
    here = present
    if wanted.placed:
        left = np.array([group.allotments is None for group in plan.groups])
        num_gpu, here, index = num_gpu[left], present[left], np.cumsum(left) - 1
    placed = place(layout.pool(), num_gpu, here, places.on, places.size, placement, plan.misfit, plan.pinned)
    if index is None:
        return _Gpus(placed.state, placed, present, places, layout)
    state = np.full(present.size, PLACED, np.uint8)
    state[left] = placed.state
    return _Gpus(state, placed, present, places, layout, index)


def _as_stated(plan: Plan, gpus: _Gpus, jobs: JobTable) -> _Gpus:
    """Finds the groups that state just the GPUs that they have."""
    state = gpus.state.copy()
    for i, group in enumerate(plan.groups):
        if group.allotments is not None and all(
            slot in jobs.holders and slot not in jobs.leaving and jobs.live[slot].allotment == allotment
            for slot, allotment in zip(group.jobs, group.allotments, strict=True)
        ):
            state[i] = STAYS
    return replace(gpus, state=state)
