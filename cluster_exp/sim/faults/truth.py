"""What really happened in a simulated cluster, and what must hold of what its master believes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster_exp.domain.actions import Action, Launch, RecordEnd
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.events import Event, JobPreempted, Measured
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.protocol.messages import LaunchOrder

LaunchKey = tuple[str, int]  # job id, generation


@dataclass(slots=True)
class Truth:
    """Jobs that were acknowledged, launches that ran, checkpoints that lie in the shared folder."""

    retries: int
    acknowledged: dict[str, JobSpec] = field(default_factory=dict)
    ended: dict[str, JobStatus] = field(default_factory=dict)
    looping: frozenset[str] = frozenset()  # jobs whose trainers crash in every launch
    broken: dict[str, int] = field(default_factory=dict)  # by job: trainers that crashed, hung or were refused
    _retried: dict[str, int] = field(default_factory=dict)  # by job: retries that the master counted
    _started: set[tuple[LaunchKey, int, str]] = field(default_factory=set)  # with node and worker's instance
    _newest: dict[str, int] = field(default_factory=dict)  # by job: generation that may write checkpoints
    _complete: dict[LaunchKey, set[int]] = field(default_factory=dict)  # nodes whose part did all iterations
    _parts: dict[LaunchKey, frozenset[int]] = field(default_factory=dict)  # nodes of a launch
    _saved_by: dict[LaunchKey, dict[int, int]] = field(default_factory=dict)  # iterations, by node
    _saved: dict[str, int] = field(default_factory=dict)  # by job: iterations of a checkpoint that all parts have
    _measured: Counter[LaunchKey] = field(default_factory=Counter)  # iterations that were timed
    _believed: Counter[LaunchKey] = field(default_factory=Counter)  # iterations that count as timed
    _done: dict[str, int] = field(default_factory=dict)  # by job: the most iterations that a part did

    def acknowledge(self, jobs: Sequence[JobSpec]) -> None:
        """A user was told that these jobs are taken."""
        self.acknowledged.update((job.job_id, job) for job in jobs)

    def start(self, order: LaunchOrder, node: int, instance: str) -> int:
        """A worker starts its part of a launch; returns the iterations from which that goes on.

        Raises:
            InvariantError: the part runs already or ran, or the master counts on iterations that nobody has.
        """
        job, generation = order.job.job_id, order.generation
        what = (job, generation), node, instance
        if what in self._started:
            raise InvariantError(f"job {job} generation {generation} is started twice on node {node}")
        self._started.add(what)
        self._newest[job] = max(self._newest.get(job, 0), generation)
        has = self._saved.get(job, 0) if order.job.command else self._done.get(job, 0)
        if order.iterations_done > has:
            raise InvariantError(
                f"job {job} generation {generation} is to go on from {order.iterations_done} iterations, "
                f"{has} are there"
            )
        return has if order.job.command else order.iterations_done

    def did(self, order: LaunchOrder, node: int, iterations: int) -> None:
        """A part of a launch did so many iterations of the whole job."""
        job = order.job.job_id
        self._done[job] = max(self._done.get(job, 0), iterations)
        if iterations >= order.job.iterations:
            self._complete.setdefault((job, order.generation), set()).add(node)

    def save(self, order: LaunchOrder, node: int, iterations: int) -> None:
        """A part writes a checkpoint. One of a launch that is not the newest any more is fenced off."""
        job, generation = order.job.job_id, order.generation
        parts = self._saved_by.setdefault((job, generation), {})
        parts[node] = iterations
        if generation >= self._newest[job] and len(parts) == len(order.shares):
            self._saved[job] = max(self._saved.get(job, 0), min(parts.values()))

    def measure(self, order: LaunchOrder, iterations: int) -> None:
        """A trainer timed so many more iterations."""
        self._measured[(order.job.job_id, order.generation)] += iterations

    def believe(self, event: Event, actions: Sequence[Action]) -> None:
        """The master made this safe.

        Raises:
            InvariantError: it counts work that was not done, ends a job twice, or retries one too often.
        """
        if isinstance(event, JobPreempted):
            self._check_retry(event)
        if isinstance(event, Measured):
            self._check_measured(event)
        for action in actions:
            if isinstance(action, Launch):
                nodes = frozenset(share.node for share in action.allotment.shares)
                self._parts[(action.job.job_id, action.generation)] = nodes
            elif isinstance(action, RecordEnd):
                self._end(action)

    def lost(self) -> list[str]:
        """Acknowledged jobs that did not end."""
        return [job for job in self.acknowledged if job not in self.ended]

    def _end(self, action: RecordEnd) -> None:
        record = action.record
        if record.job_id in self.ended:
            raise InvariantError(f"job {record.job_id} ends twice")
        self.ended[record.job_id] = record.status
        if record.status is JobStatus.FINISHED and not self._was_done(record.job_id):
            raise InvariantError(
                f"job {record.job_id} counts as finished, and no launch of it did all its iterations"
            )
        if record.status is JobStatus.FAILED and self.broken.get(record.job_id, 0) <= self.retries:
            broken = self.broken.get(record.job_id, 0)
            raise InvariantError(f"job {record.job_id} is given up after {broken} failures ({self.retries} retries)")

    def _was_done(self, job_id: str) -> bool:
        return any(
            job == job_id and self._parts.get((job, generation), frozenset()) <= nodes
            for (job, generation), nodes in self._complete.items()
        )

    def _check_measured(self, event: Measured) -> None:
        key = event.job_id, event.generation
        self._believed[key] += event.iterations
        if self._believed[key] > self._measured[key]:
            raise InvariantError(
                f"job {event.job_id} generation {event.generation}: {self._believed[key]} iterations count as timed, "
                f"{self._measured[key]} were"
            )

    def _check_retry(self, event: JobPreempted) -> None:
        if not event.reason:
            return
        count = self._retried[event.job_id] = self._retried.get(event.job_id, 0) + 1
        if count > self.retries:
            raise InvariantError(f"job {event.job_id} is retried {count} times, {self.retries} are allowed")
