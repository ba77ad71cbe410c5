"""How often a job that fails is tried again. No I/O."""


class Retries:
    """Counts the failures of each job."""

    def __init__(self, limit: int) -> None:
        """`limit`: failures of a job after which it is started once more; the next one is its last."""
        self._limit = limit
        self._failures: dict[str, int] = {}

    def failed(self, job_id: str) -> str | None:
        """Which retry comes next, in words, or None when there is none."""
        failures = self._failures.get(job_id, 0) + 1
        if failures > self._limit:
            self.forget(job_id)
            return None
        self._failures[job_id] = failures
        return f"retry {failures} of {self._limit}"

    def last_words(self, reason: str) -> str:
        """Why a job failed for good."""
        return f"{reason} (after {self._limit} retries)" if self._limit else reason

    def forget(self, job_id: str) -> None:
        """Drops what is known of a job."""
        self._failures.pop(job_id, None)
