"""Whatever comes over the wire, a service answers or refuses by name, and works on afterwards.

CLUSTER_EXP_STORM=100000 sends more; a failure names its case.
"""

import asyncio
import json
import random
import resource
import socket
from collections import Counter
from functools import partial

import grpc
import pytest
from google.protobuf.message import DecodeError

from cluster_exp.domain.actions import GroupMember, TurnGroup
from cluster_exp.domain.allotment import NodeShare
from cluster_exp.protocol.messages import (
    LaunchOrder,
    PreemptOrder,
    ReportBatch,
    ReportKind,
    TrainerReport,
    TurnsOrder,
    Welcome,
)
from cluster_exp.runtime import codec
from cluster_exp.runtime.agent import NodeAgent
from cluster_exp.runtime.rpc import master_pb2, worker_pb2
from cluster_exp.runtime.services import MasterServicer
from cluster_exp.runtime.trainer import Trainer
from cluster_exp.runtime.trainer.sdk import Identity
from cluster_exp.runtime.turn_server import TurnServer
from cluster_exp.runtime.worker import WorkerServicer
from tests.property.storm_kit import CASES, LONGEST_CASE_S, endure, storm
from tests.runtime.live_kit import DEADLINE_S, cluster, job, paper_run, until

pytestmark = pytest.mark.live
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}
MOST_KIB = 300_000  # by which a storm may make the process larger
MOST_S = 240.0 * max(1.0, CASES / 2_000)  # of wall time, for all storms at one service
FLAWS = (float("nan"), float("inf"), -1.0, -0.0, 1e308, 5e-324)
WORDS = ("", "\0", "../../etc/passwd", "a" * 100_000, "é\u2028", "-", "n0", "a", " ")


async def beat(worker, stub) -> None:
    """Keeps a worker's lease."""
    while True:
        await worker.report(stub)
        await asyncio.sleep(1.0)


class Aborted(Exception):
    """What `abort` raises."""


