"""What the master shows of its jobs, kept from the events that went in and the actions that came out."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cluster_exp.domain.actions import Action, Launch, Preempt, RecordEnd
from cluster_exp.domain.allotment import NodeShare
from cluster_exp.domain.events import Event, JobArrived, JobPreempted, JobStarted, Progressed, WorkerLost
from cluster_exp.domain.job import FINAL, HOLDS_GPUS, JobSpec, JobStatus
from cluster_exp.protocol.messages import JobView


class Board:
    """Jobs by id, those that ended included, and how long starts and stops took."""

    def __init__(self) -> None:
        self.specs: dict[str, JobSpec] = {}
        self._views: dict[str, JobView] = {}
        self._reported: dict[str, float] = {}  # remaining iterations, where they are newer than the view's
        self.start_costs_s: list[float] = []  # simulated seconds from a launch to the trainer's first iteration
        self.stop_costs_s: list[float] = []  # simulated seconds from a preemption to free GPUs
        self.counts: Counter[JobStatus] = Counter()
        self._told_s: dict[str, float] = {}  # when a job was last told to start or to stop

    @property
    def num_live(self) -> int:
        """Jobs that arrived and have not ended."""
        return len(self._views) - self.num_ended

    @property
    def num_ended(self) -> int:
        """Jobs that ended, in whatever way."""
        return sum(self.counts[status] for status in FINAL)

    @property
    def num_arrived(self) -> int:
        """Jobs that arrived, those that ended included."""
        return len(self._views)

    @property
    def job_ids(self) -> Iterable[str]:
        """All jobs that arrived, by arrival."""
        return self._views.keys()

    def __contains__(self, job_id: str) -> bool:
        """Whether such a job arrived."""
        return job_id in self._views

    def views(self, job_ids: Iterable[str]) -> list[JobView]:
        """These jobs as they are now; strangers are left out."""
        return [self._now(name) for name in job_ids if name in self._views]

    def holders(self) -> Iterable[JobView]:
        """Jobs that hold GPUs."""
        return (view for view in self._views.values() if view.status in HOLDS_GPUS)

    def note(self, event: Event, actions: Sequence[Action]) -> None:
        """Takes one event and what the core answered."""
        match event:
            case JobArrived(job=job):
                self.specs[job.job_id] = job
                whole = float(job.iterations)
                view = JobView(job.job_id, JobStatus.PENDING, job.num_gpu, 0, job.iterations, whole)
                self._views[job.job_id] = view
                self.counts[JobStatus.PENDING] += 1
            case Progressed(job_ids=job_ids, remaining_iterations=remaining):
                self._reported.update(zip(job_ids, remaining, strict=True))
            case JobStarted():
                self._started(event)
            case JobPreempted():
                self._preempted(event)
            case WorkerLost(node=node):
                for view in list(self.holders()):
                    if any(share.node == node for share in view.shares):
                        self._move(view.job_id, JobStatus.PENDING, shares=())
        for action in actions:
            self._act(action)

    def _now(self, job_id: str) -> JobView:
        view = self._views[job_id]
        left = self._reported.get(job_id)
        return view if left is None else replace(view, remaining_iterations=left)

    def _started(self, event: JobStarted) -> None:
        view = self._views[event.job_id]
        if view.generation == event.generation and view.status is JobStatus.LAUNCHING:
            self._move(event.job_id, JobStatus.RUNNING)
            self.start_costs_s.append(event.time_s - self._told_s[event.job_id])

    def _preempted(self, event: JobPreempted) -> None:
        view = self._views[event.job_id]
        if view.generation != event.generation:
            return
        if view.status is JobStatus.PREEMPTING:
            self.stop_costs_s.append(event.time_s - self._told_s[event.job_id])
        self._move(event.job_id, JobStatus.PENDING, remaining=event.remaining_iterations, shares=())

    def _act(self, action: Action) -> None:
        match action:
            case Launch(job=job):
                self._told_s[job.job_id] = action.time_s
                self._views[job.job_id] = replace(self._views[job.job_id], generation=action.generation)
                self._move(job.job_id, JobStatus.LAUNCHING, shares=action.allotment.shares)
            case Preempt(job_id=job_id):
                self._told_s[job_id] = action.time_s
                self._move(job_id, JobStatus.PREEMPTING)
            case RecordEnd(record=record):
                self._told_s.pop(record.job_id, None)
                remaining = 0.0 if record.status is JobStatus.FINISHED else None
                self._move(record.job_id, record.status, remaining=remaining, shares=(), reason=record.reason)

    def _move(
        self,
        job_id: str,
        status: JobStatus,
        *,
        remaining: float | None = None,
        shares: tuple[NodeShare, ...] | None = None,
        reason: str = "",
    ) -> None:
        view = self._now(job_id)
        self._reported.pop(job_id, None)
        self.counts[view.status] -= 1
        self.counts[status] += 1
        self._views[job_id] = replace(
            view,
            status=status,
            remaining_iterations=view.remaining_iterations if remaining is None else remaining,
            shares=view.shares if shares is None else shares,
            reason=reason,
        )
