"""Rates: members of a group that do not advance in lockstep."""

from collections.abc import Sequence

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
