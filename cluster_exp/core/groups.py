"""Groups that run, and the target that a plan sets: reconcile compares the two."""

from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.plan import GroupPlan


@dataclass(slots=True)
class RunningGroup:
    """Jobs that share GPUs now."""

    group_id: int
    version: int
    members: dict[int, int]  # slot -> offset, in turn order


@dataclass(slots=True)
class TargetGroup:
    """A group that the plan in force wants, with its GPUs."""

    plan: GroupPlan
    allotments: tuple[Allotment, ...]  # one a job

    @property
    def members(self) -> dict[int, int]:
        """Slot -> offset, in turn order."""
        return dict(zip(self.plan.jobs, self.plan.offsets, strict=True))

    def uses(self, node: int) -> bool:
        """Whether some of its GPUs are on the node."""
        return any(share.node == node for allotment in self.allotments for share in allotment.shares)

    def needs_jobs(self, slots: Set[int]) -> bool:
        """Whether one of the jobs is a member."""
        return any(slot in slots for slot in self.plan.jobs)

    def needs_gpus(self, gpus: Set[tuple[int, int]]) -> bool:
        """Whether it is to get one of the (node, GPU) pairs."""
        return any(gpu in gpus for allotment in self.allotments for gpu in allotment.gpus)

    def without(self, slot: int) -> "TargetGroup | None":
        """The group after one job ended; None when no job is left."""
        rest = [i for i, job in enumerate(self.plan.jobs) if job != slot]
        if len(rest) == len(self.plan.jobs):
            return self
        if not rest:
            return None
        plan = replace(
            self.plan,
            jobs=tuple(self.plan.jobs[i] for i in rest),
            offsets=tuple(self.plan.offsets[i] for i in rest),
        )
        return TargetGroup(plan, tuple(self.allotments[i] for i in rest))


@dataclass(slots=True)
class Difference:
    """What separates the running jobs from a target."""

    kept: set[int] = field(default_factory=set)  # slots that stay where they are
    moved: list[int] = field(default_factory=list)  # slots that leave for another place
    stopped: list[int] = field(default_factory=list)  # slots that leave and wait
    started: list[int] = field(default_factory=list)  # slots that start


def compare(
    targets: Sequence[TargetGroup],
    running: Mapping[int, Allotment],
    leaving: Container[int],
) -> Difference:
    """Which jobs stay, move, stop and start.

    Args:
        targets: wanted groups.
        running: allotments of the jobs that hold GPUs, by slot.
        leaving: slots that were already told to stop: they can neither stay nor be told again.
    """
    difference = Difference()
    wanted: set[int] = set()
    for target in targets:
        for slot, allotment in zip(target.plan.jobs, target.allotments, strict=True):
            wanted.add(slot)
            if slot not in running:
                difference.started.append(slot)
            elif slot in leaving:
                continue
            elif running[slot] is allotment or running[slot] == allotment:
                difference.kept.add(slot)
            else:
                difference.moved.append(slot)
    difference.stopped = [slot for slot in running if slot not in wanted and slot not in leaving]
    return difference


def current_of(slots: Iterable[int], running: Mapping[int, Allotment], leaving: Container[int]) -> Allotment | None:
    """The place that most of a group's running members hold; of equals, the first member's."""
    first, *others = slots
    if not others:
        return None if first in leaving else running.get(first)
    votes: dict[Allotment, int] = {}
    for slot in (first, *others):
        if slot in running and slot not in leaving:
            votes[running[slot]] = votes.get(running[slot], 0) + 1
    return max(votes, key=lambda allotment: votes[allotment]) if votes else None
