"""GPU utilisation and interleaving efficiency on cases worked out by hand."""

import pytest

from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.core.recorder import Session
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import GroupMember, Launch, Preempt, SetTurns, TurnGroup, UseProfile
from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.events import (
    CancelRequested,
    JobArrived,
    JobFailed,
    JobFinished,
    JobPreempted,
    JobStarted,
    Measured,
    PlanDue,
    Progressed,
    WorkerJoined,
    WorkerLost,
)
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.speed import LockstepSpeed
from cluster_exp.policies.registry import make_policy
from cluster_exp.results.usage import UsageMeter

EVEN = StageProfile(1.0, 0.25, 0.25, 0.25, 0.25)
LOADER = StageProfile(1.0, 0.8, 0.0, 0.2, 0.0)
LEARNER = StageProfile(1.0, 0.2, 0.0, 0.8, 0.0)


def job(name: str, num_gpu: int = 1, profile: StageProfile = EVEN, iterations: int = 100) -> JobSpec:
    return JobSpec(name, num_gpu, 0.0, iterations, float(iterations), "m", 1, profile)


class Run:
    """A scheduler whose events the meter sees."""

    def __init__(self, policy: str, gpus: tuple[int, ...]) -> None:
        speed = LockstepSpeed()
        self.meter = UsageMeter(speed)
        self.session = Session(Scheduler(make_policy(policy), speed, PLACEMENTS["consolidated"]), self.meter)
        for node, num_gpu in enumerate(gpus):
            self.session.handle(WorkerJoined(0.0, node, NodeSpec(f"n{node}", num_gpu)))

    def start(self, *jobs: JobSpec) -> None:
        for spec in jobs:
            self.session.handle(JobArrived(0.0, spec))
        for action in self.session.handle(PlanDue(0.0)):
            if isinstance(action, Launch):
                self.session.handle(JobStarted(0.0, action.job.job_id, action.generation))


def test_a_job_alone():
    run = Run("srsf", (4,))
    run.start(job("a", 2))
    run.session.handle(JobFinished(120.0, "a", 1))
    usage = run.meter.usage()
    assert usage.gpu_busy_s == pytest.approx(0.25 * 100 * 2)
    assert usage.held_gpu_s == pytest.approx(240.0)
    assert usage.mean_efficiency == pytest.approx(0.25)  # busy / (4 x iteration)


def test_two_that_share_a_gpu_and_one_that_stays():
    run = Run("muri-s", (1,))
    run.start(job("a", profile=LOADER), job("b", profile=LEARNER))
    # Best order: in one slot a loads while b computes (0.8), in another they change (0.2): a cycle of 1 s.
    run.session.handle(JobFinished(100.0, "a", 1))
    assert run.meter.usage().mean_efficiency == pytest.approx(2.0 / (4 * 1.0))
    run.session.handle(Progressed(100.0, ("b",), (60.0,)))
    run.session.handle(JobFinished(160.0, "b", 1))
    usage = run.meter.usage()
    assert usage.held_gpu_s == pytest.approx(160.0)
    assert usage.efficient_gpu_s == pytest.approx(100 * 0.5 + 60 * 0.25)
    assert usage.gpu_busy_s == pytest.approx(0.2 * 100 + 0.8 * 100)


def test_a_lost_worker_ends_only_what_ran_on_it():
    run = Run("srsf", (1, 1))
    run.start(job("a"), job("b"))
    lost = 0
    run.session.handle(WorkerLost(50.0, lost, "gone"))
    for name in "ab":
        run.session.handle(JobFinished(100.0, name, 1))  # of the job that was lost: no news
    assert run.meter.usage().held_gpu_s == pytest.approx(50.0 + 100.0)


def test_jobs_that_still_run_count_up_to_the_last_event():
    run = Run("srsf", (1,))
    run.start(job("a"))
    run.session.handle(Progressed(40.0, ("a",), (70.0,)))
    usage = run.meter.usage()
    assert usage.gpu_busy_s == pytest.approx(0.25 * 30)
    assert usage.held_gpu_s == pytest.approx(40.0)
    assert usage.mean_efficiency == pytest.approx(0.25)


def test_a_failed_and_a_cancelled_job_count_what_they_did():
    run = Run("srsf", (2,))
    run.start(job("a"), job("b"))
    run.session.handle(Progressed(20.0, ("a", "b"), (80.0, 80.0)))
    run.session.handle(JobFailed(30.0, "a", 1, "crashed"))
    (stop,) = run.session.handle(CancelRequested(30.0, "b"))
    assert isinstance(stop, Preempt)
    run.session.handle(JobPreempted(40.0, "b", 1, 60.0))
    usage = run.meter.usage()
    assert usage.gpu_busy_s == pytest.approx(0.25 * (20 + 40))
    assert usage.held_gpu_s == pytest.approx(30.0 + 40.0)


def test_a_job_that_changes_its_group_counts_once():
    meter = UsageMeter(LockstepSpeed())
    for name in "ab":
        meter.record(JobArrived(0.0, job(name)), [])

    def turns(time_s: float, group: int, version: int, *names: str) -> SetTurns:
        members = tuple(GroupMember(name, offset, 1) for offset, name in enumerate(names))
        return SetTurns(time_s, TurnGroup(group, version, members, 0), "")

    def launch(name: str, group: int) -> Launch:
        return Launch(0.0, job(name), 1, Allotment((NodeShare(0, (group,)),)), 100.0, group, "")

    meter.record(PlanDue(0.0), [turns(0.0, 0, 1, "a"), launch("a", 0), turns(0.0, 1, 1, "b"), launch("b", 1)])
    meter.record(PlanDue(10.0), [turns(10.0, 0, 2, "a", "b")])
    meter.record(PlanDue(30.0), [])
    usage = meter.usage()
    assert usage.held_gpu_s == pytest.approx(2 * 10 + 20)
    assert usage.efficient_gpu_s == pytest.approx(2 * 10 * 0.25 + 20 * 0.5)


def test_nothing_ran():
    assert UsageMeter(LockstepSpeed()).usage().mean_efficiency == 0.0


def test_what_was_done_under_a_guess_counts_as_measured() -> None:
    guess, found = StageProfile(1.0, 0.0, 0.0, 1.0, 0.0), StageProfile(1.0, 0.4, 0.4, 0.2, 0.0)
    meter = UsageMeter(LockstepSpeed())
    spec = JobSpec("a", 1, 0.0, 100, 100.0, "m", 8, guess, profiled=False)
    meter.record(JobArrived(0.0, spec), [])
    meter.record(Progressed(10.0, ("a",), (90.0,)), [])
    use = UseProfile(10.0, spec.profile_key, guess, found, 1, ("a",), guessed=True)
    meter.record(Measured(10.0, "a", 1, 10, found, False), [use])
    meter.record(Progressed(20.0, ("a",), (80.0,)), [])
    assert meter.usage().gpu_busy_s == pytest.approx(20 * 0.2)
