"""Rates: members of a group that do not advance in lockstep."""

from collections.abc import Sequence

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import NUM_RESOURCES


def raise_rates(
    profiles: Sequence[StageProfile], start: float, capacity: float, order: Sequence[int]
) -> tuple[float, ...]:
    """Iterations per second of each member, raised from a common start while every resource has room.

    Feasible rates x keep sum over members of x t(r) within `capacity` for each resource r and x within a member's
    speed alone; the members are raised one after another in `order`, each as far as it goes.

    Args:
        profiles: the members.
        start: iterations per second at which all begin (a lockstep cycle's 1 / T).
        capacity: share of each resource that turns can use, 1 less contention.
        order: indices of the members, the one to be raised first in front.
    """
    rates = [min(start, 1.0 / profile.iteration_s) for profile in profiles]
    used = [
        sum(rate * profile.stages[r] for rate, profile in zip(rates, profiles, strict=True))
        for r in range(NUM_RESOURCES)
    ]
    for member in order:
        stages = profiles[member].stages
        room = 1.0 / profiles[member].iteration_s - rates[member]
        for r in range(NUM_RESOURCES):
            if stages[r] > 0:
                room = min(room, (capacity - used[r]) / stages[r])
        if room > 0:
            rates[member] += room
            for r in range(NUM_RESOURCES):
                used[r] += room * stages[r]
    return tuple(rates)


def raise_many(
    stages: FloatColumn, iteration_s: FloatColumn, start: FloatColumn, capacity: float, order: IntColumn
) -> FloatColumn:
    """The same for many groups of as many members: iterations per second, groups x members.

    Args:
        stages: stage times in seconds, groups x members x 4.
        iteration_s: seconds per iteration alone, groups x members.
        start: iterations per second at which a group's members begin, by group.
        capacity: share of each resource that turns can use.
        order: members in the order in which they are raised, groups x members.
    """
    rates: FloatColumn = np.minimum(start[:, np.newaxis], 1.0 / iteration_s)
    used = np.einsum("gm,gmr->gr", rates, stages)
    groups = np.arange(len(rates))
    for place in range(order.shape[1]):
        member = order[:, place]
        times = stages[groups, member]
        with np.errstate(divide="ignore", invalid="ignore"):
            by_resource = np.where(times > 0, (capacity - used) / times, np.inf)
        room = np.minimum(1.0 / iteration_s[groups, member] - rates[groups, member], by_resource.min(axis=1))
        room = np.maximum(room, 0.0)
        rates[groups, member] += room
        used += room[:, np.newaxis] * times
    return rates
