"""The master: one event loop owns the scheduler; servicers only hand it calls."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import grpc.aio

from cluster_exp.core.recorder import Core, Recorder
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.protocol.board import Board
from cluster_exp.protocol.controller import Controller, Rules
from cluster_exp.protocol.lease_checks import LeaseChecks
from cluster_exp.protocol.log import Log, NoLog, Row
from cluster_exp.protocol.messages import Welcome
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.protocol.roster import Roster
from cluster_exp.runtime import calls
from cluster_exp.runtime.clock import ScaledClock
from cluster_exp.runtime.collector import rare_collections
from cluster_exp.runtime.links import Links, per_turn_at
from cluster_exp.runtime.pace import PlanPace, gather_s, report_interval_s
from cluster_exp.runtime.rpc.master_pb2_grpc import add_MasterServiceServicer_to_server
from cluster_exp.runtime.security.access import check_address
from cluster_exp.runtime.security.channels import listen, make_server
from cluster_exp.runtime.services import MasterServicer
from cluster_exp.runtime.settings import LiveProgress, MasterConfig
from cluster_exp.runtime.views import node_views

_QUEUE_LIMIT = 10_000
_MOST_LIVE = 1_000_000  # jobs
_PROGRESS_WALL_S = 0.5
_MAX_WAIT_S = 0.5
_STOP_GRACE_S = 2.0  # wall time in which workers that were told to leave end their calls
_log = logging.getLogger(__name__)


_T = TypeVar("_T")


class Master:
    """Takes calls and tells time to a controller, makes safe what came of it, and lets answers and orders go."""

    def __init__(
        self,
        config: MasterConfig,
        core: Core,
        recorder: Recorder,
        on_progress: Callable[[LiveProgress], None] = lambda progress: None,
        log: Log | None = None,
    ) -> None:
        """Without a `log` nothing outlives the master."""
        self._config = config
        self._log = log or NoLog()
        self._clock = ScaledClock(config.time_scale)
        self._calls = calls.CallQueue(_QUEUE_LIMIT)
        self._links = Links(
            refused=lambda node, order, reason: self._tell(calls.OrderRefused(node, order, reason)),
            silent=lambda node, reason: self._tell(calls.WorkerSilent(node, reason)),
            access=config.access,
        )
        rules = Rules(
            config.cluster,
            config.lease_s,
            config.time_scale,
            config.interval_s,
            config.retries,
            config.retry_wait_s,
            config.measures,
        )
        per_turn = per_turn_at(config.time_scale)
        self._controller = Controller(rules, core, recorder, self._log, self._links, per_turn, _log.warning)
        num_workers = len(config.cluster.nodes)
        self._report_interval_s = config.report_interval_s or report_interval_s(num_workers)
        self._gather_s = gather_s(num_workers)
        self._lease_checks = LeaseChecks(config.lease_s, _MAX_WAIT_S)
        self._pace = PlanPace()
        self._on_progress = on_progress
        self._told_progress_s = -math.inf
        self._answers: list[Callable[[], None]] = []  # that wait until what they acknowledge is safe
        self._stopping: str | None = None
        self._drains = False
        self._server: grpc.aio.Server | None = None

    @property
    def running(self) -> bool:
        """Whether all workers were there and the run has begun."""
        return self._controller.running

    @property
    def board(self) -> Board:
        """The jobs."""
        return self._controller.board

    @property
    def roster(self) -> Roster:
        """The workers."""
        return self._controller.roster

    async def start(self) -> str:
        """Listens, and returns the address as host:port. Raises RuntimeError when the address cannot be had."""
        self._server = make_server(self._config.access)
        add_MasterServiceServicer_to_server(MasterServicer(self._post), self._server)
        port = listen(self._server, self._config.bind, self._config.access)
        await self._server.start()
        return f"{self._config.bind.rpartition(':')[0]}:{port}"

    def resume(self, rows: Iterable[Row], gap_s: float, *, workers_left: bool) -> int:
        """Goes on where a master with this log was; call it in the event loop, before `start`.

        Args:
            rows: the log.
            gap_s: simulated seconds that have passed since its last row.
            workers_left: its workers are gone, with all that they ran.

        Returns the number of events.

        Raises:
            InvariantError: the core answers otherwise than it did.
            Refused: the log's workers do not fit the cluster.
        """
        controller = self._controller
        events = controller.resume(rows, time.monotonic())
        self._clock.restart(controller.last_s + gap_s)
        if workers_left:
            for node in list(controller.roster.members):
                controller.lose(node, "the run was stopped", controller.last_s)
        self._settle()
        return events

    def stop(self, reason: str, *, drain: bool = False) -> None:
        """Makes `run` return soon, whatever is still to do; with `drain`, when all trainers have left in peace."""
        self._stopping = self._stopping or reason
        self._drains = drain
        self._calls.nudge()

    async def run(self, jobs: Sequence[JobSpec], extra: int = 0) -> bool:
        """Waits for all workers, runs the jobs to their ends and returns whether nothing stopped it before.

        Args:
            jobs: a trace, by whatever order.
            extra: how many submitted jobs must have ended as well before it returns.

        Raises:
            OSError: what has to be safe cannot be written.
        """
        self._controller.expect(jobs)
        with rare_collections():
            await self._run_until(len(jobs) + extra)
        return self._stopping is None

    async def _run_until(self, total: int) -> None:
        controller = self._controller
        while self._stopping is None and not controller.running and self.roster.missing:
            await self._take_calls(_MAX_WAIT_S)
        if not controller.running:
            self._clock.restart()
        controller.begin()
        while self._stopping is None and not self._done(total):
            await self._take_calls(self._timeout_s())
            await self._look_at_clock()
        if self._stopping is not None and self._drains:
            await self._drain()
        self._tell_progress(force=True)

    async def _drain(self) -> None:
        """Has every trainer leave at the end of its iteration, and starts no other."""
        self._controller.drain()
        self._settle()
        until_s = time.monotonic() + self._config.drain_s
        while self._drains and self._controller.draining and time.monotonic() < until_s:
            await self._take_calls(_MAX_WAIT_S)
            self._controller.check_leases(self._now_s(), time.monotonic())
            self._settle()

    async def close(self, reason: str) -> None:
        """Tells the workers to leave and stops listening."""
        self._calls.close("the master is leaving")
        await self._links.shutdown(reason)
        if self._server is not None:
            await self._server.stop(_STOP_GRACE_S)

    # The loop

    def _done(self, total: int) -> bool:
        board, timetable = self.board, self._controller.timetable
        return board.num_ended >= total and timetable.exhausted and not board.num_live and not len(self._calls)

    def _timeout_s(self) -> float:
        """Wall time until something is to be done: a job arrives, or a plan is due and the rest is over."""
        until_s, timetable = self._clock.wall_until_s, self._controller.timetable
        plan_s = 0.0
        if not self._controller.changed or self._config.interval_s:
            plan_s = until_s(timetable.next_plan_s(busy=self.board.num_live > 0))
        plan_s = max(plan_s, self._pace.wait_s(time.monotonic()))
        return min(_MAX_WAIT_S, until_s(timetable.next_arrival_s), plan_s)

    async def _take_calls(self, timeout_s: float) -> None:
        for arrival in await self._calls.wait(timeout_s, self._gather_s):
            try:
                self._take(arrival.what, arrival.at_s)
            except Refused as refused:
                self._answers.append(partial(calls.refuse, arrival.what, refused))
        self._controller.tell_core_progress()
        self._settle()

    async def _look_at_clock(self) -> None:
        controller, now_s = self._controller, self._clock.now_s()
        controller.arrive(now_s)
        wall_s = time.monotonic()
        if self._lease_checks.due(wall_s):
            controller.check_leases(now_s, wall_s)
        rested = not self._pace.wait_s(time.monotonic())
        if rested and controller.plan_due(now_s):
            await self._plan(now_s)
        self._settle()
        self._tell_progress()

    async def _plan(self, now_s: float) -> None:
        """Plans in a thread, so that calls are still received, and rests after a plan that took long."""
        carry_out, cpu_s = await asyncio.to_thread(self._plan_timed, now_s)
        ended_s = time.monotonic()
        self._pace.planned(cpu_s, ended_s)
        self._lease_checks.listened(ended_s)
        carry_out()

    def _plan_timed(self, now_s: float) -> tuple[Callable[[], None], float]:
        began_s = time.thread_time()
        return self._controller.plan(now_s), time.thread_time() - began_s

    def _settle(self) -> None:
        """Makes safe what happened; only then orders leave and askers hear. Raises OSError when that fails."""
        self._log.commit()
        self._links.flush()
        answers, self._answers = self._answers, []
        for answer in answers:
            answer()

    def _answer(self, reply: asyncio.Future[_T], value: _T) -> None:
        self._answers.append(lambda: calls.settle(reply, value))

    def _now_s(self) -> float:
        return self._clock.now_s() if self.running else 0.0

    def _post(self, call: calls.Call) -> None:
        self._calls.post(call, self._now_s())

    def _tell(self, news: calls.OrderRefused | calls.WorkerSilent) -> None:
        self._calls.tell(news, self._now_s())

    # Calls

    def _take(self, call: calls.Call, at_s: float) -> None:
        controller = self._controller
        match call:
            case calls.Register():
                self._register(call, at_s)
            case calls.Report():
                self._answer(call.reply, controller.report(call.batch, at_s, time.monotonic()))
            case calls.Submit():
                self._check_room()
                self._answer(call.reply, controller.submit(call.request_id, call.jobs, self._now_s()))
            case calls.Cancel(job_id=job_id):
                controller.cancel(job_id, at_s)
                self._answer(call.reply, None)
            case calls.QueryJobs(job_ids=job_ids):
                found = self.board.views(job_ids or self.board.job_ids)
                self._answer(call.reply, (controller.time_s(self._now_s()), found))
            case calls.QueryCluster():
                views = node_views(self._config.cluster, self.roster, self.board.holders(), time.monotonic())
                self._answer(call.reply, (controller.time_s(self._now_s()), views))
            case calls.OrderRefused():
                controller.order_refused(call.node, call.order, call.reason, at_s)
            case calls.WorkerSilent(node=node, reason=reason):
                controller.lose(node, reason, at_s)

    def _check_room(self) -> None:
        """Raises Refused (BUSY) while more jobs are live than the master wants to hold."""
        if self.board.num_live >= _MOST_LIVE:
            raise Refused(RefusalKind.BUSY, f"{_MOST_LIVE} jobs are live; try again when some have ended")

    def _register(self, call: calls.Register, at_s: float) -> None:
        offer = call.registration
        try:
            check_address("worker_address", offer.worker_address, self._config.access)
            check_address("turns_address", offer.turns_address, self._config.access)
        except InputError as error:
            raise Refused(RefusalKind.PRECONDITION, f"node {offer.node}: {error}") from None
        known = offer.node not in self.roster.missing
        node = self._controller.register(offer, at_s, time.monotonic())
        if not known:
            _log.info("node=%s worker=%s registered", offer.node, offer.worker_address)
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
        self._answer(call.reply, welcome)

    # Showing

    def _tell_progress(self, *, force: bool = False) -> None:
        wall_s = time.monotonic()
        if not force and wall_s - self._told_progress_s < _PROGRESS_WALL_S:
            return
        self._told_progress_s = wall_s
        board, controller = self.board, self._controller
        to_come = sum(1 for _ in controller.timetable.to_come)
        running = board.num_live - board.counts[JobStatus.PENDING]
        now_s, arrived = controller.time_s(self._now_s()), board.num_arrived
        self._on_progress(LiveProgress(now_s, arrived, running, board.num_ended, arrived + to_come))
