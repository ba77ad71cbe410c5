"""Tiresias's queues, in simulations worked out by hand."""

import pytest

from cluster_exp.core.state import JobTable
from cluster_exp.domain.actions import JobRecord, RecordEnd
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.speed import LockstepSpeed
from cluster_exp.policies.registry import make_policy
from cluster_exp.sim.simulate import SimulationOptions, simulate

SECOND = StageProfile(1.0, 0.0, 0.0, 1.0, 0.0)


class Ends:
    def __init__(self) -> None:
        self.records: dict[str, JobRecord] = {}

    def record(self, event, actions) -> None:
        for action in actions:
            if isinstance(action, RecordEnd):
                self.records[action.record.job_id] = action.record


def job(job_id: str, seconds: int, submit_s: float = 0.0, num_gpu: int = 1) -> JobSpec:
    return JobSpec(job_id, num_gpu, submit_s, seconds, float(seconds), "m", 1, SECOND)


def ends(policy: str, *jobs: JobSpec, gpus: int = 1) -> dict[str, float]:
    out = Ends()
    cluster = ClusterSpec((NodeSpec("n0", gpus),))
    simulate(make_policy(policy), jobs, cluster, SimulationOptions(), lambda _: 0.0, out)
    return {job_id: record.end_s for job_id, record in out.records.items()}


def test_a_job_gives_way_when_it_reaches_the_limit_of_its_queue() -> None:
    """a runs 10 s, falls behind b, which runs its 10 s and falls behind a; both end in arrival order after that."""
    assert ends("tiresias:limits=10/100", job("a", 15), job("b", 20)) == {"a": 25.0, "b": 35.0}


def test_the_limit_counts_gpus() -> None:
    """b has two GPUs: 5 s of it are 10 GPU-seconds."""
    assert ends("tiresias:limits=10/100", job("b", 15, num_gpu=2), job("a", 3, 1.0), gpus=2) == {"a": 8.0, "b": 18.0}


def test_a_running_job_is_not_preempted_for_an_arrival_in_its_queue() -> None:
    assert ends("tiresias:limits=10/100", job("a", 8), job("b", 1, submit_s=2.0)) == {"a": 8.0, "b": 9.0}


def test_an_arrival_comes_before_who_fell() -> None:
    assert ends("tiresias:limits=10/100", job("a", 30), job("b", 5, submit_s=20.0)) == {"a": 35.0, "b": 25.0}


def test_las_runs_whoever_had_least() -> None:
    """When c arrives, a has had 6 s, b and c nothing; of these b came first, and nothing happens until it ends."""
    assert ends("las", job("a", 10), job("b", 20), job("c", 2, submit_s=6.0)) == {"b": 26.0, "c": 28.0, "a": 32.0}


@pytest.mark.parametrize("limits", ["", "0/5", "7/3", "5/5", "a", "inf"])
def test_bad_limits_are_told(limits: str) -> None:
    with pytest.raises(InputError, match="limits"):
        make_policy(f"tiresias:limits={limits}")


def test_no_time_adds_nothing_to_what_a_job_executed() -> None:
    """Adding and subtracting a large time of day would round 0.1, and Tiresias compares with limits exactly."""
    table = JobTable(LockstepSpeed())
    slot = table.add(job("a", 10))
    table.float_column("executed_s")[slot] = 0.1
    table.float_column("counted_until_s")[slot] = 1e7
    table.move(slot, JobStatus.LAUNCHING)
    table.count_until(1e7)
    table.count_one_until(1e7, slot)
    assert table.float_column("executed_s")[slot] == 0.1
    table.count_one_until(1e7 + 1, slot)
    assert table.float_column("executed_s")[slot] == pytest.approx(1.1)
