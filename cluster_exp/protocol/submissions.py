"""Submissions that were taken, so that a repeated one changes nothing. No I/O."""

from collections import OrderedDict
from collections.abc import Iterable

from cluster_exp.domain.job import JobSpec
from cluster_exp.protocol.refusal import RefusalKind, Refused

_REMEMBERED = 10_000


class Submissions:
    """The latest submissions by request id."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._remembered = remembered
        self._taken: OrderedDict[str, tuple[frozenset[str], float]] = OrderedDict()

    def known(self, request_id: str, jobs: tuple[JobSpec, ...]) -> float | None:
        """The simulated time at which this submission was taken, or None when it is new.

        Raises:
            Refused: TAKEN, when the same id came with other jobs.
        """
        if request_id not in self._taken:
            return None
        names, taken_s = self._taken[request_id]
        if names != {job.job_id for job in jobs}:
            raise Refused(RefusalKind.TAKEN, f"request {request_id} came before with other jobs")
        return taken_s

    def add(self, request_id: str, job_ids: Iterable[str], now_s: float) -> None:
        """Remembers a submission, and forgets the oldest when there are too many."""
        self._taken[request_id] = (frozenset(job_ids), now_s)
        if len(self._taken) > self._remembered:
            self._taken.popitem(last=False)
