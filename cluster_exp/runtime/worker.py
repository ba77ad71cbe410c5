"""The worker: one per node. It launches and stops trainers, hands out turns and relays what happens."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from cluster_exp.domain.errors import InputError
from cluster_exp.protocol.messages import PROTOCOL_VERSION, LaunchOrder, Order, Registration, TrainerStatus, Welcome
from cluster_exp.protocol.outbox import Outbox
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.runtime import codec, fields
from cluster_exp.runtime.agent import MakeLauncher, NodeAgent
from cluster_exp.runtime.checkpoints import check_shared
from cluster_exp.runtime.fields import FieldError
from cluster_exp.runtime.launchers import SubprocessJobLauncher
from cluster_exp.runtime.leftovers import LIFE, OWNER, end_marked, owner_mark
from cluster_exp.runtime.link import MOST_TOGETHER
from cluster_exp.runtime.rpc import worker_pb2
from cluster_exp.runtime.rpc.master_pb2 import RegisterReply, ReportReply, ReportRequest
from cluster_exp.runtime.rpc.master_pb2_grpc import MasterServiceStub
from cluster_exp.runtime.rpc.worker_pb2_grpc import (
    WorkerServiceServicer,
    add_WorkerServiceServicer_to_server,
)
from cluster_exp.runtime.security.access import Access, Role, is_loopback
from cluster_exp.runtime.security.channels import listen, make_server, open_channel
from cluster_exp.runtime.services import answer

_DEADLINE_S = 5.0
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 2.0
_LAST_WORD_S = 5.0  # wall time in which the master has to take the last batch of a worker that leaves
_GONE = frozenset({grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT})
_DENIED = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_log = logging.getLogger(__name__)
_Context = grpc.aio.ServicerContext[Any, Any]
_ReportCall = grpc.aio.StreamStreamCall[ReportRequest, ReportReply]


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker needs to know when it starts."""

    master: str  # host:port
    node: str  # its name in the cluster's description
    num_gpu: int
    log_dir: Path
    gpu_type: str = ""
    gpu_memory_mib: float | None = None  # per GPU
    host: str = "127.0.0.1"  # where it listens
    scratch: Path | None = None  # where its socket's folder is made; None = the system's temporary folder
    access: Access | None = None  # TLS and tokens; None = loopback only
    trust_network: bool = False  # whether ranks of other nodes may exchange gradients in clear
    grace_s: float = 30.0  # wall time to reach an iteration's end before a trainer is ended by force


class WorkerRefusedError(RuntimeError):
    """The master does not want this worker; the message is the master's."""


