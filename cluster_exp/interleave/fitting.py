"""Groups whose memory does not fit: as slow as never."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.memory import MemoryRules
from cluster_exp.domain.models import GroupSpeed, Order, SpeedModel
from cluster_exp.domain.profile import StageProfile

NEVER = 1e9  # times as slow: no policy that weighs speeds forms such a group
WORTHLESS = 1e-6  # an efficiency below this is that of a group that cannot be


@dataclass(frozen=True)
class FittingSpeed:
    """A speed model in which groups that do not fit take `NEVER` times as long."""

    base: SpeedModel
    rules: MemoryRules

    def alone_s(self, profile: StageProfile) -> float:
        """Seconds per iteration of a job that has its GPUs to itself."""
        return self.base.alone_s(profile)

    def group(self, profiles: Sequence[StageProfile], order: Order = Order.BEST) -> GroupSpeed:
        """Speed in the best order of turns."""
        return self._judged(self.base.group(profiles, order), profiles)

    def cycles_s(
        self, profiles: Sequence[StageProfile], members: IntColumn, order: Order = Order.BEST
    ) -> FloatColumn:
        """Cycle times of many groups."""
        return self.base.cycles_s(profiles, members, order) * self._factors(profiles, members)

    def iterations_s(self, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
        """Seconds per iteration of each member of many groups."""
        return self.base.iterations_s(profiles, members) * self._factors(profiles, members)[:, np.newaxis]

    def evaluate(self, profiles: Sequence[StageProfile], offsets: Sequence[int]) -> GroupSpeed:
        """Speed in the given order."""
        return self._judged(self.base.evaluate(profiles, offsets), profiles)

    def _judged(self, speed: GroupSpeed, profiles: Sequence[StageProfile]) -> GroupSpeed:
        if self.rules.fit(profiles):
            return speed
        never = tuple(seconds * NEVER for seconds in speed.iteration_s)
        return replace(speed, cycle_s=speed.cycle_s * NEVER, iteration_s=never)

    def _factors(self, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
        if members.shape[1] < 2:
            return np.ones(len(members))
        memory_mib = np.array([profile.memory_mib for profile in profiles])[members].sum(axis=1)
        return np.where(memory_mib <= self.rules.gpu_mib, 1.0, NEVER)
