"""Plans: what a policy wants."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from cluster_exp.domain.allotment import Allotment


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
class Plan:
    """Groups in the order in which they get GPUs; a job that is in no group waits."""

    groups: tuple[GroupPlan, ...]
    misfit: Misfit = Misfit.SKIP
    pinned: bool = False  # running jobs keep their GPUs: the policy does not preempt
    reason: str = ""  # key=value words for the journal
    memory: Mapping[str, Any] = field(default_factory=dict)  # the policy's memory: JSON values only
    wake_s: float | None = None  # ask again at this time, even if nothing happens before
