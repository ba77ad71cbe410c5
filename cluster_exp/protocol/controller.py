"""The master without sockets, clock and disk: what workers and users say goes in, events and orders come out.

The runtime drives it over gRPC, the simulator's faults over a simulated network. Whoever drives it commits the log
after a batch of calls, and only then lets answers and orders go: so nothing is acknowledged that a crash could lose.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from cluster_exp.core.recorder import Core, Recorder
from cluster_exp.domain.actions import Action, Launch, Preempt, RecordEnd, SetTurns, Wake
from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.events import (
    CancelRequested,
    Event,
    JobArrived,
    JobFailed,
    JobPreempted,
    JobStarted,
    Measured,
    PlanDue,
    Progressed,
    WorkerJoined,
    WorkerLost,
)
from cluster_exp.domain.job import JobSpec
from cluster_exp.protocol.assignments import Assignments, IterationsPerTurn
from cluster_exp.protocol.board import Board
from cluster_exp.protocol.gangs import Gangs
from cluster_exp.protocol.log import Happened, Log, ReportsTaken, Row, SubmissionTaken, WorkerKnown
from cluster_exp.protocol.measurements import measurements
from cluster_exp.protocol.messages import (
    LaunchOrder,
    Order,
    Registration,
    ReportBatch,
    ReportKind,
    TrainerReport,
)
from cluster_exp.protocol.outgoing import Outgoing
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.protocol.roster import Roster
from cluster_exp.protocol.submissions import Submissions
from cluster_exp.protocol.timetable import Timetable

Tell = Callable[[str], None]  # takes a line for people


@dataclass(frozen=True, slots=True)
class Rules:
    """What a controller needs to know of a run."""

    cluster: ClusterSpec
    lease_s: float  # wall time after which a silent worker counts as lost
    time_scale: float = 1.0  # simulated seconds per wall second
    interval_s: float = 0.0  # simulated seconds between rounds; 0 = plan whenever something changed
    retries: int = 0  # how often a job that fails is started again
    retry_wait_s: float = 0.0  # wall time before its first retry; each further one waits twice as long
    measures: bool = False  # decisions turn to the stage times that trainers measure


class Controller:
    """Jobs, workers and launches of a run. `at_s` is simulated time, `wall_s` the caller's monotonic clock."""

    def __init__(
        self,
        rules: Rules,
        core: Core,
        recorder: Recorder,
        log: Log,
        outgoing: Outgoing,
        per_turn: IterationsPerTurn,
        warn: Tell = lambda line: None,
    ) -> None:
        """`recorder` is told every event, also those of a log with which it resumes; `log` only what is new."""
        self.board = Board()
        self.roster = Roster(rules.cluster, rules.lease_s)
        self.timetable = Timetable((), rules.interval_s)
        self.running = False  # whether all workers were there once
        self.changed = False  # whether something happened since the last plan that a plan could answer
        self._rules = rules
        self._core = core
        self._recorder = recorder
        self._log = log
        gangs = Gangs(rules.retries, rules.retry_wait_s, rules.time_scale)
        self._assignments = Assignments(self.board.specs, gangs, outgoing, per_turn)
        self._submissions = Submissions()
        self._progress: dict[str, float] = {}  # remaining iterations that the core was not told yet
        self._warn = warn
        self._last_s = 0.0
        self._draining: set[tuple[str, int]] = set()  # launches that are to leave

    @property
    def last_s(self) -> float:
        """Simulated time of the last event."""
        return self._last_s

    def expect(self, jobs: Iterable[JobSpec]) -> None:
        """Jobs that arrive by themselves, at their submit times; those that are here already do not come again."""
        to_come = [job for job in jobs if job.job_id not in self.board]
        self.timetable = Timetable(to_come, self._rules.interval_s)

    def begin(self) -> None:
        """Time passes from now on."""
        self.running = True
        self.changed = True

    # What workers say

    def register(self, offer: Registration, at_s: float, wall_s: float) -> int:
        """A worker offers its node; returns the node's id.

        Raises:
            Refused: it is not wanted; the reason says why.
        """
        node, new = self.roster.register(offer, wall_s)
        if new:
            self._log.note(WorkerKnown(offer))
            self._assignments.connect(node, offer)
            self._handle(WorkerJoined(self._time_s(at_s), node, self.roster.spec(node)))
        return node

    def report(self, batch: ReportBatch, at_s: float, wall_s: float) -> int:
        """Takes a worker's batch; returns the number of the newest one taken.

        Raises:
            Refused: its worker is not on the roster, or a batch before it is missing.
        """
        node, new = self.roster.take(batch, wall_s)
        member = self.roster.members[node]
        if not member.heard:
            member.heard = True
            self._assignments.heard(node)
        if new:
            self._take_reports(node, batch.reports, batch.sequence, at_s)
            if batch.leaving:
                self.lose(node, "its worker leaves", at_s)
                return batch.sequence
        return member.taken

    def order_refused(self, node: int, order: Order, reason: str, at_s: float) -> None:
        """A worker will not carry out an order: a launch has failed then."""
        name = self.roster.spec(node).name
        self._warn(f"node={name} order refused: {reason}")
        if isinstance(order, LaunchOrder):
            done = order.iterations_done
            words = f"node {name} cannot launch it: {reason}"
            report = TrainerReport(order.job.job_id, order.generation, ReportKind.FAILED, done, words, done)
            self._take_reports(node, (report,), 0, at_s)

    def lose(self, node: int, reason: str, at_s: float) -> None:
        """A worker is gone: its jobs go back to their checkpoints. One that is not there is passed over."""
        if node not in self.roster.members:
            return
        self._warn(f"node={self.roster.spec(node).name} lost: {reason}")
        self.roster.drop(node)
        for event in self._assignments.disconnect(node, self._time_s(at_s)):
            self._handle(event)
        self._handle(WorkerLost(self._time_s(at_s), node, reason))

    def check_leases(self, at_s: float, wall_s: float) -> None:
        """Loses the workers that have been silent for longer than their lease."""
        for node in self.roster.lapsed(wall_s):
            self.lose(node, f"silent for {self._rules.lease_s:g} s", at_s)

    def _take_reports(self, node: int, reports: tuple[TrainerReport, ...], sequence: int, at_s: float) -> None:
        now_s = self._time_s(at_s)
        measured = list(measurements(reports, now_s, self._rules.time_scale)) if self._rules.measures else []
        outcome = self._assignments.report(node, reports, now_s)
        if outcome.kept or measured:
            self._log.note(ReportsTaken(node, sequence, tuple(outcome.kept), now_s))
        for event in measured:
            self._handle(event)
        for report in outcome.stale:
            self._warn(
                f"node={self.roster.spec(node).name} job={report.job_id} generation={report.generation} "
                f"{report.kind.value}: refused, this launch counts no longer"
            )
        for happened in outcome.events:
            if isinstance(happened, Progressed):
                self._progress.update(zip(happened.job_ids, happened.remaining_iterations, strict=True))
                continue
            if not isinstance(happened, JobStarted):
                self.tell_core_progress()  # what a job did counts when it leaves
            if isinstance(happened, JobFailed | JobPreempted) and happened.reason:
                self._warn(f"job={happened.job_id} generation={happened.generation} failed: {happened.reason}")
            self._handle(happened)

    def tell_core_progress(self) -> None:
        """Makes one event of the progress that several workers reported."""
        if self._progress:
            event = Progressed(self._time_s(self._last_s), tuple(self._progress), tuple(self._progress.values()))
            self._progress.clear()
            self._handle(event)

    # What users say

    def submit(self, request_id: str, jobs: tuple[JobSpec, ...], at_s: float) -> float:
        """Jobs to run; returns the simulated time at which they arrived. The same request again changes nothing.

        Raises:
            Refused: INVALID for a job that can never run, TAKEN for a name that is in use.
        """
        known_s = self._submissions.known(request_id, jobs)
        if known_s is not None:
            return known_s
        num_gpu = self._rules.cluster.num_gpu
        to_come = {job.job_id for job in self.timetable.to_come}
        for job in jobs:
            if job.num_gpu > num_gpu:
                raise Refused(
                    RefusalKind.INVALID, f"job {job.job_id} asks for {job.num_gpu} GPUs, the cluster has {num_gpu}"
                )
            if job.job_id in self.board or job.job_id in to_come:
                raise Refused(RefusalKind.TAKEN, f"there is a job {job.job_id} already")
        now_s = self._time_s(at_s)
        job_ids = tuple(job.job_id for job in jobs)
        self._submissions.add(request_id, job_ids, now_s)
        self._log.note(SubmissionTaken(request_id, job_ids, now_s))
        for job in jobs:
            self._handle(JobArrived(now_s, replace(job, submit_s=now_s)))
        return now_s

    def cancel(self, job_id: str, at_s: float) -> None:
        """A user wants a job gone. Raises Refused (NOT_FOUND) for a stranger."""
        if job_id not in self.board:
            raise Refused(RefusalKind.NOT_FOUND, f"there is no job {job_id}")
        self._handle(CancelRequested(self._time_s(at_s), job_id))

    # What time brings

    def arrive(self, at_s: float) -> None:
        """Lets the expected jobs arrive that are due."""
        for job in self.timetable.arrivals(at_s):
            self._handle(JobArrived(self._time_s(at_s), job))

    def plan_due(self, at_s: float) -> bool:
        """Whether it is time to plan; then `changed` counts anew."""
        due = self.timetable.plan_due(at_s, self.changed)
        if due:
            self.changed = False
        return due

    def plan(self, at_s: float) -> Callable[[], None]:
        """Decides, which takes long and touches nothing but the core; call what it returns to carry that out."""
        event = PlanDue(self._time_s(at_s))
        actions = self._decide(event)
        return lambda: self._carry_out_all(event, actions)

    def drain(self) -> None:
        """Has every trainer leave at the end of its iteration; what is launched from now on stays on paper."""
        self._draining = self._assignments.drain()

    @property
    def draining(self) -> bool:
        """Whether trainers that were told to leave are still there."""
        gangs = self._assignments.gangs
        self._draining = {key for key in self._draining if gangs.runs(*key)}
        return bool(self._draining)

    # A crash

    def resume(self, rows: Iterable[Row], wall_s: float) -> int:
        """Becomes what the master was that wrote these rows; returns how many events there were.

        The workers that it knew get a new lease, and hear again what they may have missed.

        Raises:
            InvariantError: the core answers an event in another way than it did then.
            Refused: a worker's node is not in the cluster.
        """
        self._assignments.silence()
        events = 0
        for row in rows:
            match row:
                case Happened():
                    events += 1
                    self._again(row, events)
                case WorkerKnown(registration=registration):
                    self.roster.resume(registration, wall_s)
                case ReportsTaken():
                    self._assignments.gangs.report(row.node, row.reports, row.at_s)
                    if row.sequence:
                        self.roster.members[row.node].taken = row.sequence
                case SubmissionTaken():
                    self._submissions.add(row.request_id, row.job_ids, row.at_s)
        self._assignments.resume({node: member.registration for node, member in self.roster.members.items()})
        self.changed = True
        return events

    def _again(self, row: Happened, number: int) -> None:
        """An event that happened before: the core answers as it did, and nobody is told."""
        event = row.event
        self._last_s = event.time_s
        actions = self._core.handle(event)
        self._recorder.record(event, actions)
        if sum_of(actions) != row.actions_sum:
            raise InvariantError(f"event {number}, {type(event).__name__}, leads to other actions than it did")
        if isinstance(event, WorkerLost):
            self.roster.drop(event.node)
            self._assignments.disconnect(event.node, event.time_s)
        self.running |= isinstance(event, PlanDue)
        self._carry_out_all(event, actions)

    # The core

    def _handle(self, event: Event) -> None:
        """Gives the core one event."""
        actions = self._decide(event)
        self.changed |= bool(actions) or not isinstance(event, Progressed | JobStarted | Measured)
        self._carry_out_all(event, actions)

    def _decide(self, event: Event) -> list[Action]:
        actions = self._core.handle(event)
        self._recorder.record(event, actions)
        self._log.record(event, actions)
        return actions

    def _carry_out_all(self, event: Event, actions: Sequence[Action]) -> None:
        self.board.note(event, actions)
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case SetTurns():
                self._assignments.set_turns(action)
            case Launch():
                self._assignments.launch(action)
            case Preempt():
                self._assignments.preempt(action)
            case RecordEnd(record=record):
                self._assignments.ended(record.job_id)
            case Wake(at_s=wake_s):
                self.timetable.wake_at(wake_s)

    def time_s(self, at_s: float) -> float:
        """The simulated time as it is shown: never before the last event."""
        return self._time_s(at_s)

    def _time_s(self, at_s: float) -> float:
        """The time of an event: when it came, but never before the last one."""
        self._last_s = max(self._last_s, at_s if self.running else 0.0)
        return self._last_s


def sum_of(actions: Sequence[Action]) -> int:
    """A check sum of what the core answered, the same on every machine."""
    return crc32(repr(actions).encode())
