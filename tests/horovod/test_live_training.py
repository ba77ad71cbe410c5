"""Live clusters that train real models: shared, preempted, moved and killed, they end with the bits of a lone run."""

from pathlib import Path

import pytest

from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import Launch, Preempt, RecordEnd, SetTurns
from cluster_exp.domain.events import JobPreempted
from cluster_exp.domain.job import JobStatus
from cluster_exp.interleave.speed import LockstepSpeed
from cluster_exp.protocol.turns import Discipline
from cluster_exp.runtime import codec
from cluster_exp.runtime.local import LiveConfig, run_local
from cluster_exp.runtime.rpc import master_pb2
from tests.horovod.live_training_kit import Killer, Mover, checkpoint_of, ranks_of, real
from tests.runtime.live_kit import Memory, cluster, job, scheduler
from tests.runtime.test_local import Client, wait_for
from tests.workloads.conftest import images, settings_of_torch, text
from tests.workloads.kit import difference, options, train_here
from workloads import checkpoint

__all__ = ["images", "settings_of_torch", "text"]

pytestmark = [pytest.mark.live, pytest.mark.horovod]
FAMILIES = ("resnet18", "gpt2", "a2c", "dqn")
ITERATIONS = 100
WIDE_ITERATIONS = 400  # some seconds at least, in which a third job comes and a rank is killed


def live(folder: Path, jobs, plans: Scheduler, *, gpus=1, interval_s=0.0, comm="horovod", extra=0, **hooks) -> Memory:
    """Runs jobs on two workers to their ends."""
    memory = Memory()
    config = LiveConfig(
        cluster(2, gpus),
        tuple(jobs),
        1.0,
        folder / "logs",
        interval_s=interval_s,
        report_interval_s=0.1,
        turns=Discipline.WORK_CONSERVING,
        comm=comm,
        checkpoint_dir=folder / "checkpoints",
        checkpoint_every=10,
        retries=1,
        retry_wait_s=1.0,
        extra_jobs=extra,
    )
    result = run_local(config, plans, memory, **hooks)
    logs = {path.name: path.read_text()[-3000:] for path in (folder / "logs").iterdir()}
    assert result.complete, logs
    ends = {action.record.job_id: action.record for action in memory.of(RecordEnd)}
    assert {name: ends[name].reason for name in ends if ends[name].status is JobStatus.FAILED} == {}, logs
    return memory


def saved(folder: Path, name: str, rank: int = 0) -> dict:
    state = checkpoint.load(checkpoint_of(folder / "checkpoints", name, rank))
    assert state is not None, list(folder.rglob("*"))
    return state


def test_jobs_of_both_workers_share_are_preempted_and_killed_and_end_with_the_same_bits(images, text, tmp_path):
    chosen = {name: options(name, images, text) for name in ("resnet18", "bert", "a2c")}
    wide = [real(name, chosen[name], 2, WIDE_ITERATIONS) for name in ("resnet18", "bert")]

    def submit_a_short_one(stub) -> None:
        def both_advanced():
            reply = stub.QueryJobs(master_pb2.QueryJobsRequest(job_ids=["resnet18", "bert"]), timeout=10)
            left = [view.remaining_iterations for view in reply.jobs]
            return len(left) == 2 and max(left) < WIDE_ITERATIONS - 10

        wait_for(both_advanced, "both jobs to advance", within_s=120)
        short = real("a2c", chosen["a2c"], 1, 4)  # 4 s as stated, the others have more left as measured
        stub.SubmitJob(codec.submission_to("short", [short]), timeout=10)

    client = Client(submit_a_short_one)
    shared = tmp_path / "shared"
    killer = Killer("bert", 1, lambda: checkpoint_of(shared / "checkpoints", "bert", 1).exists())
    memory = live(shared, wide, scheduler("muri-s"), extra=1, on_progress=killer, on_address=client.begin)
    client.finish()

    assert killer.killed
    retries = [event for event in memory.of(JobPreempted) if event.reason]
    assert [(event.job_id, event.reason[:13]) for event in retries] == [("bert", "retry 1 of 1:")]
    assert {action.job_id for action in memory.of(Preempt)} & {"resnet18", "bert"}
    assert {"resnet18", "bert"} in [{m.job_id for m in turns.group.members} for turns in memory.of(SetTurns)]
    spans = {action.job.job_id: len(action.allotment.shares) for action in memory.of(Launch)}
    assert spans == {"resnet18": 2, "bert": 2, "a2c": 1}
    assert not any(ranks_of(name) for name in chosen)
    for job_ in wide:
        alone = tmp_path / job_.job_id
        live(alone, [job_], scheduler("fifo"), comm="torch")
        for rank in (0, 1):
            ours, theirs = saved(shared, job_.job_id, rank), saved(alone, job_.job_id, rank)
            assert ours["iterations"] == WIDE_ITERATIONS
            assert difference(ours, theirs) == []


def test_four_that_share_a_gpu_and_move_three_times_end_with_the_bits_of_a_lone_run(images, text, tmp_path):
    jobs = [real(name, options(name, images, text), 1, ITERATIONS) for name in FAMILIES]
    mover = Mover(ITERATIONS, every=5, moves=3)
    plans = Scheduler(mover, LockstepSpeed(), PLACEMENTS["consolidated"])

    def cancel_the_blocker(stub) -> None:
        def over():
            reply = stub.QueryJobs(master_pb2.QueryJobsRequest(job_ids=FAMILIES), timeout=10)
            ends = (master_pb2.JOB_STATE_FINISHED, master_pb2.JOB_STATE_FAILED)
            return len(reply.jobs) == len(FAMILIES) and all(view.state in ends for view in reply.jobs)

        wait_for(over, "the jobs to end", within_s=240)
        stub.CancelJob(master_pb2.CancelJobRequest(job_id="blocker"), timeout=10)

    client = Client(cancel_the_blocker)
    memory = live(
        tmp_path / "moved",
        [job("blocker", 1, 10**6), *jobs],
        plans,
        interval_s=0.1,
        on_address=client.begin,
    )
    client.finish()
    for name in FAMILIES:
        nodes = [action.allotment.lead_node for action in memory.of(Launch) if action.job.job_id == name]
        assert nodes == [1, 0, 1, 0]
        alone = tmp_path / "alone" / name
        length = ("--iterations", str(ITERATIONS), "--checkpoint-dir", str(alone))
        train_here(name, *options(name, images, text), *length)
        theirs = checkpoint.load(checkpoint.path_of(alone, 0))
        assert difference(saved(tmp_path / "moved", name), theirs) == []
    assert any(len(turns.group.members) == 4 for turns in memory.of(SetTurns))
