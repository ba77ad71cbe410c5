"""Speed models in which it matters who shares: turns, and beyond them what members do to one another."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.models import GroupSpeed, Order, SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.interference import Effects


class Slowdowns(Protocol):
    """By how much members of groups are slower than turns alone would have it."""

    def of(self, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
        """Factors of at least 1, groups x members; `members` are indices into `profiles`."""
        ...


@dataclass
class PairwiseSpeed:
    """A speed model without contention, and slow-downs by who shares.

    In lockstep all wait for the slowest, so the largest factor of a group counts for all.
    """

    turns: SpeedModel  # without contention
    slowdowns: Slowdowns
    lockstep: bool
    _known: dict[tuple[tuple[StageProfile, ...], tuple[int, ...]], GroupSpeed] = field(
        default_factory=dict, repr=False
    )

    def alone_s(self, profile: StageProfile) -> float:
        """Seconds per iteration of a job that has its GPUs to itself."""
        return self.turns.alone_s(profile)

    def group(self, profiles: Sequence[StageProfile], order: Order = Order.BEST) -> GroupSpeed:
        """Speed in the best order of turns."""
        return self.evaluate(profiles, self.turns.group(profiles, order).offsets)

    def cycles_s(
        self, profiles: Sequence[StageProfile], members: IntColumn, order: Order = Order.BEST
    ) -> FloatColumn:
        """Cycle times of many groups."""
        factors: FloatColumn = self.slowdowns.of(profiles, members).max(axis=1)
        return self.turns.cycles_s(profiles, members, order) * factors

    def iterations_s(self, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
        """Seconds per iteration of each member of many groups."""
        factors = self.slowdowns.of(profiles, members)
        if self.lockstep:
            factors = np.repeat(factors.max(axis=1)[:, np.newaxis], members.shape[1], axis=1)
        return self.turns.iterations_s(profiles, members) * factors

    def evaluate(self, profiles: Sequence[StageProfile], offsets: Sequence[int]) -> GroupSpeed:
        """Speed in the given order."""
        key = tuple(profiles), tuple(offsets)
        if key not in self._known:
            speed = self.turns.evaluate(profiles, offsets)
            factors = self.slowdowns.of(profiles, np.arange(len(profiles))[np.newaxis])[0]
            most = float(factors.max())
            own = [most if self.lockstep else float(factor) for factor in factors]
            iteration_s = tuple(seconds * factor for seconds, factor in zip(speed.iteration_s, own, strict=True))
            self._known[key] = GroupSpeed(speed.cycle_s * most, speed.offsets, iteration_s)
        return self._known[key]


@dataclass(frozen=True)
class Learnt:
    """What was learnt so far."""

    effects: Effects
    kinds: dict[StageProfile, int]  # as the effects number them

    def of(self, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
        """The expected factors; the prior's for profiles that were never seen."""
        kinds = np.array([self.kinds.get(profile, -1) for profile in profiles], dtype=np.int64)
        return self.effects.slowdowns(kinds[members])


@dataclass(frozen=True)
class Drawn:
    """Interference of an imagined cluster: who presses whom is drawn from the profiles and a seed.

    A member is slowed by 5 % for each partner, by up to 90 % more as it is sensitive and the partner presses, and by
    up to 20 % more for the pair.
    """

    seed: int
    _drawn: dict[tuple[StageProfile, ...], float] = field(default_factory=dict, repr=False, compare=False)

    def of(self, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
        """One plus what each partner adds."""
        count = len(profiles)
        added: NDArray[np.float64] = np.empty((count, count))
        for i, one in enumerate(profiles):
            for j, other in enumerate(profiles):
                product = self._number("sensitive", one) * self._number("presses", other)
                added[i, j] = 0.05 + 0.9 * product + 0.2 * self._number("pair", one, other)
        factors = np.ones(members.shape)
        for i in range(members.shape[1]):
            for j in range(members.shape[1]):
                if i != j:
                    factors[:, i] += added[members[:, i], members[:, j]]
        return factors

    def _number(self, what: str, *profiles: StageProfile) -> float:
        """A number in 0..1 that depends on nothing but the seed, the profiles and what it is for."""
        key = (*profiles, StageProfile(float(len(what)), 0.0, 0.0, 0.0, 0.0))
        if key not in self._drawn:
            text = f"{self.seed} {what} {profiles!r}".encode()
            self._drawn[key] = int.from_bytes(hashlib.sha256(text).digest()[:8], "big") / 2**64
        return self._drawn[key]
