"""Speed models: what a group's members can do, under lockstep or at rates of their own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.models import GroupSpeed, Order, SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.contention import CONTENTIONS, NO_CONTENTION, Contention
from cluster_exp.interleave.cycle import lockstep_cycle_s, lockstep_cycles_s, orders
from cluster_exp.interleave.turn_rates import turn_rates

_GroupKey = tuple[tuple[StageProfile, ...], Order]
_TurnsKey = tuple[tuple[StageProfile, ...], tuple[int, ...]]
_MOST_CYCLES = 65_536  # cycles that are kept


@dataclass
class LockstepSpeed:
    """Every member does one iteration a cycle (Muri, SIGCOMM'22, section 4.1)."""

    contention: Contention = NO_CONTENTION
    _known: dict[_GroupKey, GroupSpeed] = field(default_factory=dict, repr=False)
    _evaluated: dict[_TurnsKey, GroupSpeed] = field(default_factory=dict, repr=False)

    def alone_s(self, profile: StageProfile) -> float:
        """Seconds per iteration alone: the profile's own."""
        return profile.iteration_s

    def group(self, profiles: Sequence[StageProfile], order: Order = Order.BEST) -> GroupSpeed:
        """Speed in the best (or worst) of the distinct orders; of equals, the first."""
        key = (tuple(profiles), order)
        if key not in self._known:
            choose = min if order is Order.BEST else max
            offsets = choose(orders(len(profiles)), key=lambda offsets: lockstep_cycle_s(profiles, offsets))
            self._known[key] = self.evaluate(profiles, offsets)
        return self._known[key]

    def cycles_s(
        self, profiles: Sequence[StageProfile], members: IntColumn, order: Order = Order.BEST
    ) -> FloatColumn:
        """Cycle times of many groups."""
        stages = np.array([profile.stages for profile in profiles])[members]
        iteration_s = np.array([profile.iteration_s for profile in profiles])[members]
        if members.shape[1] == 1:
            alone_s: FloatColumn = iteration_s[:, 0]
            return alone_s
        return lockstep_cycles_s(stages, iteration_s, order) * self.contention.factor(members.shape[1])

    def iterations_s(self, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
        """Seconds per iteration of each member of many groups: their cycle times."""
        return in_lockstep(self.cycles_s(profiles, members), members)

    def evaluate(self, profiles: Sequence[StageProfile], offsets: Sequence[int]) -> GroupSpeed:
        """Speed in the given order."""
        if len(profiles) == 1:
            alone_s = profiles[0].iteration_s
            return GroupSpeed(alone_s, (offsets[0],), (alone_s,))
        key = tuple(profiles), tuple(offsets)
        if key not in self._evaluated:
            if len(self._evaluated) >= _MOST_CYCLES:
                self._evaluated.clear()
            cycle_s = lockstep_cycle_s(profiles, offsets) * self.contention.factor(len(profiles))
            self._evaluated[key] = GroupSpeed(cycle_s, key[1], (cycle_s,) * len(profiles))
        return self._evaluated[key]


@dataclass
class RatesSpeed:
    """Members advance at rates of their own, as work-conserving turns let them (`interleave/turn_rates.py`).

    Contention makes every iteration longer by the factor of the group's size.
    """

    contention: Contention = NO_CONTENTION
    _lockstep: LockstepSpeed = field(default_factory=LockstepSpeed, repr=False)
    _known: dict[tuple[StageProfile, ...], tuple[float, ...]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._lockstep = LockstepSpeed(self.contention)

    def alone_s(self, profile: StageProfile) -> float:
        """Seconds per iteration of a job that has its GPUs to itself: the profile's own."""
        return profile.iteration_s

    def group(self, profiles: Sequence[StageProfile], order: Order = Order.BEST) -> GroupSpeed:
        """Rates, with the offsets and the cycle of the best (or worst) of the distinct lockstep orders."""
        return self.evaluate(profiles, self._lockstep.group(profiles, order).offsets)

    def cycles_s(
        self, profiles: Sequence[StageProfile], members: IntColumn, order: Order = Order.BEST
    ) -> FloatColumn:
        """Lockstep cycle times of many groups."""
        return self._lockstep.cycles_s(profiles, members, order)

    def iterations_s(self, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
        """Seconds per iteration of each member of many groups."""
        stages = np.array([profile.stages for profile in profiles])[members]
        iteration_s = np.array([profile.iteration_s for profile in profiles])[members]
        size = members.shape[1]
        return iteration_s if size == 1 else self.contention.factor(size) / turn_rates(stages, iteration_s)

    def evaluate(self, profiles: Sequence[StageProfile], offsets: Sequence[int]) -> GroupSpeed:
        """Rates; turns that are taken as they are free have no order that would matter."""
        lockstep = self._lockstep.evaluate(profiles, offsets)
        if len(profiles) == 1:
            return lockstep
        key = tuple(profiles)
        if key not in self._known:
            if len(self._known) >= _MOST_CYCLES:
                self._known.clear()
            found = self.iterations_s(profiles, np.arange(len(profiles))[np.newaxis])[0]
            self._known[key] = tuple(float(seconds) for seconds in found)
        return GroupSpeed(lockstep.cycle_s, lockstep.offsets, self._known[key])


def in_lockstep(cycles_s: FloatColumn, members: IntColumn) -> FloatColumn:
    """Cycle times of groups, once for each member."""
    return np.repeat(cycles_s[:, np.newaxis], members.shape[1], axis=1)


SPEED_MODELS: dict[str, Callable[[Contention], SpeedModel]] = {
    "lockstep": LockstepSpeed,
    "rates": RatesSpeed,
}


def make_speed(name: str, contention: str) -> SpeedModel:
    """A speed model by its name and that of its contention. Raises KeyError for a name that is none."""
    return SPEED_MODELS[name](CONTENTIONS[contention])
