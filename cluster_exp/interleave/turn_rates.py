"""What work-conserving turns give each member of a group: the discipline itself, run on paper.

Plain Python, compiled where there was a C compiler at installation (`turn_rates.pxd`).
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_RESOURCES = 4
_LEAST_ITERATIONS = 24  # of the slowest member
_WARM = 6  # of those, before rates are measured
_MOST_EVENTS = 6_000
_NEVER = 1e300
_RESTING = 4  # stage of a member that waits for the end of its idle time


class Turns:
    """A group under `Discipline.WORK_CONSERVING`, event by event (`protocol/turns.py`).

    A member goes through its stages one after another and holds each resource for the stage's time. A free resource
    goes to the next member, after its last holder in the group's order, that waits for it. A member begins its next
    iteration when it has done all stages, and not before the time that an iteration takes alone has passed.
    """

    def __init__(self) -> None:
        self.stage_s = np.zeros(4 * _RESOURCES)
        self.alone_s = np.zeros(4)
        self.size = 0
        self.at = np.zeros(4, np.int64)  # stage in which each member is, or for which it waits
        self.due_s = np.zeros(4)  # when its stage or rest ends; infinity = it waits
        self.order = np.zeros(4, np.int64)  # in which these ends were set
        self.set = 0
        self.begun_s = np.zeros(4)
        self.done = np.zeros(4, np.int64)
        self.first = np.zeros(4, np.int64)
        self.first_s = np.zeros(4)
        self.last_s = np.zeros(4)
        self.holder = np.zeros(_RESOURCES, np.int64)
        self.latest = np.zeros(_RESOURCES, np.int64)

    def run(self, rates: Floats) -> None:
        """Writes iterations per second of each member, once `stage_s`, `alone_s` and `size` are set."""
        size = self.size
        for member in range(size):
            self.at[member], self.due_s[member], self.begun_s[member] = 0, _NEVER, 0.0
            self.done[member] = self.first[member] = 0
            self.first_s[member] = self.last_s[member] = 0.0
        for resource in range(_RESOURCES):
            self.holder[resource], self.latest[resource] = -1, size - 1
        self._grant(0, 0.0)
        for _ in range(_MOST_EVENTS):
            member = self._next()
            if member < 0:
                break
            self._step(member)
            if self._slowest() >= _LEAST_ITERATIONS:
                break
        for member in range(size):
            seen, took_s = self.done[member] - self.first[member], self.last_s[member] - self.first_s[member]
            rates[member] = seen / took_s if seen > 0 and took_s > 0 else 0.0

    def _slowest(self) -> int:
        least = self.done[0]
        for member in range(1, self.size):
            if self.done[member] < least:
                least = self.done[member]
        return int(least)

    def _next(self) -> int:
        """The member whose stage or rest ends first; of equals, the one of which that was known first."""
        found = -1
        for member in range(self.size):
            if self.due_s[member] < _NEVER and (found < 0 or self._before(member, found)):
                found = member
        return found

    def _before(self, member: int, other: int) -> bool:
        if self.due_s[member] != self.due_s[other]:
            return bool(self.due_s[member] < self.due_s[other])
        return bool(self.order[member] < self.order[other])

    def _until(self, member: int, due_s: float) -> None:
        self.due_s[member] = due_s
        self.set += 1
        self.order[member] = self.set

    def _step(self, member: int) -> None:
        """A member's stage or rest ends."""
        now_s, stage = self.due_s[member], self.at[member]
        self.due_s[member] = _NEVER
        if stage == _RESTING:
            self.at[member] = 0
            self._grant(0, now_s)
            return
        self.holder[stage] = -1
        self.at[member] = stage + 1
        if stage + 1 < _RESOURCES:
            self._grant(stage + 1, now_s)
        else:
            self._end_iteration(member, now_s)
        self._grant(stage, now_s)

    def _end_iteration(self, member: int, now_s: float) -> None:
        ready_s = self.begun_s[member] + self.alone_s[member]
        if ready_s < now_s:
            ready_s = now_s
        self._until(member, ready_s)  # at `_RESTING`
        self.done[member] += 1
        self.last_s[member] = ready_s
        if self._slowest() < _WARM:
            self.first[member], self.first_s[member] = self.done[member], ready_s

    def _grant(self, resource: int, now_s: float) -> None:
        """Gives a free resource to the next member that waits for it."""
        if self.holder[resource] >= 0:
            return
        for step in range(1, self.size + 1):
            member = (self.latest[resource] + step) % self.size
            if self.at[member] == resource and self.due_s[member] == _NEVER:
                self.holder[resource] = self.latest[resource] = member
                self._until(member, now_s + self.stage_s[member * _RESOURCES + resource])
                if resource == 0:
                    self.begun_s[member] = now_s
                return


def turn_rates(stages: Floats, iteration_s: Floats) -> Floats:
    """Iterations per second of the members of many groups of as many members, groups x members.

    Args:
        stages: stage times in seconds, groups x members x 4.
        iteration_s: seconds per iteration alone, groups x members.
    """
    turns = Turns()
    groups, size = iteration_s.shape
    turns.size = size
    rates = np.zeros((groups, size))
    one = np.zeros(4)
    stage_s, alone_s = np.asarray(turns.stage_s), np.asarray(turns.alone_s)
    for group in range(groups):
        stage_s[: size * _RESOURCES] = stages[group].ravel()
        alone_s[:size] = iteration_s[group]
        turns.run(one)
        rates[group] = one[:size]
    return rates
