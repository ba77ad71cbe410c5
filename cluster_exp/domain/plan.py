"""Plans: what a policy wants."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, overload

import numpy as np

from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.columns import IntColumn


class Misfit(Enum):
    """What happens to the rest of a plan when a group of it does not fit."""

    SKIP = "skip"  # pass over it and try the next
    STOP = "stop"  # nothing behind it starts (head-of-line blocking)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Jobs that share the same GPUs."""

    jobs: tuple[int, ...]  # slots, in turn order: member i uses resource (s + offsets[i]) mod 4 in slot s
    offsets: tuple[int, ...] = (0,)  # one a job, distinct, each in 0..3
    reason: str = ""  # key=value words for the journal
    allotments: tuple[Allotment, ...] | None = None  # one a job when the policy itself places; else None


@dataclass(frozen=True, slots=True)
class GroupColumns:
    """The groups of a plan in columns. Group i has the members start[i] .. start[i + 1] - 1."""

    jobs: IntColumn  # slots, by member
    offsets: IntColumn  # by member
    start: IntColumn  # one more element than groups
    placed: bool = False  # whether a group states its allotments itself
    single: bool = False  # whether every group has just one member, with offset 0

    @property
    def size(self) -> IntColumn:
        """Members by group."""
        return np.diff(self.start)


@dataclass(frozen=True, slots=True, eq=False)
class GroupRows(Sequence[GroupPlan]):
    """Groups that are held in columns: what a plan of thousands of them is made of."""

    columns: GroupColumns
    reason: Callable[[int], str]  # of a group, asked for when it starts or changes

    def __len__(self) -> int:
        return self.columns.start.size - 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    @overload
    def __getitem__(self, index: int) -> GroupPlan: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[GroupPlan]: ...

    def __getitem__(self, index: int | slice) -> GroupPlan | Sequence[GroupPlan]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        group = range(len(self))[index]
        members = slice(self.columns.start[group], self.columns.start[group + 1])
        jobs, offsets = self.columns.jobs[members].tolist(), self.columns.offsets[members].tolist()
        return GroupPlan(tuple(jobs), tuple(offsets), self.reason(group))


def single_jobs(jobs: IntColumn, reason: Callable[[int], str]) -> GroupRows:
    """Groups of one job each."""
    columns = GroupColumns(jobs, np.zeros(jobs.size, np.int64), np.arange(jobs.size + 1), single=True)
    return GroupRows(columns, reason)


def columns_of(groups: Sequence[GroupPlan]) -> GroupColumns:
    """The groups in columns."""
    if isinstance(groups, GroupRows):
        return groups.columns
    start = np.zeros(len(groups) + 1, np.int64)
    np.cumsum([len(group.jobs) for group in groups], out=start[1:])
    return GroupColumns(
        np.array([slot for group in groups for slot in group.jobs], dtype=np.int64),
        np.array([offset for group in groups for offset in group.offsets], dtype=np.int64),
        start,
        any(group.allotments is not None for group in groups),
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """Groups in the order in which they get GPUs; a job that is in no group waits."""

    groups: Sequence[GroupPlan]
    misfit: Misfit = Misfit.SKIP
    pinned: bool = False  # running jobs keep their GPUs: the policy does not preempt
    reason: str = ""  # key=value words for the journal
    memory: Mapping[str, Any] = field(default_factory=dict)  # the policy's memory: JSON values only
    wake_s: float | None = None  # ask again at this time, even if nothing happens before
