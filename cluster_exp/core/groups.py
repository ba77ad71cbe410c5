"""Groups that run, and the target that a plan sets: reconcile compares the two."""

from collections.abc import Set
from dataclasses import dataclass, replace

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
