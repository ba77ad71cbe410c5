"""Jobs that have to be retried and wait before that: no policy sees them meanwhile."""

import heapq
import math

from cluster_exp.core.state import JobTable
from cluster_exp.domain.actions import Action, Wake


class Backoff:
    """Which jobs wait until when, and when the driver has to wake the policy for it. Times are of the run."""

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs
        self._until_s: dict[int, float] = {}  # by slot
        self._heap: list[tuple[float, int]] = []  # also of those that came back or ended meanwhile
        self._wish_s = math.inf  # when the policy wants to plan by itself

    def wait(self, slot: int, now_s: float, wait_s: float) -> list[Action]:
        """Keeps a job that holds no GPUs from the policy for a while."""
        until_s = now_s + wait_s
        self._until_s[slot] = until_s
        heapq.heappush(self._heap, (until_s, slot))
        self._jobs.set_aside(slot)
        return self._wake(now_s)

    def over(self, slot: int) -> None:
        """A job ended, perhaps while it waited."""
        self._until_s.pop(slot, None)

    def release(self, now_s: float) -> None:
        """Shows the policy the jobs that have waited long enough."""
        while self._heap and self._heap[0][0] <= now_s:
            until_s, slot = heapq.heappop(self._heap)
            if self._until_s.get(slot) == until_s:
                del self._until_s[slot]
                self._jobs.bring_back(slot)

    def wish(self, now_s: float, wake_s: float | None) -> list[Action]:
        """What the driver is told after a plan: the policy's wish, or the end of a wait if that comes first."""
        self._wish_s = math.inf if wake_s is None else wake_s
        return self._wake(now_s)

    def _wake(self, now_s: float) -> list[Action]:
        while self._heap and self._until_s.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        wake_s = min(self._wish_s, self._heap[0][0]) if self._heap else self._wish_s
        return [Wake(now_s, wake_s)] if math.isfinite(wake_s) else []
