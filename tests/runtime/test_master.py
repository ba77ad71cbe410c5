"""The master over real gRPC, with workers that do only what a test tells them."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest

from cluster_exp.domain.actions import Launch, RecordEnd
from cluster_exp.domain.events import (
    JobArrived,
    JobFailed,
    JobFinished,
    JobPreempted,
    JobStarted,
    PlanDue,
    Progressed,
    WorkerLost,
)
from cluster_exp.domain.job import JobStatus
from cluster_exp.protocol.messages import PreemptOrder, ReportKind, TrainerReport, TurnsOrder
from cluster_exp.runtime import codec
from cluster_exp.runtime import master as runtime_master
from cluster_exp.runtime.rpc import common_pb2, master_pb2
from tests.runtime.live_kit import DEADLINE_S, cluster, job, paper_run, until

STARTED, PROGRESS, FINISHED, PREEMPTED, FAILED, _ = ReportKind


@asynccontextmanager
async def refusal(code: grpc.StatusCode, words: str):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield
    assert caught.value.code() is code
    assert words in caught.value.details()


def run(scenario) -> None:
    asyncio.run(asyncio.wait_for(scenario, 30))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol_version": 99}, "node n0 speaks protocol version 99"),
        ({"node": "n7"}, "node n7 is not in the cluster"),
    ],
)
def test_unwelcome_workers_are_refused_by_name(changes, words):
    async def scenario():
        async with (
            paper_run([], cluster(), extra=1) as (_, stub, workers, _, _),
            refusal(grpc.StatusCode.FAILED_PRECONDITION, words),
        ):
            await stub.Register(workers[0].offer(**changes), timeout=DEADLINE_S)

    run(scenario())


def test_the_same_worker_may_register_twice_and_other_gpus_than_described_are_refused():
    async def scenario():
        async with paper_run([], cluster(), extra=1) as (master, stub, workers, _, _):
            reply = await stub.Register(workers[1].offer(), timeout=DEADLINE_S)
            assert reply.node_id == 1
            async with refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "node n1 has a worker already"):
                await stub.Register(workers[1].offer(instance="second"), timeout=DEADLINE_S)
            master.roster.drop(1)
            words = "offers 5 GPUs, the cluster's description has 2"
            async with refusal(grpc.StatusCode.FAILED_PRECONDITION, words):
                await stub.Register(workers[1].offer(num_gpu=5), timeout=DEADLINE_S)

    run(scenario())


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (master_pb2.RegisterRequest(node="n0", instance="i", worker_address="nowhere"), "worker_address"),
        (master_pb2.RegisterRequest(node="n0\n", instance="i"), "node"),
    ],
)
def test_bad_fields_are_named(message, field):
    async def scenario():
        async with (
            paper_run([], cluster(), extra=1) as (_, stub, _, _, _),
            refusal(grpc.StatusCode.INVALID_ARGUMENT, field),
        ):
            await stub.Register(message, timeout=DEADLINE_S)

    run(scenario())


def test_a_repeated_batch_counts_once_and_a_missing_one_is_refused():
    async def scenario():
        async with paper_run([job("a")], cluster(1)) as (_, stub, (worker,), memory, running):
            await until(worker.launches, "a launch")
            order = worker.launches()[0]
            batch = (
                TrainerReport("a", order.generation, STARTED, 0),
                TrainerReport("a", order.generation, PROGRESS, 40),
            )
            assert await worker.report(stub, *batch, sequence=2) == 2
            assert await worker.report(stub, *batch, sequence=2) == 2
            async with refusal(grpc.StatusCode.FAILED_PRECONDITION, "number 3 is the next"):
                await worker.report(stub, sequence=4)
            worker.sequence = 2
            await worker.tell(stub, order, FINISHED, 100)
            assert await asyncio.wait_for(running, DEADLINE_S)
            assert len(memory.of(JobStarted)) == 1
            assert memory.of(Progressed)[0].remaining_iterations == (60.0,)
            assert len(memory.of(JobFinished)) == 1
            times = [event.time_s for event, _ in memory.entries]
            assert times == sorted(times)

    run(scenario())


def test_turns_are_known_to_the_lead_node_before_any_part_is_launched():
    async def scenario():
        async with paper_run([job("wide", 4)], cluster()) as (_, stub, workers, memory, running):
            lead, other = workers
            await until(lambda: lead.launches() and other.launches(), "two launches")
            assert [type(order) for order in lead.orders][:2] == [TurnsOrder, type(lead.launches()[0])]
            assert {order.turns_address for worker in workers for order in worker.launches()} == {"127.0.0.1:10"}
            order = lead.launches()[0]
            assert order.iterations_per_turn == 1
            await lead.tell(stub, order, STARTED)
            assert not memory.of(JobStarted)
            await other.tell(stub, order, STARTED)
            await until(lambda: memory.of(JobStarted), "the start of all parts")
            await lead.tell(stub, order, FINISHED, 100)
            assert not memory.of(JobFinished)
            await other.tell(stub, order, FINISHED, 100)
            assert await asyncio.wait_for(running, DEADLINE_S)
            assert [action.record.status for action in memory.of(RecordEnd)] == [JobStatus.FINISHED]

    run(scenario())


def test_a_failure_on_one_node_stops_the_others_and_fails_the_job_once():
    async def scenario():
        async with paper_run([job("wide", 4)], cluster()) as (_, stub, workers, memory, running):
            lead, other = workers
            await until(lambda: lead.launches() and other.launches(), "two launches")
            order = lead.launches()[0]
            await other.tell(stub, order, FAILED, 7, "exit code 3")
            await until(lambda: lead.of(PreemptOrder), "a stop order")
            assert not memory.of(JobFailed)
            await lead.tell(stub, order, PREEMPTED, 9)
            assert await asyncio.wait_for(running, DEADLINE_S)
            assert [event.reason for event in memory.of(JobFailed)] == ["exit code 3"]

    run(scenario())


def test_a_launch_that_a_worker_refuses_fails_the_job():
    async def scenario():
        async with paper_run([], cluster(1), extra=1) as (_, stub, (worker,), memory, running):
            worker.refuses = "not here"
            await stub.SubmitJob(codec.submission_to("r1", [job("a")]), timeout=DEADLINE_S)
            assert await asyncio.wait_for(running, DEADLINE_S)
            (failed,) = memory.of(JobFailed)
            assert "node n0 cannot launch it" in failed.reason

    run(scenario())


def test_a_shorter_job_preempts_and_the_longer_one_resumes_where_it_was():
    async def scenario():
        jobs = [job("long", 2, 1000), job("short", 2, 10, submit_s=1.0)]
        async with paper_run(jobs, cluster(1), scale=20) as (_, stub, (worker,), memory, running):
            await until(worker.launches, "a launch")
            first = worker.launches()[0]
            await worker.tell(stub, first, STARTED)
            await until(lambda: worker.of(PreemptOrder), "a preemption")
            assert worker.of(PreemptOrder) == [PreemptOrder("long", 1)]
            await worker.tell(stub, first, PREEMPTED, 321)
            await until(lambda: len(worker.launches()) == 2, "the short job")
            short = worker.launches()[1]
            assert short.job.job_id == "short"
            await worker.tell(stub, first, PROGRESS, 999)  # of a launch that is over
            await worker.tell(stub, short, FINISHED, 10)
            await until(lambda: len(worker.launches()) == 3, "the long job again")
            again = worker.launches()[2]
            assert (again.job.job_id, again.generation, again.iterations_done) == ("long", 2, 321)
            await worker.tell(stub, again, FINISHED, 1000)
            assert await asyncio.wait_for(running, DEADLINE_S)
            assert [event.remaining_iterations for event in memory.of(JobPreempted)] == [679.0]

    run(scenario())


def test_submitting_is_idempotent_and_names_what_is_wrong():
    async def scenario():
        async with paper_run([], cluster(1), extra=2) as (_, stub, (worker,), memory, running):
            request = codec.submission_to("r1", [job("a"), job("b")])
            first = await stub.SubmitJob(request, timeout=DEADLINE_S)
            again = await stub.SubmitJob(request, timeout=DEADLINE_S)
            assert again.submit_s == first.submit_s
            assert len(memory.of(JobArrived)) == 2
            async with refusal(grpc.StatusCode.ALREADY_EXISTS, "request r1"):
                await stub.SubmitJob(codec.submission_to("r1", [job("c")]), timeout=DEADLINE_S)
            async with refusal(grpc.StatusCode.ALREADY_EXISTS, "job a"):
                await stub.SubmitJob(codec.submission_to("r2", [job("a")]), timeout=DEADLINE_S)
            async with refusal(grpc.StatusCode.INVALID_ARGUMENT, "asks for 3 GPUs, the cluster has 2"):
                await stub.SubmitJob(codec.submission_to("r3", [job("c", 3)]), timeout=DEADLINE_S)
            async with refusal(grpc.StatusCode.INVALID_ARGUMENT, "jobs[0].profile.iteration_s"):
                bare = common_pb2.JobSpec(job_id="c", num_gpu=1)
                bad = master_pb2.SubmitJobRequest(request_id="r4", jobs=[bare])
                await stub.SubmitJob(bad, timeout=DEADLINE_S)
            await until(lambda: len(worker.launches()) == 2, "two launches")
            for order in worker.launches():
                await worker.tell(stub, order, FINISHED, 100)
            assert await asyncio.wait_for(running, DEADLINE_S)

    run(scenario())


def test_jobs_can_be_asked_after_and_cancelled():
    async def scenario():
        async with paper_run([job("a", 2), job("b", 2)], cluster(1)) as (_, stub, (worker,), memory, running):
            await until(worker.launches, "a launch")
            order = worker.launches()[0]
            await worker.tell(stub, order, STARTED)
            await stub.CancelJob(master_pb2.CancelJobRequest(job_id="b"), timeout=DEADLINE_S)
            async with refusal(grpc.StatusCode.NOT_FOUND, "no job z"):
                await stub.CancelJob(master_pb2.CancelJobRequest(job_id="z"), timeout=DEADLINE_S)
            reply = await stub.QueryJobs(master_pb2.QueryJobsRequest(), timeout=DEADLINE_S)
            views = {view.job_id: view for view in map(codec.job_view_from, reply.jobs)}
            assert views["a"].status is JobStatus.RUNNING
            assert views["a"].shares[0].gpus == (0, 1)
            assert views["b"].status is JobStatus.CANCELLED
            reply = await stub.QueryCluster(master_pb2.QueryClusterRequest(), timeout=DEADLINE_S)
            (node,) = reply.nodes
            assert (node.node, node.registered, list(node.job_ids)) == ("n0", True, ["a"])
            await stub.CancelJob(master_pb2.CancelJobRequest(job_id="a"), timeout=DEADLINE_S)
            await until(lambda: worker.of(PreemptOrder), "a stop order")
            await worker.tell(stub, order, PREEMPTED, 5)
            assert await asyncio.wait_for(running, DEADLINE_S)
            assert {action.record.status for action in memory.of(RecordEnd)} == {JobStatus.CANCELLED}

    run(scenario())


def test_a_silent_worker_is_lost_and_its_jobs_run_elsewhere():
    async def scenario():
        jobs = [job("wide", 4), job("a", 1, 500)]
        async with paper_run(jobs, cluster()) as (master, stub, workers, memory, running):
            lead, other = workers
            await until(lambda: lead.launches() and other.launches(), "two launches")
            order = lead.launches()[0]
            master.roster.members[1].heard_s -= 1000
            await until(lambda: memory.of(WorkerLost), "the loss")
            assert memory.of(WorkerLost)[0].node == 1
            await until(lambda: lead.of(PreemptOrder), "a stop order for the part that is left")
            await lead.tell(stub, order, PREEMPTED, 3)
            async with refusal(grpc.StatusCode.FAILED_PRECONDITION, "node n1 is not registered"):
                await other.report(stub)
            await until(lambda: len(lead.launches()) == 2, "the job that fits")
            assert lead.launches()[1].job.job_id == "a"
            other.instance, other.sequence = "second", 0
            await stub.Register(other.offer(), timeout=DEADLINE_S)
            await other.report(stub)
            await lead.tell(stub, lead.launches()[1], FINISHED, 500)
            await until(lambda: len(lead.launches()) == 3 and len(other.launches()) == 2, "the wide job again")
            again = lead.launches()[2]
            assert again.generation == 2
            await lead.tell(stub, again, FINISHED, 100)
            await other.tell(stub, again, FINISHED, 100)
            assert await asyncio.wait_for(running, DEADLINE_S)

    run(scenario())


def test_with_rounds_the_master_plans_at_their_times_only():
    async def scenario():
        jobs = [job("a"), job("b", submit_s=1.0)]
        async with paper_run(jobs, cluster(1), scale=20, interval_s=5.0) as (_, stub, (worker,), memory, running):
            await until(lambda: len(worker.launches()) == 2, "both launches")
            starts_s = [action.time_s for action in memory.of(Launch)]
            assert starts_s[0] < 1.0
            assert starts_s[1] >= 5.0
            for order in worker.launches():
                await worker.tell(stub, order, FINISHED, 100)
            assert await asyncio.wait_for(running, DEADLINE_S)
            rounds = [event.time_s for event in memory.of(PlanDue)]
            assert all(after // 5.0 > before // 5.0 for before, after in itertools.pairwise(rounds))

    run(scenario())


def test_progress_that_many_workers_report_at_once_becomes_few_events_and_loses_nothing():
    async def scenario():
        jobs = [job(f"j{i}", 2) for i in range(60)]
        async with paper_run(jobs, cluster(60)) as (_, stub, workers, memory, running):
            await until(lambda: all(worker.launches() for worker in workers), "all launches")
            orders = [worker.launches()[0] for worker in workers]
            told = zip(workers, orders, strict=True)
            await asyncio.gather(*(worker.tell(stub, order, PROGRESS, 40) for worker, order in told))
            progress = memory.of(Progressed)
            assert sorted(sum((event.job_ids for event in progress), ())) == sorted(spec.job_id for spec in jobs)
            assert {left for event in progress for left in event.remaining_iterations} == {60.0}
            assert len(progress) < len(jobs)
            told = zip(workers, orders, strict=True)
            await asyncio.gather(*(worker.tell(stub, order, FINISHED, 100) for worker, order in told))
            assert await asyncio.wait_for(running, DEADLINE_S)
            assert len(memory.of(JobFinished)) == len(jobs)
            times = [event.time_s for event, _ in memory.entries]
            assert times == sorted(times)

    run(scenario())


def test_what_a_job_reported_last_is_known_when_it_fails():
    async def scenario():
        async with paper_run([job("a")], cluster(1)) as (master, stub, (worker,), memory, running):
            await until(worker.launches, "a launch")
            order = worker.launches()[0]
            generation = order.generation
            batch = (
                TrainerReport("a", generation, STARTED, 0),
                TrainerReport("a", generation, PROGRESS, 30),
                TrainerReport("a", generation, FAILED, 31, "exit code 1"),
            )
            await worker.report(stub, *batch)
            assert await asyncio.wait_for(running, DEADLINE_S)
            kinds = [type(event) for event, _ in memory.entries]
            assert kinds.index(Progressed) < kinds.index(JobFailed)
            assert memory.of(Progressed)[-1].remaining_iterations == (69.0,)
            assert [view.remaining_iterations for view in master.board.views(["a", "stranger"])] == [69.0]

    run(scenario())


def test_a_flood_of_submissions_is_turned_away_with_a_hint_and_what_was_taken_stays(monkeypatch):
    most, flood = 40, 400
    monkeypatch.setattr(runtime_master, "_MOST_LIVE", most)
    monkeypatch.setattr(runtime_master, "_QUEUE_LIMIT", 100)

    async def scenario():
        async with paper_run([job("first")], cluster(1)) as (master, stub, (worker,), _, running):
            await until(worker.launches, "a launch")

            async def submit(number: int) -> bool:
                request = codec.submission_to(f"r{number}", [job(f"j{number}")])
                call = stub.SubmitJob(request, timeout=DEADLINE_S)
                if await call.code() is grpc.StatusCode.OK:
                    return True
                assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert ("retry-after", "1") in list(await call.trailing_metadata())
                return False

            taken = [n for n, ok in enumerate(await asyncio.gather(*map(submit, range(flood)))) if ok]
            assert len(taken) == most - 1  # beside the one that was there
            reply = await stub.QueryJobs(master_pb2.QueryJobsRequest(), timeout=DEADLINE_S)
            assert {one.job_id for one in reply.jobs} == {"first", *(f"j{n}" for n in taken)}
            for number in taken:
                await stub.CancelJob(master_pb2.CancelJobRequest(job_id=f"j{number}"), timeout=DEADLINE_S)
            late = next(n for n in range(flood) if n not in taken)
            assert await submit(late)  # the same request, with its id, when there is room
            await worker.tell(stub, worker.launches()[0], FINISHED, 100)
            await until(lambda: master.board.views(["first"])[0].status.name == "FINISHED", "the first job's end")
            master.stop("enough")
            await running

    run(scenario())
