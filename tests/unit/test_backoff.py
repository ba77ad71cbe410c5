"""Retries wait, longer each time, and no policy sees a job meanwhile."""

import itertools

import pytest

from cluster_exp.domain.actions import Launch, RecordEnd, Wake
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.events import CancelRequested, JobArrived, JobPreempted, JobStarted, PlanDue, WorkerJoined
from cluster_exp.domain.job import JobStatus
from cluster_exp.protocol.retries import LONGEST_WAIT_S, Retries
from tests.runtime.live_kit import job, scheduler


def test_each_wait_is_twice_the_one_before_up_to_ten_minutes():
    retries = Retries(12, first_wait_s=10.0)
    waits_s = [retry.wait_s for _ in range(12) if (retry := retries.failed("a"))]
    expected_s = [10, 20, 40, 80, 160, 320, *[LONGEST_WAIT_S] * 6]
    assert waits_s == [pytest.approx(wait_s, rel=0.1) for wait_s in expected_s]
    assert retries.failed("a") is None
    again = Retries(12, first_wait_s=10.0)
    waits_again_s = [retry.wait_s for _ in range(12) if (retry := again.failed("a"))]
    assert waits_again_s == waits_s


def test_jobs_that_broke_together_do_not_come_back_together():
    retries = Retries(1, first_wait_s=100.0)
    waits_s = [retry.wait_s for i in range(50) if (retry := retries.failed(f"j{i}"))]
    assert len(set(waits_s)) == 50
    assert min(waits_s) >= 90.0
    assert max(waits_s) <= 110.0
    assert max(waits_s) - min(waits_s) > 10.0


def begun(*jobs):
    """A scheduler on one node of two GPUs, on which the jobs run."""
    core = scheduler("fifo")
    core.handle(WorkerJoined(0.0, 0, NodeSpec("n0", 2)))
    for one in jobs:
        core.handle(JobArrived(0.0, one))
    core.handle(PlanDue(0.0))
    for one in jobs:
        core.handle(JobStarted(0.0, one.job_id, 1))
    return core


def launched(actions) -> list[tuple[str, int]]:
    return [(action.job.job_id, action.generation) for action in actions if isinstance(action, Launch)]


def test_a_job_is_not_planned_before_its_wait_is_over_and_the_driver_is_woken_for_it():
    core = begun(job("a"), job("b"))
    actions = core.handle(JobPreempted(5.0, "a", 1, 100.0, "retry 1 of 3: exit code 1", 10.0))
    assert [action.at_s for action in actions if isinstance(action, Wake)] == [15.0]
    for now_s in (5.0, 9.0, 14.99):
        assert launched(core.handle(PlanDue(now_s))) == []
        assert len(core.snapshot().jobs) == 1
        core.check()
    assert core.num_live == 2
    assert launched(core.handle(PlanDue(15.0))) == [("a", 2)]
    core.check()


def test_of_several_waits_the_next_one_that_ends_wakes_the_driver():
    core = begun(job("a"), job("b"))
    core.handle(JobPreempted(1.0, "a", 1, 100.0, "x", 20.0))
    (wake,) = (one for one in core.handle(JobPreempted(2.0, "b", 1, 100.0, "x", 5.0)) if isinstance(one, Wake))
    assert wake.at_s == 7.0
    actions = core.handle(PlanDue(7.0))
    assert launched(actions) == [("b", 2)]
    assert [action.at_s for action in actions if isinstance(action, Wake)] == [21.0]


def test_a_job_that_waits_can_be_cancelled_and_its_slot_used_again():
    core = begun(job("a"), job("b"))
    core.handle(JobPreempted(1.0, "a", 1, 100.0, "x", 20.0))
    (end,) = core.handle(CancelRequested(2.0, "a"))
    assert isinstance(end, RecordEnd)
    assert end.record.status is JobStatus.CANCELLED
    core.handle(JobArrived(3.0, job("c")))
    assert launched(core.handle(PlanDue(3.0))) == [("c", 1)]
    for now_s in itertools.chain((10.0,), (21.0, 30.0)):
        assert launched(core.handle(PlanDue(now_s))) == []
