"""The running jobs of a simulation, in columns without gaps."""

import numpy as np

from cluster_exp.domain.job import JobSpec
from cluster_exp.sim.performance import RunningColumns

_FIRST_SIZE = 64


class RunningTable:
    """Jobs that hold GPUs; the last one takes the place of one that leaves."""

    def __init__(self) -> None:
        self.ids: list[str] = []  # parallel to the columns
        self._all_ids: tuple[str, ...] | None = None
        self._jobs: list[JobSpec] = []
        self._generations: list[int] = []
        self._index: dict[str, int] = {}
        self._remaining = np.zeros(_FIRST_SIZE)
        self._iteration_s = np.ones(_FIRST_SIZE)
        self._overhead_s = np.zeros(_FIRST_SIZE)

    @property
    def columns(self) -> RunningColumns:
        """Writable columns of the running jobs, in the order of `ids`."""
        n = len(self.ids)
        return RunningColumns(self._remaining[:n], self._iteration_s[:n], self._overhead_s[:n])

    @property
    def all_ids(self) -> tuple[str, ...]:
        """The ids as one object, which stays the same while nobody starts or leaves."""
        if self._all_ids is None:
            self._all_ids = tuple(self.ids)
        return self._all_ids

    def add(self, job: JobSpec, generation: int, remaining: float, overhead_s: float) -> None:
        """Adds a job that was launched; its speed is to be set before time passes."""
        self._all_ids = None
        i = len(self.ids)
        if i == self._remaining.size:
            self._grow()
        self.ids.append(job.job_id)
        self._jobs.append(job)
        self._generations.append(generation)
        self._index[job.job_id] = i
        self._remaining[i] = remaining
        self._iteration_s[i] = job.profile.iteration_s
        self._overhead_s[i] = overhead_s

    def remove(self, job_id: str) -> None:
        """Takes out a job that left its GPUs."""
        self._all_ids = None
        i = self._index.pop(job_id)
        last = len(self.ids) - 1
        for column in (self._remaining, self._iteration_s, self._overhead_s):
            column[i] = column[last]
        self.ids[i], self._jobs[i] = self.ids[last], self._jobs[last]
        self._generations[i] = self._generations[last]
        del self.ids[last], self._jobs[last], self._generations[last]
        if i != last:
            self._index[self.ids[i]] = i

    def job(self, job_id: str) -> JobSpec:
        """What the job's user asked for."""
        return self._jobs[self._index[job_id]]

    def generation(self, job_id: str) -> int:
        """Number of the job's launch; 0 when it does not run."""
        i = self._index.get(job_id)
        return 0 if i is None else self._generations[i]

    def remaining(self, job_id: str) -> float:
        """Iterations that the job has still to do."""
        return float(self._remaining[self._index[job_id]])

    def set_speed(self, job_id: str, iteration_s: float) -> None:
        """Sets the job's seconds per iteration."""
        self._iteration_s[self._index[job_id]] = iteration_s

    def set_overhead(self, job_id: str, overhead_s: float) -> None:
        """Sets the job's start cost in seconds."""
        self._overhead_s[self._index[job_id]] = overhead_s

    def _grow(self) -> None:
        size = self._remaining.size
        self._remaining = np.concatenate([self._remaining, np.zeros(size)])
        self._iteration_s = np.concatenate([self._iteration_s, np.ones(size)])
        self._overhead_s = np.concatenate([self._overhead_s, np.zeros(size)])
