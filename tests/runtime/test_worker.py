"""A real worker with emulated trainers, in one event loop with a real master."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from cluster_exp.domain.actions import Launch
from cluster_exp.domain.allotment import NodeShare
from cluster_exp.domain.events import JobFinished, JobStarted, Progressed, WorkerJoined, WorkerLost
from cluster_exp.protocol.messages import (
    PROTOCOL_VERSION,
    LaunchOrder,
    PreemptOrder,
    Registration,
    ReportKind,
    TrainerReport,
    TrainerState,
    Welcome,
)
from cluster_exp.protocol.outbox import Outbox
from cluster_exp.runtime import codec
from cluster_exp.runtime.commands import package_path
from cluster_exp.runtime.master import Master
from cluster_exp.runtime.rpc import master_pb2, worker_pb2
from cluster_exp.runtime.rpc.master_pb2_grpc import (
    MasterServiceServicer,
    add_MasterServiceServicer_to_server,
)
from cluster_exp.runtime.rpc.worker_pb2_grpc import WorkerServiceStub
from cluster_exp.runtime.services import SERVER_OPTIONS
from cluster_exp.runtime.settings import MasterConfig
from cluster_exp.runtime.worker import Worker, WorkerConfig, WorkerRefusedError
from tests.runtime.live_kit import DEADLINE_S, Memory, cluster, job, scheduler, until

pytestmark = pytest.mark.live
SCALE = 100.0


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario, 40))


@asynccontextmanager
async def running_worker(master: str, log_dir, **changes):
    worker = Worker(WorkerConfig(**{"master": master, "node": "n0", "num_gpu": 2, "log_dir": log_dir, **changes}))
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.gather(task, return_exceptions=True)


class PaperMaster(MasterServiceServicer):
    """A master that takes every batch, or fails to, and notes the reports of each number."""

    def __init__(self) -> None:
        self.left: list[str] = []  # nodes whose worker said that it leaves
        self.offers: list[Registration] = []
        self.batches: dict[int, tuple[TrainerReport, ...]] = {}
        self.repeats = 0
        self.lost_answers = 0
        self.welcome = codec.welcome_to(Welcome(0, SCALE, report_interval_s=0.05, lease_s=10))

    async def Register(self, request, context):
        self.offers.append(codec.registration_from(request))
        return self.welcome

    async def Report(self, requests, context):
        async for request in requests:
            batch = codec.batch_from(request)
            known = self.batches.setdefault(batch.sequence, batch.reports)
            assert known == batch.reports
            if self.lost_answers:
                self.lost_answers -= 1
                self.repeats += 1
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer is lost")
            if batch.leaving:
                self.left.append(batch.node)
            yield master_pb2.ReportReply(acknowledged=batch.sequence)

    def reports(self, kind: ReportKind) -> list[TrainerReport]:
        return [report for batch in self.batches.values() for report in batch if report.kind is kind]


@asynccontextmanager
async def paper_master(servicer: PaperMaster | None = None, port: int = 0):
    servicer = servicer or PaperMaster()
    server = grpc.aio.server(options=SERVER_OPTIONS)
    add_MasterServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield servicer, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def launch(turns_address, generation=1, done=0, iterations=100_000) -> LaunchOrder:
    return LaunchOrder(
        job("a", 2, iterations), generation, (NodeShare(0, (0, 1)),), done, 5, turns_address, turns_token="0" * 64
    )


async def carry(stub: WorkerServiceStub, instance: str, *orders) -> list[str]:
    """Sends orders; returns why some were refused."""
    reply = await stub.Carry(codec.orders_to(orders, instance), timeout=DEADLINE_S)
    return [refusal.reason for refusal in reply.refused]


def test_launch_preempt_and_resume_over_grpc(tmp_path):
    async def scenario():
        async with paper_master() as (master, address), running_worker(address, tmp_path):
            await until(lambda: master.offers, "the registration")
            offer = master.offers[0]
            async with grpc.aio.insecure_channel(offer.worker_address) as channel:
                stub = WorkerServiceStub(channel)
                for _ in range(2):
                    assert not await carry(stub, offer.instance, launch(offer.turns_address))
                await until(lambda: master.reports(ReportKind.PROGRESS), "progress")
                reply = await stub.QueryTrainers(worker_pb2.QueryTrainersRequest(), timeout=DEADLINE_S)
                (status,) = codec.statuses_from(reply)
                assert (status.job_id, status.generation, status.state) == ("a", 1, TrainerState.RUNNING)
                assert status.last_report_age_s is not None
                assert status.last_report_age_s < DEADLINE_S
                master.lost_answers = 2
                for _ in range(2):
                    assert not await carry(stub, offer.instance, PreemptOrder("a", 1))
                await until(lambda: master.reports(ReportKind.PREEMPTED), "the trainer to leave")
                await until(lambda: master.repeats == 2, "repeated batches")
                (left,) = master.reports(ReportKind.PREEMPTED)
                assert left.iterations_done > 0
                assert left.iterations_done % 5 == 0
                (why,) = await carry(stub, offer.instance, launch("nowhere", 2), PreemptOrder("nobody", 1))
                assert "turns_address: 'nowhere' given" in why
                again = launch(offer.turns_address, 2, left.iterations_done, left.iterations_done + 20)
                assert not await carry(stub, offer.instance, again)
                await until(lambda: master.reports(ReportKind.FINISHED), "the end")
                assert master.reports(ReportKind.FINISHED)[0].iterations_done == left.iterations_done + 20
                assert len(master.reports(ReportKind.STARTED)) == 2
                (why,) = await carry(stub, offer.instance, launch(offer.turns_address))
                assert why == "generation 2 of job a was launched already"

    run(scenario())


def test_a_worker_waits_for_a_master_that_comes_later_and_leaves_when_told(tmp_path):
    async def scenario():
        memory = Memory()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with running_worker(f"127.0.0.1:{port}", tmp_path) as worker:
            master = Master(MasterConfig(cluster(1), SCALE, bind=f"127.0.0.1:{port}"), scheduler(), memory)
            await master.start()
            assert await asyncio.wait_for(master.run([job("a", 2, 20)]), DEADLINE_S)
            await master.close("over")
            await until(worker.stopping.is_set, "the worker to be told")
        assert not list(tmp_path.glob("trainer-*"))

    run(scenario())


def test_a_worker_that_was_frozen_for_longer_than_its_lease_starts_anew(tmp_path):
    async def scenario():
        memory = Memory()
        master = Master(MasterConfig(cluster(1), SCALE, lease_s=0.8), scheduler(), memory)
        address = await master.start()
        argv = [sys.executable, "-m", "cluster_exp.runtime.worker_main", "--master", address, "--node", "n0"]
        argv += ["--gpus", "2", "--log-dir", str(tmp_path)]
        task = asyncio.create_task(master.run([job("a", 2, 300)]))
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL, env={**os.environ, **package_path()}) as worker:
            await until(lambda: memory.of(Progressed), "progress")
            worker.send_signal(signal.SIGSTOP)
            await until(lambda: memory.of(WorkerLost), "the loss")
            worker.send_signal(signal.SIGCONT)
            assert await asyncio.wait_for(task, DEADLINE_S)
            await master.close("over")
            assert worker.wait(DEADLINE_S) == 0
        assert len(memory.of(WorkerJoined)) == 2
        assert [action.generation for action in memory.of(Launch)] == [1, 2]
        assert len(memory.of(JobFinished)) == 1

    run(scenario())


def test_a_second_worker_of_a_node_waits_until_the_first_is_gone(tmp_path, caplog):
    async def scenario():
        master = Master(MasterConfig(cluster(), SCALE), scheduler(), Memory())
        address = await master.start()
        task = asyncio.create_task(master.run([], 1))
        async with running_worker(address, tmp_path):
            await until(lambda: 0 in master.roster.members, "the first worker")
            first = master.roster.members[0].registration.instance
            second = Worker(WorkerConfig(address, "n0", 2, tmp_path))
            waiting = asyncio.create_task(second.run())
            await until(lambda: "node n0 has a worker already" in caplog.text, "the second worker to be told")
            assert "heard 0." in caplog.text
            assert not waiting.done()
            master.roster.drop(0)  # as when the first one's lease has lapsed
            await until(lambda: 0 in master.roster.members, "another worker")
            assert master.roster.members[0].registration.instance != first
            second.stop()
            await waiting
            master.stop("test over")
            await task
            await master.close("test over")

    run(scenario())


def test_a_master_that_answers_nonsense_is_named(tmp_path):
    async def scenario():
        async with paper_master() as (master, address):
            for welcome, words in (
                (
                    master_pb2.RegisterReply(protocol_version=PROTOCOL_VERSION),
                    "registration: time_scale",
                ),
                (master_pb2.RegisterReply(), "the master speaks protocol version 0, this worker speaks"),
            ):
                master.welcome = welcome
                with pytest.raises(WorkerRefusedError, match=words):
                    await Worker(WorkerConfig(address, "n0", 2, tmp_path)).run()

    run(scenario())


def test_a_worker_that_is_told_to_leave_lets_its_trainers_finish_their_iteration(tmp_path):
    async def scenario():
        async with paper_master() as (master, address):
            worker = Worker(WorkerConfig(address, "n0", 2, tmp_path))
            task = asyncio.create_task(worker.run())
            await until(lambda: master.offers, "the registration")
            offer = master.offers[0]
            async with grpc.aio.insecure_channel(offer.worker_address) as channel:
                stub = WorkerServiceStub(channel)
                assert not await carry(stub, offer.instance, launch(offer.turns_address))
                await until(lambda: master.reports(ReportKind.PROGRESS), "progress")
                worker.drain()
                await asyncio.sleep(0)  # it begins
                assert not await carry(
                    stub, offer.instance, launch(offer.turns_address, 2)
                )  # goes back when the node is gone
            await asyncio.wait_for(task, DEADLINE_S)
            (left,) = master.reports(ReportKind.PREEMPTED)
            assert left.iterations_done % 5 == 0
            assert left.generation == 1
            assert master.left == ["n0"]
            last = max(master.batches)
            assert left in master.batches[last]
            assert not any(
                report.kind is ReportKind.STARTED and report.generation == 2 for report in left_over(master)
            )

    run(scenario())


def left_over(master: PaperMaster) -> list[TrainerReport]:
    return [report for batch in master.batches.values() for report in batch]


class Proxy:
    """Carries bytes between a worker and its master, until it is cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.open = asyncio.Event()
        self.open.set()
        self._tasks: set[asyncio.Task] = set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader, writer) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [asyncio.create_task(self._carry(*way)) for way in ((reader, back), (there, writer))]
        self._tasks.update(ways)
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, back):
            end.close()

    async def _carry(self, reader, writer) -> None:
        while data := await reader.read(65_536):
            await self.open.wait()  # a cut network keeps connections, and carries nothing
            writer.write(data)
            await writer.drain()

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def test_a_worker_behind_a_cut_network_is_lost_and_its_job_counts_once(tmp_path):
    async def scenario():
        memory = Memory()
        master = Master(MasterConfig(cluster(), SCALE, lease_s=1.0), scheduler(), memory)
        address = await master.start()
        proxy = Proxy(int(address.rpartition(":")[2]))
        behind = await proxy.start()
        task = asyncio.create_task(master.run([job("a", 2, 600)]))
        async with (
            running_worker(behind, tmp_path) as cut,
            running_worker(address, tmp_path, node="n1") as other,
        ):
            await until(lambda: cut.statuses() and memory.of(JobStarted), "the job to run on the first node")
            proxy.open.clear()
            await until(lambda: memory.of(WorkerLost), "the loss")
            await until(other.statuses, "the job to run on the other node")
            assert [status.generation for status in cut.statuses()] == [1]  # it does not know yet
            assert [status.generation for status in other.statuses()] == [2]
            proxy.open.set()
            await until(lambda: len(memory.of(WorkerJoined)) == 3, "the worker to come back")
            await until(lambda: not cut.statuses(), "what it ran to be ended")
            assert await asyncio.wait_for(task, 30)
            await master.close("over")
        await proxy.stop()
        (done,) = memory.of(JobFinished)
        assert done.generation == 2

    run(scenario())