class Context:
    """A call's context that only notes how it was refused."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing=()) -> None:
        assert details
        self.code = code
        raise Aborted


async def ask(method, request) -> grpc.StatusCode:
    """How a service answers a request."""
    context = Context()
    try:
        if isinstance(request, master_pb2.ReportRequest):

            async def requests():
                yield request

            async for _ in method(requests(), context):
                pass
        else:
            await method(request, context)
    except Aborted:
        assert context.code in REFUSALS
        return context.code
    return grpc.StatusCode.OK


def spoilt(draw: random.Random, message):
    """The message with one of its fields, at any depth, made hostile."""
    if not message.DESCRIPTOR.fields:
        return message
    field = draw.choice(message.DESCRIPTOR.fields)
    value = getattr(message, field.name)
    if field.is_repeated:
        if len(value) and field.message_type and draw.random() < 0.7:
            spoilt(draw, draw.choice(value))
        elif len(value):
            for _ in range(draw.choice((1, 1, 1, 1, 1, 1, 1, 5_000))):
                value.append(value[0])
    elif field.message_type:
        spoilt(draw, value)
    elif field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        setattr(message, field.name, draw.choice(FLAWS))
    elif field.cpp_type == field.CPPTYPE_STRING:
        setattr(message, field.name, draw.choice(WORDS))
    elif field.cpp_type == field.CPPTYPE_BOOL:
        setattr(message, field.name, not value)
    elif field.cpp_type == field.CPPTYPE_ENUM:
        setattr(message, field.name, draw.choice([one.number for one in field.enum_type.values]))
    else:
        most = 2**32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 2**64
        signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
        values = (0, 1, 2, most // 2 - 1, 10**9, *((-1, -most // 2) if signed else (most - 1,)))
        setattr(message, field.name, draw.choice(values))
    return message


async def storm_at(name: str, kind, valid, method) -> Counter:
    """Sends a storm of one message; half of the cases are mutated bytes, half have fields that are hostile."""
    codes: Counter = Counter()
    raw = [message.SerializeToString() for message in valid]
    for number, (case, content) in enumerate(storm(name, raw)):
        if number % 2:
            draw = random.Random(case)
            message = kind()
            message.CopyFrom(draw.choice(valid))
            request = spoilt(draw, message)
        else:
            try:
                request = kind.FromString(content)
            except DecodeError:  # gRPC itself turns it down
                codes["not decoded"] += 1
                continue
        try:
            codes[await asyncio.wait_for(ask(method, request), LONGEST_CASE_S)] += 1
        except Exception as error:
            raise AssertionError(f"case {case}: {type(error).__name__}: {error}") from error
    return codes


def test_the_master_withstands_a_storm_and_runs_a_job_afterwards():
    reports = tuple(
        TrainerReport("a", 1, kind, 5, "why", 3) for kind in ReportKind if kind is not ReportKind.MEASURED
    )
    spec = job("a", 1)

    async def scenario():
        async with paper_run([spec], cluster(1), extra=1) as (master, stub, (worker,), _, running):
            await until(worker.launches, "a launch")
            service = MasterServicer(master._post)
            cancel, query = master_pb2.CancelJobRequest(job_id="no"), master_pb2.QueryJobsRequest(job_ids=["a"])
            unheard = master_pb2.QueryClusterRequest.FromString(b"\x0a\x03abc")  # with a field that nobody knows
            before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            beats = asyncio.create_task(beat(worker, stub))
            for name, kind, valid, method in (
                ("Register", master_pb2.RegisterRequest, [worker.offer()], service.Register),
                (
                    "Report",
                    master_pb2.ReportRequest,
                    [codec.batch_to(ReportBatch("n0", "second", 1, reports))],  # its instance is not this worker's
                    service.Report,
                ),
                (
                    "SubmitJob",
                    master_pb2.SubmitJobRequest,
                    [codec.submission_to("r", [job("wide", 3), job("x", 999)])],
                    service.SubmitJob,
                ),
                ("CancelJob", master_pb2.CancelJobRequest, [cancel], service.CancelJob),
                ("QueryJobs", master_pb2.QueryJobsRequest, [query], service.QueryJobs),
                ("QueryCluster", master_pb2.QueryClusterRequest, [unheard], service.QueryCluster),
            ):
                codes = await storm_at(name, kind, valid, method)
                assert sum(codes.values()) == CASES
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < MOST_KIB
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)
            order = worker.launches()[0]
            await worker.tell(stub, order, ReportKind.FINISHED, 100)
            await stub.SubmitJob(codec.submission_to("good", [job("good", 1)]), timeout=DEADLINE_S)
            await until(lambda: any(one.job.job_id == "good" for one in worker.launches()), "the next launch")
            (good,) = [one for one in worker.launches() if one.job.job_id == "good"]
            await worker.tell(stub, good, ReportKind.FINISHED, 100)
            await until(lambda: master.board.views(["good"])[0].status.name == "FINISHED", "its end")
            master.stop("enough")
            await running

    asyncio.run(asyncio.wait_for(scenario(), MOST_S))


class PaperLauncher:
    """Starts nothing: the commands of a storm are not to run."""

    def __init__(self) -> None:
        self.started = 0

    def start(self, key, command):
        self.started += 1
        raise OSError("nothing is started here")

    def list(self):
        return {}

    def signal(self, key, number) -> None:
        """Nobody is there."""

    def log_tail(self, key) -> str:
        return ""


def test_the_worker_withstands_a_storm(tmp_path):
    share = NodeShare(0, (0, 1))
    group = TurnGroup(1, 1, (GroupMember("a", 0, 1), GroupMember("b", 2, 1)), 0)
    orders = [
        LaunchOrder(job("a", 2), 1, (share,), 0, 5, "127.0.0.1:9", turns_token="0" * 64),
        PreemptOrder("a", 1),
        TurnsOrder(group, 5),
    ]

    async def scenario():
        launcher = PaperLauncher()
        agent = NodeAgent(lambda hear: launcher, lambda report: None, "127.0.0.1", 1.0, tmp_path, tmp_path)
        agent.start()
        agent.welcome(Welcome(0, 1.0, 0.5, 10.0))
        told = []
        service = WorkerServicer(agent, lambda: told.append("stop"), lambda: "me")
        valid = [codec.orders_to([order], "me") for order in orders] + [codec.orders_to(orders, "me")]
        codes = await storm_at("Carry", worker_pb2.OrdersRequest, valid, service.Carry)
        assert codes[grpc.StatusCode.OK] > CASES / 10
        shutdown = [worker_pb2.ShutdownRequest(reason="over")]
        codes = await storm_at("Shutdown", worker_pb2.ShutdownRequest, shutdown, service.Shutdown)
        assert sum(codes.values()) == CASES
        unheard = worker_pb2.QueryTrainersRequest.FromString(b"\x0a\x03abc")  # with a field that nobody knows
        codes = await storm_at("QueryTrainers", worker_pb2.QueryTrainersRequest, [unheard], service.QueryTrainers)
        assert sum(codes.values()) == CASES
        assert told
        for order in (orders[2], orders[1]):
            reply = await service.Carry(codec.orders_to([order], "me"), Context())
            assert not reply.refused
        assert launcher.started
        await agent.close()

    asyncio.run(asyncio.wait_for(scenario(), MOST_S))


def test_the_turn_server_withstands_a_storm_and_hands_out_turns_afterwards(tmp_path):
    heard = []
    server = TurnServer(tmp_path / "turns", heard.append)
    server.start()
    server.expect("good", 1)
    server.set_group(1, 1, [(("good", 1), 0), (("other", 1), 2)], 1)
    hello = {"t": "hello", "v": 2, "job": "good", "generation": 1, "rank": 0, "world": 1, "done": 0, "turns": True}
    lines = [
        json.dumps(hello).encode() + b"\n" + more
        for more in (
            b'{"t":"ask","done":0}\n{"t":"take","r":[0]}\n{"t":"give"}\n',
            b'{"t":"progress","done":3}\n{"t":"done","done":9}\n',
            b'{"t":"take","r":[0,1]}\n',
        )
    ]
    lines.append(json.dumps({**hello, "helper": 7}).encode() + b'\n{"t":"take","r":[1]}\n{"t":"give"}\n')

    def send(content: bytes) -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(LONGEST_CASE_S)
            sock.connect(server.address.removeprefix("unix:"))
            try:
                sock.sendall(content)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65_536):
                    pass
            except (ConnectionResetError, BrokenPipeError):  # hung up, as it may
                pass

    try:
        for case, content in storm("turns", lines):
            endure(partial(send, content), case)
        server.expect("last", 1)
        server.set_group(2, 1, [(("last", 1), 0)], 1)
        trainer = Trainer(Identity("last", 1, 0, 1, server.address, server.address, 3, 0))
        while trainer.begin_iteration():
            trainer.end_iteration()
        trainer.close()
        asyncio.run(until(lambda: any(event.job_id == "last" for event in heard), "the trainer's word"))
    finally:
        server.close()
