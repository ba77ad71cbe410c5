"""How often things happen in a master, by the size of its cluster and by how long plans take. Reads no clock."""

import math

_MIN_REPORT_INTERVAL_S = 0.2
_MAX_REPORT_INTERVAL_S = 0.95  # a report is at most 1 s old
_BATCHES_PER_S = 1000  # that a master takes without trouble
_GATHER_S = 20e-6  # for each worker
_MIN_GATHER_S = 1e-3  # less is not worth a pause
_LEASE_CHECKS = 50  # looks at the leases within one of them
_SHORT_PLAN_S = 0.02  # CPU time of a plan that needs no rest after it
_REST_PER_PLAN = 3.0
_MAX_REST_S = 0.5


def report_interval_s(num_workers: int) -> float:
    """Wall seconds between a worker's batches of progress: the more workers, the longer, up to about a second."""
    return min(_MAX_REPORT_INTERVAL_S, max(_MIN_REPORT_INTERVAL_S, num_workers / _BATCHES_PER_S))


def gather_s(num_workers: int) -> float:
    """Wall seconds in which a call waits for others to be taken with it: none for few workers, 0.02 for 1,000."""
    wait_s = _GATHER_S * min(num_workers, _BATCHES_PER_S)
    return wait_s if wait_s >= _MIN_GATHER_S else 0.0


class LeaseChecks:
    """When to judge leases: not at every turn of the loop, and not when it was the master that did not listen."""

    def __init__(self, lease_s: float, longest_turn_s: float) -> None:
        """`longest_turn_s`: wall seconds that a turn of an idle loop lasts."""
        self._lease_s = lease_s
        self._held_up_s = max(lease_s / 2, 2 * longest_turn_s)
        self._listened_s = math.inf
        self._next_s = -math.inf

    def listened(self, now_s: float) -> None:
        """The loop took messages all the time up to now, in wall seconds of the caller's clock."""
        self._listened_s = now_s

    def due(self, now_s: float) -> bool:
        """Whether it is time, in wall seconds of the caller's clock.

        Workers get a whole lease to be heard after a time in which the loop stood still, as a suspended process does.
        """
        if now_s - self._listened_s > self._held_up_s:
            self._next_s = now_s + self._lease_s
        self._listened_s = now_s
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._lease_s / _LEASE_CHECKS
        return True


class PlanPace:
    """Leaves time for calls and orders after a plan that took long; meanwhile more events join the next plan."""

    def __init__(self) -> None:
        self._rested_s = -math.inf

    def planned(self, cpu_s: float, now_s: float) -> None:
        """Notes a plan that took `cpu_s` of CPU time and ended now, in wall seconds of the caller's clock."""
        self._rested_s = now_s + min(_MAX_REST_S, _REST_PER_PLAN * max(0.0, cpu_s - _SHORT_PLAN_S))

    def wait_s(self, now_s: float) -> float:
        """Wall seconds until the next plan may begin."""
        return max(0.0, self._rested_s - now_s)
