"""Protocols between the layers: how fast groups run, and where jobs fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from cluster_exp.domain.columns import BoolColumn, FloatColumn, IntColumn
from cluster_exp.domain.profile import StageProfile


@dataclass(frozen=True, slots=True)
class GroupSpeed:
    """How fast the members of a group run."""

    cycle_s: float  # one period of the group, in seconds, contention included
    offsets: tuple[int, ...]  # one a member: the order of turns that was assumed
    iteration_s: tuple[float, ...]  # one a member: seconds per iteration in the group


class Order(Enum):
    """Which order of turns a group takes."""

    BEST = "best"
    WORST = "worst"  # an ablation


class SpeedModel(Protocol):
    """Predicts the speed of groups. Pure: the same arguments give the same answer."""

    def alone_s(self, profile: StageProfile) -> float:
        """Seconds per iteration of a job that has its GPUs to itself."""
        ...

    def group(self, profiles: Sequence[StageProfile], order: Order = Order.BEST) -> GroupSpeed:
        """Speed of 1 to 4 jobs on the same GPUs, in the best order of turns; ties: the first order."""
        ...

    def cycles_s(
        self, profiles: Sequence[StageProfile], members: IntColumn, order: Order = Order.BEST
    ) -> FloatColumn:
        """`group(...).cycle_s` of many groups of as many members: groups x members, indices into `profiles`."""
        ...

    def iterations_s(self, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
        """`group(...).iteration_s` of many groups of as many members: groups x members, like `members`."""
        ...

    def evaluate(self, profiles: Sequence[StageProfile], offsets: Sequence[int]) -> GroupSpeed:
        """Speed of 1 to 4 jobs that take turns in the given order."""
        ...


class Trial(Protocol):
    """An imagined, at first empty, cluster into which a policy places jobs to see what fits."""

    @property
    def free_gpus(self) -> int:
        """GPUs not taken yet."""
        ...

    def take(self, num_gpu: int) -> bool:
        """Places a group that needs `num_gpu` GPUs and returns True, or returns False and changes nothing."""
        ...

    def take_many(self, num_gpu: IntColumn) -> BoolColumn:
        """The same for groups one after another: which of them find room. Those that find none are passed over."""
        ...
