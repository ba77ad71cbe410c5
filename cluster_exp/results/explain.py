"""Why a job waited, ran, shared or moved: a few lines made of a journal's own records."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cluster_exp.domain.actions import Action, Launch, Preempt, RecordEnd, SetTurns, TurnGroup, UseProfile
from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.events import (
    CancelRequested,
    Event,
    JobArrived,
    JobFailed,
    JobPreempted,
    JobStarted,
    PlanDue,
    WorkerJoined,
    WorkerLost,
)
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.results.journal import Journal

_NAMED = 4  # jobs that a line names
_LINES_AT_EACH_END = 12  # of a long story


@dataclass
class _Wait:
    """A stretch of waiting."""

    since_s: float
    plans: int = 0
    least_free: int | None = None  # GPUs, over its plans
    most_free: int = 0
    started: dict[str, str] = field(default_factory=dict)  # other jobs that were started meanwhile, with the reasons
    holders: tuple[str, ...] = ()  # jobs that held GPUs when it began

    def saw(self, free: int) -> None:
        """A plan was made and passed over the job."""
        self.plans += 1
        self.least_free = free if self.least_free is None else min(self.least_free, free)
        self.most_free = max(self.most_free, free)


class _Cluster:
    """Who holds which GPUs, as the journal tells it."""

    def __init__(self) -> None:
        self.nodes: dict[int, tuple[str, int]] = {}  # name and GPUs
        self.held: dict[str, Allotment] = {}

    @property
    def gpus(self) -> int:
        return sum(gpus for _, gpus in self.nodes.values())

    @property
    def free(self) -> int:
        taken = {gpu for allotment in self.held.values() for gpu in allotment.gpus}
        return self.gpus - len(taken)

    def place(self, allotment: Allotment) -> str:
        """Nodes and GPUs in words."""
        parts = []
        for share in allotment.shares:
            name = self.nodes.get(share.node, (f"node {share.node}", 0))[0]
            parts.append(f"{name} gpu {','.join(map(str, share.gpus))}")
        return "; ".join(parts)


class _Story:
    """One job's lines, while the journal is read."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._cluster = _Cluster()
        self._spec: JobSpec | None = None
        self._wait: _Wait | None = None
        self._company: frozenset[str] = frozenset()
        self._why_left = ""
        self.lines: list[str] = []
        self.ended = False

    def take(self, event: Event, actions: Sequence[Action]) -> None:
        """One event and what followed from it."""
        self._event(event)
        for action in actions:
            self._action(action)
        if isinstance(event, PlanDue) and self._wait is not None:
            self._wait.saw(self._cluster.free)

    def end_of_journal(self, now_s: float) -> None:
        """What is left to say of a job that has not ended."""
        if self._wait is not None:
            self._say_wait(now_s, "still waits")
        elif self._spec is not None and not self.ended:
            self._say(now_s, "still runs where the journal ends")

    def _event(self, event: Event) -> None:
        match event:
            case WorkerJoined(node=node, spec=spec):
                self._cluster.nodes[node] = (spec.name, spec.num_gpu)
            case WorkerLost(node=node, reason=reason):
                self._lose(node, reason, event.time_s)
            case JobArrived(job=job) if job.job_id == self._job_id:
                self._spec = job
                alone_s = job.iterations * job.profile.iteration_s
                what = f"{job.model} on {job.num_gpu} GPUs, {job.iterations} iterations, {alone_s:,.0f} s alone"
                self._say(event.time_s, f"arrived: {what}")
                self._begin_wait(event.time_s)
            case JobStarted(job_id=self._job_id):
                self._say(event.time_s, "runs")
            case JobPreempted(job_id=job_id):
                self._left(job_id)
                if job_id == self._job_id:
                    why = (
                        f"failed, {event.reason}" if event.reason else f"left its GPUs: {self._why_left or 'evicted'}"
                    )
                    kept = f"; may start again in {event.wait_s:,.0f} s" if event.wait_s else ""
                    self._say(event.time_s, f"{why}; {event.remaining_iterations:,.0f} iterations remain{kept}")
                    self._begin_wait(event.time_s)
            case JobFailed(job_id=self._job_id, reason=reason):
                self._say(event.time_s, f"failed: {reason}")
            case CancelRequested(job_id=self._job_id):
                self._say(event.time_s, "its user cancelled it")

    def _action(self, action: Action) -> None:
        match action:
            case Launch(job=job) if job.job_id == self._job_id:
                if self._wait is not None:
                    self._say_wait(action.time_s, "waited")
                self._wait = None
                self._cluster.held[job.job_id] = action.allotment
                times = "started" if action.generation == 1 else f"started again ({action.generation}.)"
                mates = f"with {_listed(sorted(self._company))}" if self._company else "alone"
                place = self._cluster.place(action.allotment)
                self._say(action.time_s, f"{times} on {place}, {mates}: {action.reason or 'no reason is recorded'}")
            case Launch(job=job):
                self._cluster.held[job.job_id] = action.allotment
                if self._wait is not None:
                    self._wait.started[job.job_id] = action.reason
            case SetTurns(group=group):
                self._regroup(group, action)
            case UseProfile(job_ids=job_ids, profile=profile, former=former) if self._job_id in job_ids:
                known = "its profile was a guess" if action.guessed else f"not {former.iteration_s:.3g} s as before"
                self._say(action.time_s, f"measured: {profile.iteration_s:.3g} s an iteration alone, {known}")
            case Preempt(job_id=self._job_id, reason=reason):
                self._why_left = reason
                self._say(action.time_s, f"told to stop: {reason}")
            case RecordEnd(record=record):
                self._left(record.job_id)
                if record.job_id == self._job_id:
                    self._end(action.time_s, record.status, record.end_s - record.submit_s, record.executed_s)

    def _regroup(self, group: TurnGroup, action: SetTurns) -> None:
        members = {member.job_id for member in group.members}
        if self._job_id not in members:
            return
        company = frozenset(members - {self._job_id})
        if company != self._company and self._job_id in self._cluster.held:
            joined, gone = sorted(company - self._company), sorted(self._company - company)
            change = [f"{_listed(joined)} came"] * bool(joined) + [f"{_listed(gone)} went"] * bool(gone)
            now = f"shares with {_listed(sorted(company))}" if company else "alone"
            self._say(action.time_s, f"{' and '.join(change)}, {now}: {action.reason}")
        self._company = company

    def _end(self, time_s: float, status: JobStatus, jct_s: float, executed_s: float) -> None:
        if self._wait is not None:
            self._say_wait(time_s, "waited")
            self._wait = None
        self.ended = True
        spent = f"{jct_s:,.0f} s after it arrived, of which it held GPUs for {executed_s:,.0f} s"
        self._say(time_s, f"{status.name.lower()} {spent}")

    def _lose(self, node: int, reason: str, time_s: float) -> None:
        lost = [job for job, held in self._cluster.held.items() if any(part.node == node for part in held.shares)]
        name = self._cluster.nodes.pop(node, (f"node {node}", 0))[0]
        for job_id in lost:
            self._left(job_id)
            if job_id == self._job_id:
                self._say(time_s, f"lost its GPUs with {name}: {reason}")
                self._begin_wait(time_s)

    def _left(self, job_id: str) -> None:
        self._cluster.held.pop(job_id, None)
        if job_id == self._job_id:
            self._company = frozenset()

    def _begin_wait(self, now_s: float) -> None:
        self._wait = _Wait(now_s, holders=tuple(self._cluster.held))

    def _say_wait(self, now_s: float, what: str) -> None:
        wait, spec = self._wait, self._spec
        if wait is None or spec is None or now_s <= wait.since_s:
            return
        free = f"{wait.least_free} to {wait.most_free}" if wait.least_free != wait.most_free else f"{wait.most_free}"
        room = f"{free} of {self._cluster.gpus} GPUs were free after them, it needs {spec.num_gpu}"
        before = ""
        if wait.started:
            first = next(iter(wait.started))
            before = f"; started before it: {_listed(list(wait.started))} ({first}: {wait.started[first]})"
        elif wait.holders:
            before = f"; GPUs were held by {_listed(list(wait.holders))}"
        plans = f"{wait.plans} plan{'s' * (wait.plans != 1)} passed over it"
        passed = f"{plans}, {room}" if wait.plans else "no plan was due"
        self._say(now_s, f"{what} {now_s - wait.since_s:,.0f} s: {passed}{before}")

    def _say(self, time_s: float, what: str) -> None:
        self.lines.append(f"{time_s:>12,.1f} s  {what}")


def explain(journal: Journal, job_id: str, *, whole: bool = False) -> Iterator[str]:
    """Lines on one job, in the order of time. Of a long story the middle is left out unless `whole` is asked for.

    Raises:
        InputError: the journal knows no such job.
    """
    story, now_s, known = _Story(job_id), 0.0, []
    for entry in journal.entries:
        story.take(entry.event, entry.actions)
        now_s = entry.event.time_s
        if isinstance(entry.event, JobArrived):
            known.append(entry.event.job.job_id)
    if job_id not in known:
        near = difflib.get_close_matches(job_id, known, n=1, cutoff=0.0)
        nearest = f"nearest is {near[0]!r}; " if near else ""
        raise InputError(f"the journal knows no job {job_id!r}; {nearest}it knows {len(known)} jobs", where="--job")
    story.end_of_journal(now_s)
    lines = story.lines
    if whole or len(lines) <= 2 * _LINES_AT_EACH_END + 1:
        yield from lines
        return
    yield from lines[:_LINES_AT_EACH_END]
    yield f"{'...':>12}    {len(lines) - 2 * _LINES_AT_EACH_END} lines left out (--all shows them)"
    yield from lines[-_LINES_AT_EACH_END:]


def _listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
