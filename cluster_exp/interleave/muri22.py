"""Speed model of the simulator published with Muri (SIGCOMM'22): three stages, a pipeline, contention factors.

A profile's storage and CPU times count as one stage, so that there are three: load, compute, exchange. Members of a
group start one after another; the position in which a member starts is its offset's negative, modulo 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.models import GroupSpeed, Order
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import MAX_GROUP_SIZE, NUM_RESOURCES
from cluster_exp.interleave.contention import MURI22_CONTENTION, Contention
from cluster_exp.interleave.speed import in_lockstep

ITERATION_FACTOR = 1.015  # an iteration takes this much longer than the trace says
_STEPS = 2 * NUM_RESOURCES
_AT_ONCE = 20_000  # groups whose cycles are computed in one go
_STEADY = 1e-3  # two periods that differ relatively by less are one
_OPPOSITE = (0, 2)  # the order of two in which one loads while the other computes and exchanges

Times = NDArray[np.float64]  # seconds; orders x positions x (load, compute, exchange)
_GroupKey = tuple[tuple[StageProfile, ...], Order]


@lru_cache(maxsize=MAX_GROUP_SIZE)
def _starting_orders(size: int) -> tuple[tuple[int, ...], ...]:
    """Every order in which `size` members can start, as members by position."""
    return tuple(permutations(range(size)))


def _offsets(starting: Sequence[int]) -> tuple[int, ...]:
    """Offsets by member, of members by position."""
    position = {member: place for place, member in enumerate(starting)}
    return tuple(-position[member] % NUM_RESOURCES for member in range(len(starting)))


def _stage_times(profiles: Sequence[StageProfile]) -> Times:
    return np.array([(p.storage_s + p.cpu_s, p.gpu_s, p.network_s) for p in profiles])


def pipeline_periods_s(times: Times) -> NDArray[np.float64]:
    """Seconds per period of a pipeline, one for each order, as the published simulator steps through it.

    Eight steps are taken. The period is how far a step lies behind the one four steps earlier, as soon as that
    differs relatively by at most 1e-3 from the step before; if it never does, what the last step gives.

    Args:
        times: stage times in seconds, orders x positions x (load, compute, exchange).
    """
    load, compute, exchange = times[:, :, 0], times[:, :, 1], times[:, :, 2]
    size = times.shape[1]
    ends = np.zeros((_STEPS + 1, times.shape[0]))
    period = np.full(times.shape[0], np.nan)
    for i in range(_STEPS):
        exchanging, computing, loading = ((i + ahead) % NUM_RESOURCES for ahead in (1, 2, 3))
        if exchanging < size:
            np.maximum(ends[i + 1], ends[i] + exchange[:, exchanging], out=ends[i + 1])
        if computing < size:
            np.maximum(ends[i + 1], ends[i] + compute[:, computing], out=ends[i + 1])
        if i > 0 and loading < size:
            np.maximum(ends[i + 1], ends[i - 1] + load[:, loading], out=ends[i + 1])
        if i >= NUM_RESOURCES:
            now, before = ends[i + 1] - ends[i - 3], ends[i] - ends[i - 4]
            steady = np.abs(now - before) <= _STEADY * np.abs(before)
            period = np.where(np.isnan(period) & steady, now, period)
    return np.where(np.isnan(period), ends[_STEPS] - ends[_STEPS - NUM_RESOURCES], period)


def _opposite_s(first: StageProfile, second: StageProfile) -> float:
    """Period of two members of which one loads while the other computes and exchanges."""
    first_load_s, second_load_s = first.storage_s + first.cpu_s, second.storage_s + second.cpu_s
    return max(first_load_s, second.gpu_s + second.network_s) + max(second_load_s, first.gpu_s + first.network_s)


@dataclass
class Muri22Speed:
    """Every member does one iteration a period; the period is that of the published simulator."""

    contention: Contention = MURI22_CONTENTION
    floored: bool = False  # whether no period is shorter than a member's own iteration; not so as published
    _known: dict[_GroupKey, GroupSpeed] = field(default_factory=dict, repr=False)
    _evaluated: dict[tuple[tuple[StageProfile, ...], tuple[int, ...]], GroupSpeed] = field(
        default_factory=dict, repr=False
    )

    def alone_s(self, profile: StageProfile) -> float:
        """Seconds per iteration alone: 1.015 times the profile's.

        It is computed from milliseconds, as published: jobs of different models tie, or do not, by the last bit.
        """
        return round(profile.iteration_s * 1000, 6) * ITERATION_FACTOR / 1000

    def group(self, profiles: Sequence[StageProfile], order: Order = Order.BEST) -> GroupSpeed:
        """Speed in the best (or worst) of all orders; of equals, the first."""
        key = (tuple(profiles), order)
        if key not in self._known:
            self._known[key] = self._chosen(profiles, order)
        return self._known[key]

    def _chosen(self, profiles: Sequence[StageProfile], order: Order) -> GroupSpeed:
        if len(profiles) == 1:
            return self.evaluate(profiles, (0,))
        starting = _starting_orders(len(profiles))
        periods_s = pipeline_periods_s(_stage_times(profiles)[np.array(starting)])
        best = int(periods_s.argmin() if order is Order.BEST else periods_s.argmax())
        period_s, offsets = float(periods_s[best]), _offsets(starting[best])
        if len(profiles) == 2:
            opposite_s = _opposite_s(*profiles)
            if (opposite_s < period_s) if order is Order.BEST else (opposite_s > period_s):
                period_s, offsets = opposite_s, _OPPOSITE
        return self._speed(profiles, period_s, offsets)

    def cycles_s(
        self, profiles: Sequence[StageProfile], members: IntColumn, order: Order = Order.BEST
    ) -> FloatColumn:
        """Cycle times of many groups."""
        size = members.shape[1]
        if size == 1:
            return np.array([self.alone_s(profile) for profile in profiles])[members[:, 0]]
        times = _stage_times(profiles)
        starting = np.array(_starting_orders(size))
        pick, combine = (np.min, np.minimum) if order is Order.BEST else (np.max, np.maximum)
        found = np.empty(members.shape[0])
        for begin in range(0, found.size, _AT_ONCE):
            part = members[begin : begin + _AT_ONCE]
            rows = times[part][:, starting].reshape(-1, size, times.shape[1])
            found[begin : begin + _AT_ONCE] = pick(pipeline_periods_s(rows).reshape(len(part), -1), axis=1)
        if size == 2:
            load, rest = times[:, 0], times[:, 1] + times[:, 2]
            one, other = members[:, 0], members[:, 1]
            found = combine(found, np.maximum(load[one], rest[other]) + np.maximum(load[other], rest[one]))
        if self.floored:
            alone_s = np.array([self.alone_s(profile) for profile in profiles])
            found = np.maximum(found, alone_s[members].max(axis=1))
        return found * self.contention.factor(size)

    def iterations_s(self, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
        """Seconds per iteration of each member of many groups: their cycle times."""
        return in_lockstep(self.cycles_s(profiles, members), members)

    def evaluate(self, profiles: Sequence[StageProfile], offsets: Sequence[int]) -> GroupSpeed:
        """Speed in the given order; two members whose offsets lie two apart load opposite to each other."""
        if len(profiles) == 1:
            alone_s = self.alone_s(profiles[0])
            return GroupSpeed(alone_s, (offsets[0],), (alone_s,))
        key = (tuple(profiles), tuple(offsets))
        if key not in self._evaluated:
            self._evaluated[key] = self._evaluate(profiles, offsets)
        return self._evaluated[key]

    def _evaluate(self, profiles: Sequence[StageProfile], offsets: Sequence[int]) -> GroupSpeed:
        if len(profiles) == 2 and abs(offsets[0] - offsets[1]) == 2:
            return self._speed(profiles, _opposite_s(*profiles), offsets)
        starting = sorted(range(len(profiles)), key=lambda member: -offsets[member] % NUM_RESOURCES)
        period_s = float(pipeline_periods_s(_stage_times([profiles[i] for i in starting])[np.newaxis])[0])
        return self._speed(profiles, period_s, offsets)

    def _speed(self, profiles: Sequence[StageProfile], period_s: float, offsets: Sequence[int]) -> GroupSpeed:
        if self.floored:
            period_s = max(period_s, *(self.alone_s(profile) for profile in profiles))
        cycle_s = period_s * self.contention.factor(len(offsets))
        return GroupSpeed(cycle_s, tuple(offsets), (cycle_s,) * len(offsets))
