"""The master: one event loop owns the scheduler; servicers only hand it calls."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import grpc.aio

from cluster_exp.core.recorder import Core, Recorder, Session
from cluster_exp.domain.actions import Action, Launch, Preempt, RecordEnd, SetTurns, Wake
from cluster_exp.domain.errors import InputError
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
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.protocol.messages import (
    LaunchOrder,
    ReportKind,
    TrainerReport,
    Welcome,
)
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.protocol.roster import Roster
from cluster_exp.protocol.submissions import Submissions
from cluster_exp.runtime import calls
from cluster_exp.runtime.board import Board
from cluster_exp.runtime.clock import ScaledClock
from cluster_exp.runtime.collector import rare_collections
from cluster_exp.runtime.link import Trouble
from cluster_exp.runtime.measurements import measurements
from cluster_exp.runtime.orders import Dispatcher
from cluster_exp.runtime.pace import LeaseChecks, PlanPace, gather_s, report_interval_s
from cluster_exp.runtime.rpc.master_pb2_grpc import add_MasterServiceServicer_to_server
from cluster_exp.runtime.security.access import check_address
from cluster_exp.runtime.security.channels import listen, make_server
from cluster_exp.runtime.services import MasterServicer
from cluster_exp.runtime.settings import LiveProgress, MasterConfig
from cluster_exp.runtime.timetable import Timetable
from cluster_exp.runtime.views import node_views

_QUEUE_LIMIT = 10_000
_PROGRESS_WALL_S = 0.5
_MAX_WAIT_S = 0.5
_STOP_GRACE_S = 2.0  # wall time in which workers that were told to leave end their calls
_log = logging.getLogger(__name__)


class Master:
    """Registers workers, feeds events to the core and carries out its actions."""

    def __init__(
        self,
        config: MasterConfig,
        core: Core,
        recorder: Recorder,
        on_progress: Callable[[LiveProgress], None] = lambda progress: None,
    ) -> None:
        self.board = Board()
        self.roster = Roster(config.cluster, config.lease_s)
        self._config = config
        self._num_gpu = config.cluster.num_gpu
        self._session = Session(core, recorder)
        self._clock = ScaledClock(config.time_scale)
        self._calls = calls.CallQueue(_QUEUE_LIMIT)
        self._dispatcher = Dispatcher(self.board.specs, config.time_scale, config.retries, config.access)
        self._submissions = Submissions()
        self._timetable = Timetable((), config.interval_s)
        num_workers = len(config.cluster.nodes)
        self._report_interval_s = config.report_interval_s or report_interval_s(num_workers)
        self._gather_s = gather_s(num_workers)
        self._progress: dict[str, float] = {}  # remaining iterations that the core was not told yet
        self._lease_checks = LeaseChecks(config.lease_s, _MAX_WAIT_S)
        self._pace = PlanPace()
        self._on_progress = on_progress
        self._told_progress_s = -math.inf
        self._last_s = 0.0
        self._running = False
        self._changed = False
        self._stopping: str | None = None
        self._server: grpc.aio.Server | None = None

    @property
    def running(self) -> bool:
        """Whether all workers were there and the run has begun."""
        return self._running

    async def start(self) -> str:
        """Listens, and returns the address as host:port. Raises RuntimeError when the address cannot be had."""
        self._server = make_server(self._config.access)
        add_MasterServiceServicer_to_server(MasterServicer(self._post), self._server)
        port = listen(self._server, self._config.bind, self._config.access)
        await self._server.start()
        return f"{self._config.bind.rpartition(':')[0]}:{port}"

    def stop(self, reason: str) -> None:
        """Makes `run` return soon, whatever is still to do."""
        self._stopping = self._stopping or reason
        self._calls.nudge()

    async def run(self, jobs: Sequence[JobSpec], extra: int = 0) -> bool:
        """Waits for all workers, runs the jobs to their ends and returns whether nothing stopped it before.

        Args:
            jobs: a trace, by whatever order.
            extra: how many submitted jobs must have ended as well before it returns.
        """
        self._timetable = Timetable(jobs, self._config.interval_s)
        with rare_collections():
            await self._run_until(len(jobs) + extra)
        return self._stopping is None

    async def _run_until(self, total: int) -> None:
        while self._stopping is None and self.roster.missing:
            await self._take_calls(_MAX_WAIT_S)
        self._clock.restart()
        self._running = True
        self._changed = True
        while self._stopping is None and not self._done(total):
            await self._take_calls(self._timeout_s())
            await self._look_at_clock()
        self._tell_progress(force=True)

    async def close(self, reason: str) -> None:
        """Tells the workers to leave and stops listening."""
        self._calls.close("the master is leaving")
        await self._dispatcher.shutdown(reason)
        if self._server is not None:
            await self._server.stop(_STOP_GRACE_S)

    # The loop

    def _done(self, total: int) -> bool:
        ended = self.board.num_ended
        return ended >= total and self._timetable.exhausted and not self.board.num_live and not len(self._calls)

    def _timeout_s(self) -> float:
        """Wall time until something is to be done: a job arrives, or a plan is due and the rest is over."""
        until_s = self._clock.wall_until_s
        plan_s = 0.0
        if not self._changed or self._config.interval_s:
            plan_s = until_s(self._timetable.next_plan_s(busy=self.board.num_live > 0))
        plan_s = max(plan_s, self._pace.wait_s(time.monotonic()))
        return min(_MAX_WAIT_S, until_s(self._timetable.next_arrival_s), plan_s)

    async def _take_calls(self, timeout_s: float) -> None:
        for arrival in await self._calls.wait(timeout_s, self._gather_s):
            try:
                await self._take(arrival.what, arrival.at_s)
            except Refused as refused:
                calls.refuse(arrival.what, refused)
        self._tell_core_progress()

    async def _look_at_clock(self) -> None:
        for job in self._timetable.arrivals(self._clock.now_s()):
            self._handle(JobArrived(self._time_s(), job))
        await self._check_leases(time.monotonic())
        rested = not self._pace.wait_s(time.monotonic())
        if rested and self._timetable.plan_due(self._clock.now_s(), self._changed):
            self._changed = False
            await self._plan()
        self._tell_progress()

    async def _check_leases(self, wall_s: float) -> None:
        if self._lease_checks.due(wall_s):
            for node in self.roster.lapsed(wall_s):
                await self._lose(node, f"silent for {self._config.lease_s:g} s")

    async def _plan(self) -> None:
        """Plans in a thread, so that calls are still received, and rests after a plan that took long."""
        event = PlanDue(self._time_s())
        actions, cpu_s = await asyncio.to_thread(self._handle_timed, event)
        now_s = time.monotonic()
        self._pace.planned(cpu_s, now_s)
        self._lease_checks.listened(now_s)
        self._carry_out_all(event, actions)

    def _handle_timed(self, event: Event) -> tuple[list[Action], float]:
        began_s = time.thread_time()
        return self._session.handle(event), time.thread_time() - began_s

    def _handle(self, event: Event) -> None:
        """Gives the core one event."""
        actions = self._session.handle(event)
        self._changed |= bool(actions) or not isinstance(event, Progressed | JobStarted | Measured)
        self._carry_out_all(event, actions)

    def _carry_out_all(self, event: Event, actions: Sequence[Action]) -> None:
        self.board.note(event, actions)
        for action in actions:
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case SetTurns():
                self._dispatcher.set_turns(action)
            case Launch():
                self._dispatcher.launch(action)
            case Preempt():
                self._dispatcher.preempt(action)
            case RecordEnd(record=record):
                self._dispatcher.ended(record.job_id)
            case Wake(at_s=at_s):
                self._timetable.wake_at(at_s)

    def _time_s(self, at_s: float | None = None) -> float:
        """The time of an event: when it came, but never before the last one."""
        now_s = self._clock.now_s() if at_s is None else at_s
        self._last_s = max(self._last_s, now_s if self._running else 0.0)
        return self._last_s

    def _post(self, call: calls.Call) -> None:
        self._calls.post(call, self._clock.now_s() if self._running else 0.0)

    # Calls

    async def _take(self, call: calls.Call, at_s: float) -> None:
        match call:
            case calls.Register():
                await self._register(call, at_s)
            case calls.Report():
                await self._report(call, at_s)
            case calls.Submit():
                await self._submit(call)
            case calls.Cancel(job_id=job_id):
                if job_id not in self.board:
                    raise Refused(RefusalKind.NOT_FOUND, f"there is no job {job_id}")
                self._handle(CancelRequested(self._time_s(at_s), job_id))
                calls.settle(call.reply, None)
            case calls.QueryJobs(job_ids=job_ids):
                found = self.board.views(job_ids or self.board.job_ids)
                calls.settle(call.reply, (self._time_s(), found))
            case calls.QueryCluster():
                views = node_views(self._config.cluster, self.roster, self.board.holders(), time.monotonic())
                calls.settle(call.reply, (self._time_s(), views))
            case calls.OrderRefused():
                await self._order_refused(call, at_s)
            case calls.WorkerSilent(node=node, reason=reason):
                await self._lose(node, reason)

    async def _register(self, call: calls.Register, at_s: float) -> None:
        offer = call.registration
        try:
            check_address("worker_address", offer.worker_address, self._config.access)
            check_address("turns_address", offer.turns_address, None)  # turns stay on loopback, also with TLS
        except InputError as error:
            raise Refused(RefusalKind.PRECONDITION, f"node {offer.node}: {error}") from None
        node, new = self.roster.register(offer, time.monotonic())
        if new:
            trouble = Trouble(
                refused=lambda order, reason: self._tell(calls.OrderRefused(node, order, reason)),
                silent=lambda reason: self._tell(calls.WorkerSilent(node, reason)),
            )
            self._dispatcher.connect(node, offer, trouble)
            _log.info("node=%s worker=%s registered", offer.node, offer.worker_address)
            self._handle(WorkerJoined(self._time_s(at_s), node, self.roster.spec(node)))
        config = self._config
        welcome = Welcome(
            node,
            config.time_scale,
            self._report_interval_s,
            config.lease_s,
            config.turns,
            config.stage_logs,
            config.comm,
            config.checkpoints,
            config.limits,
        )
        calls.settle(call.reply, welcome)

    async def _report(self, call: calls.Report, at_s: float) -> None:
        node, new = self.roster.take(call.batch, time.monotonic())
        if new:
            await self._take_reports(node, call.batch.reports, at_s)
        calls.settle(call.reply, self.roster.members[node].taken)

    async def _take_reports(self, node: int, reports: tuple[TrainerReport, ...], at_s: float) -> None:
        if self._config.measures:
            for measured in measurements(reports, self._time_s(at_s), self._config.time_scale):
                self._handle(measured)
        outcome = self._dispatcher.gangs.report(node, reports, self._time_s(at_s))
        for event in outcome.events:
            if isinstance(event, Progressed):
                self._progress.update(zip(event.job_ids, event.remaining_iterations, strict=True))
                continue
            if not isinstance(event, JobStarted):
                self._tell_core_progress()  # what a job did counts when it leaves
            if isinstance(event, JobFailed | JobPreempted) and event.reason:
                _log.warning("job=%s generation=%d failed: %s", event.job_id, event.generation, event.reason)
            self._handle(event)
        self._dispatcher.send(outcome.orders)

    def _tell_core_progress(self) -> None:
        """Makes one event of the progress that several workers reported."""
        if self._progress:
            event = Progressed(self._time_s(self._last_s), tuple(self._progress), tuple(self._progress.values()))
            self._progress.clear()
            self._handle(event)

    async def _submit(self, call: calls.Submit) -> None:
        known_s = self._submissions.known(call.request_id, call.jobs)
        if known_s is not None:
            calls.settle(call.reply, known_s)
            return
        num_gpu = self._num_gpu
        to_come = {job.job_id for job in self._timetable.to_come}
        for job in call.jobs:
            if job.num_gpu > num_gpu:
                raise Refused(
                    RefusalKind.INVALID, f"job {job.job_id} asks for {job.num_gpu} GPUs, the cluster has {num_gpu}"
                )
            if job.job_id in self.board or job.job_id in to_come:
                raise Refused(RefusalKind.TAKEN, f"there is a job {job.job_id} already")
        now_s = self._time_s()
        self._submissions.add(call.request_id, call.jobs, now_s)
        for job in call.jobs:
            self._handle(JobArrived(now_s, replace(job, submit_s=now_s)))
        calls.settle(call.reply, now_s)

    async def _order_refused(self, call: calls.OrderRefused, at_s: float) -> None:
        _log.warning("node=%d order refused: %s", call.node, call.reason)
        if isinstance(call.order, LaunchOrder):
            order = call.order
            reason = f"node {self.roster.spec(call.node).name} cannot launch it: {call.reason}"
            report = TrainerReport(
                order.job.job_id,
                order.generation,
                ReportKind.FAILED,
                order.iterations_done,
                reason,
                order.iterations_done,
            )
            await self._take_reports(call.node, (report,), at_s)

    async def _lose(self, node: int, reason: str) -> None:
        if node in self.roster.members:
            _log.warning("node=%s lost: %s", self.roster.spec(node).name, reason)
            self.roster.drop(node)
            for event in self._dispatcher.disconnect(node, self._time_s()):
                self._handle(event)
            self._handle(WorkerLost(self._time_s(), node, reason))

    # Showing

    def _tell(self, news: calls.OrderRefused | calls.WorkerSilent) -> None:
        self._calls.tell(news, self._clock.now_s() if self._running else 0.0)

    def _tell_progress(self, *, force: bool = False) -> None:
        wall_s = time.monotonic()
        if not force and wall_s - self._told_progress_s < _PROGRESS_WALL_S:
            return
        self._told_progress_s = wall_s
        board = self.board
        to_come = sum(1 for _ in self._timetable.to_come)
        running = board.num_live - board.counts[JobStatus.PENDING]
        arrived = board.num_arrived
        self._on_progress(LiveProgress(self._time_s(), arrived, running, board.num_ended, arrived + to_come))
