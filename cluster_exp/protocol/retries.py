"""How often a job that fails is tried again, and after how long a wait. No I/O."""

from dataclasses import dataclass
from zlib import crc32

LONGEST_WAIT_S = 600.0  # wall time
JITTER = 0.1  # waits differ by so much, so that the jobs of a node that broke do not come back together


@dataclass(frozen=True, slots=True)
class Retry:
    """A job is to be started again."""

    words: str  # which retry it is
    wait_s: float  # wall time to wait before


class Retries:
    """Counts the failures of each job."""

    def __init__(self, limit: int, first_wait_s: float = 0.0) -> None:
        """Of no failures yet.

        Args:
            limit: failures of a job after which it is started once more; the next one is its last.
            first_wait_s: wall time before the first retry; each further one waits twice as long as the one before.
        """
        self._limit = limit
        self._first_wait_s = first_wait_s
        self._failures: dict[str, int] = {}

    def failed(self, job_id: str) -> Retry | None:
        """Which retry comes next, or None when there is none."""
        failures = self._failures.get(job_id, 0) + 1
        if failures > self._limit:
            self.forget(job_id)
            return None
        self._failures[job_id] = failures
        return Retry(f"retry {failures} of {self._limit}", self._wait_s(job_id, failures))

    def _wait_s(self, job_id: str, failures: int) -> float:
        wait_s = min(LONGEST_WAIT_S, self._first_wait_s * 2.0 ** min(failures - 1, 60))
        share = crc32(f"{job_id} {failures}".encode()) / 2**32  # in [0, 1), the same in every life of the master
        return wait_s * (1.0 + JITTER * (2.0 * share - 1.0))

    def last_words(self, reason: str) -> str:
        """Why a job failed for good."""
        return f"{reason} (after {self._limit} retries)" if self._limit else reason

    def forget(self, job_id: str) -> None:
        """Drops what is known of a job."""
        self._failures.pop(job_id, None)
