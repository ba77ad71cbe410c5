"""Pieces that several tests of the live runtime share."""

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager

import grpc.aio

from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import Action
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.events import Event
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.speed import LockstepSpeed
from cluster_exp.policies.registry import make_policy
from cluster_exp.protocol.messages import (
    PROTOCOL_VERSION,
    LaunchOrder,
    Order,
    Registration,
    ReportBatch,
    ReportKind,
    TrainerReport,
)
from cluster_exp.protocol.turn_token import DIGITS
from cluster_exp.runtime import codec
from cluster_exp.runtime.master import Master
from cluster_exp.runtime.rpc import master_pb2, worker_pb2
from cluster_exp.runtime.rpc.master_pb2_grpc import MasterServiceStub
from cluster_exp.runtime.rpc.worker_pb2_grpc import (
    WorkerServiceServicer,
    add_WorkerServiceServicer_to_server,
)
from cluster_exp.runtime.settings import MasterConfig

DEADLINE_S = 10.0
PROFILE = StageProfile(1.0, 0.1, 0.2, 0.5, 0.2)


class Memory:
    """A recorder that keeps everything in a list."""

    def __init__(self) -> None:
        self.entries: list[tuple[Event, list[Action]]] = []

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        self.entries.append((event, list(actions)))

    def of(self, kind: type) -> list:
        events = [event for event, _ in self.entries if isinstance(event, kind)]
        return events + [action for _, actions in self.entries for action in actions if isinstance(action, kind)]


def job(job_id: str, num_gpu: int = 1, iterations: int = 100, submit_s: float = 0.0, profile=PROFILE) -> JobSpec:
    return JobSpec(job_id, num_gpu, submit_s, iterations, iterations * profile.iteration_s, "m", 16, profile)


def cluster(nodes: int = 2, gpus: int = 2) -> ClusterSpec:
    return ClusterSpec(tuple(NodeSpec(f"n{i}", gpus) for i in range(nodes)))


def scheduler(policy: str = "srsf") -> Scheduler:
    return Scheduler(make_policy(policy), LockstepSpeed(), PLACEMENTS["consolidated"])


async def until(condition, what: str) -> None:
    """Polls a condition for at most `DEADLINE_S`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + DEADLINE_S
    while not condition():
        assert loop.time() < deadline, f"waited {DEADLINE_S:g} s for {what}"
        await asyncio.sleep(0.01)


class PaperWorker(WorkerServiceServicer):
    """A worker without trainers: it notes its orders, and a test says what it reports."""

    def __init__(self, node: str, num_gpu: int = 2, instance: str = "first") -> None:
        self.node, self.num_gpu, self.instance = node, num_gpu, instance
        self.orders: list[Order] = []
        self.told_to_leave = False
        self.refuses = ""
        self.sequence = 0
        self.address = ""

    async def Carry(self, request, context):
        reply = worker_pb2.OrdersReply()
        for place, message in enumerate(request.orders):
            self.orders.append(codec.order_from(message))
            if self.refuses:
                reply.refused.add(order=place, reason=self.refuses)
        return reply

    async def Shutdown(self, request, context):
        self.told_to_leave = True
        return worker_pb2.ShutdownReply()

    def of(self, kind: type[Order]) -> list:
        return [order for order in self.orders if isinstance(order, kind)]

    def launches(self) -> list[LaunchOrder]:
        return self.of(LaunchOrder)

    def offer(self, **changes) -> master_pb2.RegisterRequest:
        fields = {
            "protocol_version": PROTOCOL_VERSION,
            "node": self.node,
            "instance": self.instance,
            "worker_address": self.address or "127.0.0.1:9",
            "turns_address": f"127.0.0.1:{10 + int(self.node[1:])}",
            "num_gpu": self.num_gpu,
            "turns_key": "0" * DIGITS,
        }
        return codec.registration_to(Registration(**{**fields, **changes}))

    async def report(self, stub: MasterServiceStub, *reports: TrainerReport, sequence: int | None = None) -> int:
        if sequence is None:
            self.sequence += 1
            sequence = self.sequence
        batch = ReportBatch(self.node, self.instance, sequence, reports)
        call = stub.Report(timeout=DEADLINE_S)
        await call.write(codec.batch_to(batch))
        reply = await call.read()
        await call.done_writing()
        return reply.acknowledged

    async def tell(
        self, stub: MasterServiceStub, order: LaunchOrder, kind: ReportKind, done: int = 0, reason: str = ""
    ) -> None:
        await self.report(stub, TrainerReport(order.job.job_id, order.generation, kind, done, reason, done))


@asynccontextmanager
async def paper_run(
    jobs: Sequence[JobSpec],
    spec: ClusterSpec,
    *,
    policy: str = "srsf",
    extra: int = 0,
    scale: float = 1.0,
    interval_s: float = 0.0,
):
    """A real master with paper workers, all registered. Yields (master, stub, workers, memory, run task)."""
    memory = Memory()
    master = Master(MasterConfig(spec, scale, interval_s), scheduler(policy), memory)
    address = await master.start()
    channel = grpc.aio.insecure_channel(address)
    stub = MasterServiceStub(channel)
    workers, servers = [], []
    for node in spec.nodes:
        worker = PaperWorker(node.name, node.num_gpu)
        server = grpc.aio.server()
        add_WorkerServiceServicer_to_server(worker, server)
        worker.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        workers.append(worker)
        servers.append(server)
    running = asyncio.create_task(master.run(jobs, extra))
    try:
        for worker in workers:
            await stub.Register(worker.offer(), timeout=DEADLINE_S)
            await worker.report(stub)
        yield master, stub, workers, memory, running
    finally:
        master.stop("test over")
        await asyncio.gather(running, return_exceptions=True)
        await master.close("test over")
        await channel.close(None)
        for server in servers:
            await server.stop(None)