def test_a_worker_outlives_its_master_and_loses_no_word(tmp_path):
    async def scenario():
        async with paper_master() as (master, address):
            worker = Worker(WorkerConfig(address, "n0", 2, tmp_path))
            task = asyncio.create_task(worker.run())
            await until(lambda: master.offers, "the registration")
            offer = master.offers[0]
            async with grpc.aio.insecure_channel(offer.worker_address) as channel:
                assert not await carry(
                    WorkerServiceStub(channel), offer.instance, launch(offer.turns_address, iterations=60)
                )
            await until(lambda: master.reports(ReportKind.STARTED), "the start")
        taken = max(master.batches)
        assert not master.reports(ReportKind.FINISHED)
        log = tmp_path / "trainer-a-n0.log"
        await until(lambda: not worker.statuses(), "the trainer to end without a master")
        async with paper_master(master, int(address.rpartition(":")[2])):
            await until(lambda: master.reports(ReportKind.FINISHED), "the end to be told")
            assert len(master.offers) == 1
            assert sorted(master.batches) == list(range(1, max(master.batches) + 1))
            assert max(master.batches) > taken
            assert not log.exists()
            worker.stop()
            await task

    run(scenario())


def test_an_unacknowledged_batch_stays_as_it_is_and_progress_is_merged():
    told = []
    box = Outbox("n0", "x", lambda: told.append(1))
    box.add(TrainerReport("a", 1, ReportKind.PROGRESS, 1))
    assert not box.urgent
    box.add(TrainerReport("a", 1, ReportKind.PROGRESS, 2))
    first = box.batch()
    assert [report.iterations_done for report in first.reports] == [2]
    box.add(TrainerReport("a", 1, ReportKind.PROGRESS, 3))
    box.add(TrainerReport("a", 1, ReportKind.FINISHED, 4))
    assert told == [1]
    assert box.batch() is first
    box.acknowledged(0)
    assert box.batch() is first
    box.acknowledged(first.sequence)
    assert box.urgent
    second = box.batch()
    assert (second.sequence, [report.kind for report in second.reports]) == (2, [ReportKind.FINISHED])
    assert not box.urgent
