"""When the master has something to do by itself: arrivals of a trace, rounds, a policy's wish."""

import math
from collections import deque
from collections.abc import Iterable

from cluster_exp.domain.job import JobSpec


class Timetable:
    """Due times in simulated seconds. Knows no clock."""

    def __init__(self, jobs: Iterable[JobSpec], interval_s: float) -> None:
        """Jobs arrive at their `submit_s`; with an interval above 0 a round begins every `interval_s`."""
        self._jobs = deque(sorted(jobs, key=lambda job: job.submit_s))
        self._interval_s = interval_s
        self._next_round_s = 0.0 if interval_s > 0 else math.inf
        self._wake_s = math.inf

    @property
    def exhausted(self) -> bool:
        """Whether all jobs of the trace have arrived."""
        return not self._jobs

    @property
    def to_come(self) -> Iterable[JobSpec]:
        """Jobs that have not arrived, by submit time."""
        return iter(self._jobs)

    def arrivals(self, now_s: float) -> list[JobSpec]:
        """Takes the jobs that are due, by submit time."""
        due = []
        while self._jobs and self._jobs[0].submit_s <= now_s:
            due.append(self._jobs.popleft())
        return due

    def wake_at(self, at_s: float) -> None:
        """Notes the policy's wish to plan at a time; it replaces an earlier wish."""
        self._wake_s = at_s

    def plan_due(self, now_s: float, changed: bool) -> bool:
        """Whether it is time to plan; without rounds, whenever something changed. Takes what is due."""
        due = (changed and math.isinf(self._next_round_s)) or now_s >= self._wake_s
        if now_s >= self._wake_s:
            self._wake_s = math.inf
        if now_s >= self._next_round_s:
            self._next_round_s = (math.floor(now_s / self._interval_s) + 1) * self._interval_s
            due = True
        return due

    @property
    def next_arrival_s(self) -> float:
        """When the next job arrives; infinite when all have."""
        return self._jobs[0].submit_s if self._jobs else math.inf

    def next_plan_s(self, busy: bool) -> float:
        """When a plan is due next without anything happening; rounds count only while jobs are there."""
        return min(self._wake_s, self._next_round_s if busy else math.inf)