class Worker:
    """One node's side of the runtime."""

    def __init__(self, config: WorkerConfig, make_launcher: MakeLauncher | None = None) -> None:
        """`make_launcher` starts trainers in another way than as processes of this machine."""
        self._config = config
        self._marks = {OWNER: owner_mark(config.master, config.node), LIFE: uuid.uuid4().hex}
        self.stopping = asyncio.Event()  # told to leave
        self._urgent = asyncio.Event()  # set while something should not wait for the next interval
        self._instance = ""  # as which it is registered
        self._heard = asyncio.Event()  # set when the master has taken a batch
        self._draining: asyncio.Task[None] | None = None
        self._channel = open_channel(config.master, config.access, Role.WORKER)
        self._master = MasterServiceStub(self._channel)
        self._outbox = Outbox(config.node, "", self._urgent.set)
        self._agent = NodeAgent(
            make_launcher or (lambda hear: SubprocessJobLauncher(config.log_dir, config.node, self._marks)),
            lambda report: self._outbox.add(report),
            config.host,
            config.grace_s,
            config.log_dir,
            config.scratch,
            config.access,
        )

    def stop(self) -> None:
        """Makes `run` stop all trainers and return."""
        self.stopping.set()
        self._urgent.set()

    def statuses(self) -> tuple[TrainerStatus, ...]:
        """Its trainers."""
        return self._agent.statuses()

    def drain(self) -> None:
        """Makes `run` return when all trainers have left in peace and the master knows; again: at once."""
        if self._draining is not None:
            self.stop()
        else:
            self._draining = asyncio.create_task(self._drain(), name="drain")

    async def _drain(self) -> None:
        _log.info("node=%s leaves: its trainers finish their iteration", self._config.node)
        self._outbox.hold()
        await self._agent.drain()
        self._outbox.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_S):
                while not self._outbox.left:
                    self._heard.clear()
                    await self._heard.wait()
        self.stop()

    async def run(self) -> None:
        """Serves its node until the master, or `stop`, tells it to leave.

        Raises:
            WorkerRefusedError: the master does not want it.
        """
        server = make_server(self._config.access)
        distrusts = not (self._config.trust_network or is_loopback(f"{self._config.host}:0"))
        add_WorkerServiceServicer_to_server(
            WorkerServicer(self._agent, self.stop, lambda: self._instance, distrusts), server
        )
        port = listen(server, f"{self._config.host}:0", self._config.access)
        self._agent.start()
        await server.start()
        try:
            while not self.stopping.is_set():
                welcome = await self._register(f"{self._config.host}:{port}")
                if welcome is not None:
                    await self._end_leftovers()
                    await self._relay(welcome)
                    self._instance = ""
                    await self._agent.stop_all()
                    if self._draining is not None:
                        self.stop()
        finally:
            if self._draining is not None:
                self._draining.cancel()
            await self._agent.close()
            await server.stop(grace=0.2)
            await self._channel.close(None)

    async def _register(self, address: str) -> Welcome | None:
        """Offers the node until the master answers; None when told to stop before."""
        instance = uuid.uuid4().hex
        self._outbox = Outbox(self._config.node, instance, self._urgent.set)
        told = ""
        wait_s = _FIRST_WAIT_S
        while not self.stopping.is_set():
            offer = self._offer(instance, address)
            try:
                reply = await self._master.Register(codec.registration_to(offer), timeout=_DEADLINE_S)
            except grpc.aio.AioRpcError as error:
                if error.code() in _GONE | _DENIED:
                    raise WorkerRefusedError(error.details()) from None
                if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and not told:
                    told = str(error.details())
                    _log.warning("not taken yet, and trying again: %s", told)
                _log.info("master=%s does not answer yet: %s", self._config.master, error.code().name)
            else:
                welcome = _read_welcome(reply)
                _check_checkpoints(welcome)
                self._agent.welcome(welcome)
                self._instance = instance
                return welcome
            await self._pause(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        return None

    def _offer(self, instance: str, address: str) -> Registration:
        config = self._config
        return Registration(
            PROTOCOL_VERSION,
            config.node,
            instance,
            address,
            self._agent.turns_address,
            config.num_gpu,
            config.gpu_type,
            config.gpu_memory_mib,
            self._agent.statuses(),
            self._agent.turns_key,
        )

    @property
    def _over(self) -> bool:
        """Whether there is nothing more to report: told to stop, or the master has taken the last batch."""
        return self.stopping.is_set() or self._outbox.left

    async def _end_leftovers(self) -> None:
        """Ends what a former worker of this node left running. Only the node's one worker may: the master said so."""
        mine = {LIFE: self._marks[LIFE]}
        ended = await asyncio.to_thread(end_marked, {OWNER: self._marks[OWNER]}, mine)
        if ended:
            _log.warning("node=%s ended %d processes that a former worker left", self._config.node, ended)

    async def _relay(self, welcome: Welcome) -> None:
        """Sends batches until told to stop, or until the master counts this worker as lost."""
        wait_s = _FIRST_WAIT_S
        while not self._over:
            call = self._master.Report()
            try:
                async for acknowledged in self._batches(call, welcome.report_interval_s):
                    self._outbox.acknowledged(acknowledged)
                    self._heard.set()
                    wait_s = _FIRST_WAIT_S
            except grpc.aio.AioRpcError as error:
                if error.code() in _GONE:
                    _log.warning("node=%s is off the master's roster: %s", self._config.node, error.details())
                    return
            except (TimeoutError, asyncio.InvalidStateError):  # no answer; broke off between two batches
                call.cancel()
            await self._pause(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def _batches(self, call: _ReportCall, interval_s: float) -> AsyncIterator[int]:
        """Sends a batch whenever one is due, over one call, and yields what the master has taken.

        Ends when told to stop. Raises AioRpcError when the call broke off, TimeoutError when no answer comes.
        """
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while not self._over:
            due_s = min(due_s, loop.time()) + interval_s  # being late once does not make the next one late
            async with asyncio.timeout(_DEADLINE_S):
                await call.write(codec.batch_to(self._outbox.batch()))
                reply = await call.read()
            if not isinstance(reply, ReportReply):
                raise TimeoutError("the master hung up")
            yield reply.acknowledged
            await self._until_due(due_s - loop.time())
        await call.done_writing()

    async def _until_due(self, wait_s: float) -> None:
        if self._outbox.urgent:
            return
        self._urgent.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._urgent.wait()

    async def _pause(self, wait_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), wait_s)


def _read_welcome(reply: RegisterReply) -> Welcome:
    if reply.protocol_version != PROTOCOL_VERSION:
        raise WorkerRefusedError(
            f"the master speaks protocol version {reply.protocol_version}, this worker speaks {PROTOCOL_VERSION}"
        )
    try:
        return codec.welcome_from(reply)
    except FieldError as error:
        raise WorkerRefusedError(f"the answer to the registration: {error}") from None


def _check_checkpoints(welcome: Welcome) -> None:
    if welcome.checkpoints is not None:
        try:
            check_shared(welcome.checkpoints)
        except InputError as error:
            raise WorkerRefusedError(str(error)) from None


class WorkerServicer(WorkerServiceServicer):
    """The master's orders, checked and handed to the node's agent in the same event loop."""

    def __init__(
        self, agent: NodeAgent, stop: Callable[[], None], instance: Callable[[], str], distrusts: bool = False
    ) -> None:
        """`instance` tells as what the worker is registered, "" = it is not.

        `distrusts`: programs whose ranks span nodes are refused, because they exchange gradients in clear.
        """
        self._agent = agent
        self._distrusts = distrusts
        self._stop = stop
        self._instance = instance

    async def Carry(self, request: worker_pb2.OrdersRequest, context: _Context) -> worker_pb2.OrdersReply:
        """Carries out orders; says which of them were refused."""
        if not self._instance() or request.instance != self._instance():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "these orders are meant for another registration")
        if len(request.orders) > MOST_TOGETHER:
            reason = f"orders: {len(request.orders)} given, at most {MOST_TOGETHER} allowed"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        reply = worker_pb2.OrdersReply()
        for place, message in enumerate(request.orders):
            try:
                order = codec.order_from(message)
                self._check(order)
                endpoint = self._agent.carry_out(order)
                if endpoint is not None:
                    reply.opened.add(order=place, endpoint=codec.endpoint_to(endpoint))
            except (FieldError, Refused) as error:
                reply.refused.add(order=place, reason=str(error))
        return reply

    def _check(self, order: Order) -> None:
        if self._distrusts and isinstance(order, LaunchOrder) and order.needs_meeting and len(order.shares) > 1:
            reason = (
                f"job {order.job.job_id} spans nodes, and its gradients would cross the network in clear;"
                " allowed with --trust-network"
            )
            raise Refused(RefusalKind.PRECONDITION, reason)

    async def QueryTrainers(
        self, request: worker_pb2.QueryTrainersRequest, context: _Context
    ) -> worker_pb2.QueryTrainersReply:
        """The node's trainers."""

        async def work() -> worker_pb2.QueryTrainersReply:
            return codec.statuses_to(self._agent.statuses())

        return await answer(context, work)

    async def Shutdown(self, request: worker_pb2.ShutdownRequest, context: _Context) -> worker_pb2.ShutdownReply:
        """Stops every trainer and leaves."""

        async def work() -> worker_pb2.ShutdownReply:
            _log.info("told to leave: %s", fields.text("reason", request.reason))
            self._stop()
            return worker_pb2.ShutdownReply()

        return await answer(context, work)
