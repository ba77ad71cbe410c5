"""Wanted groups that wait for jobs that were told to leave: each starts as soon as the last of them has left."""

from collections.abc import Iterator, Mapping, Sequence

from cluster_exp.core.groups import TargetGroup
from cluster_exp.domain.allotment import Allotment


class WaitingGroups:
    """Groups of the plan in force that have not started, and whom each waits for.

    A group waits for a leaving job that is to be a member of it, and for one that holds a GPU that it is to get.
    """

    def __init__(self) -> None:
        self._targets: dict[int, TargetGroup] = {}  # by place in the plan
        self._waits_for: dict[int, set[int]] = {}  # slots, by place in the plan
        self._awaited_by: dict[int, dict[int, None]] = {}  # places, by slot

    def reset(self, targets: Sequence[TargetGroup], leaving: Mapping[int, Allotment]) -> list[TargetGroup]:
        """Forgets all groups, takes those of a new plan, and returns the ones that wait for nobody.

        `leaving`: where the jobs are that were told to leave.
        """
        self._targets, self._waits_for, self._awaited_by = dict(enumerate(targets)), {}, {}
        if leaving:
            holders: dict[tuple[int, int], list[int]] = {}
            for slot, allotment in leaving.items():
                for share in allotment.shares:
                    for gpu in share.gpus:
                        holders.setdefault((share.node, gpu), []).append(slot)
            for place, target in self._targets.items():
                for slot in target.plan.jobs:
                    if slot in leaving:
                        self._wait(place, slot)
                for allotment in _distinct(target.allotments):
                    for share in allotment.shares:
                        for gpu in share.gpus:
                            for slot in holders.get((share.node, gpu), ()):
                                self._wait(place, slot)
        return [self._targets.pop(place) for place in list(self._targets) if place not in self._waits_for]

    def leaves(self, slot: int, allotment: Allotment) -> None:
        """A job is told to leave after the plan was made: who needs it or its GPUs waits for it, too."""
        gpus = set(allotment.gpus)
        for place, target in self._targets.items():
            if target.needs_jobs({slot}) or target.needs_gpus(gpus):
                self._wait(place, slot)

    def left(self, slot: int) -> list[TargetGroup]:
        """The groups that waited for this job last, in the order of the plan; they are forgotten."""
        ready = []
        for place in sorted(self._awaited_by.pop(slot, ())):
            self._waits_for[place].discard(slot)
            if not self._waits_for[place] and place in self._targets:
                ready.append(self._targets.pop(place))
        return ready

    def drop_job(self, slot: int) -> None:
        """A job ended: no group gets it any more."""
        for place, target in list(self._targets.items()):
            rest = target.without(slot)
            if rest is None:
                del self._targets[place]
            elif rest is not target:
                self._targets[place] = rest

    def drop_node(self, node: int) -> None:
        """A node is gone, and with it the groups that were to run there."""
        for place in [place for place, target in self._targets.items() if target.uses(node)]:
            del self._targets[place]

    def _wait(self, place: int, slot: int) -> None:
        self._waits_for.setdefault(place, set()).add(slot)
        self._awaited_by.setdefault(slot, {})[place] = None


def _distinct(allotments: Sequence[Allotment]) -> Iterator[Allotment]:
    """Each allotment once, as far as neighbours are the same."""
    last = None
    for allotment in allotments:
        if allotment is not last:
            yield allotment
        last = allotment
