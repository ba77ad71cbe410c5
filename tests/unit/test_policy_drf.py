import math
from collections.abc import Sequence

import pytest

from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import Launch
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.events import JobArrived, PlanDue, WorkerJoined
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.speed import LockstepSpeed
from cluster_exp.policies.registry import make_policy

PROFILE = StageProfile(1.0, 0.0, 0.5, 0.5, 0.0)


def job(job_id: str, user: str = "", num_cpu: float = math.nan, queue: str = "default", num_gpu: int = 1) -> JobSpec:
    return JobSpec(job_id, num_gpu, 0.0, 10, 10.0, "m", 1, PROFILE, user=user, queue=queue, num_cpu=num_cpu)


def started(policy: str, jobs: Sequence[JobSpec], node: NodeSpec) -> list[str]:
    scheduler = Scheduler(make_policy(policy), LockstepSpeed(), PLACEMENTS["consolidated"])
    scheduler.handle(WorkerJoined(0.0, 0, node))
    for one in jobs:
        scheduler.handle(JobArrived(0.0, one))
    return [action.job.job_id for action in scheduler.handle(PlanDue(0.0)) if isinstance(action, Launch)]


@pytest.mark.parametrize(("policy", "by"), [("drf", "user"), ("drf:between=queues", "queue")])
def test_owners_take_turns_however_many_jobs_they_have(policy: str, by: str) -> None:
    jobs = [job(f"a{i}", **{by: "a"}) for i in range(4)] + [job(f"b{i}", **{by: "b"}) for i in range(2)]
    assert started(policy, jobs, NodeSpec("n0", 4)) == ["a0", "b0", "a1", "b1"]


def test_jobs_of_nobody_are_owners_of_their_own() -> None:
    jobs = [job("a0", "a"), job("a1", "a"), job("x"), job("y")]
    assert started("drf", jobs, NodeSpec("n0", 3)) == ["a0", "x", "y"]


def test_the_scarcest_resource_counts() -> None:
    """a's job takes 3/4 of the CPUs: b gets three jobs, each 1/4 of the GPUs, before a's second one."""
    node = NodeSpec("n0", 4, num_cpu=40, memory_gib=100.0)
    jobs = [job("a0", "a", num_cpu=30.0), job("a1", "a"), *(job(f"b{i}", "b") for i in range(4))]
    assert started("drf", jobs, node) == ["a0", "b0", "b1", "b2"]


def test_what_does_not_fit_is_passed_over() -> None:
    jobs = [job("a0", "a", num_gpu=3), job("b0", "b", num_gpu=2), job("b1", "b")]
    assert started("drf", jobs, NodeSpec("n0", 4)) == ["a0", "b1"]
