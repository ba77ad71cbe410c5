"""How often things happen in a master, by the size of its cluster and by how long plans take. Reads no clock."""

import math

_MIN_REPORT_INTERVAL_S = 0.2
_MAX_REPORT_INTERVAL_S = 0.95  # a report is at most 1 s old
_BATCHES_PER_S = 1000  # that a master takes without trouble
_GATHER_S = 20e-6  # for each worker
_MIN_GATHER_S = 1e-3  # less is not worth a pause
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
