"""Real workers and a real master over a network that loses, delays, repeats and reorders their words."""

import asyncio
from collections import Counter

import pytest

from cluster_exp.domain.actions import Launch, RecordEnd
from cluster_exp.domain.events import JobFinished, WorkerLost
from cluster_exp.domain.job import JobStatus
from cluster_exp.runtime import link as runtime_link
from cluster_exp.runtime import worker as runtime_worker
from cluster_exp.runtime.master import Master
from cluster_exp.runtime.settings import MasterConfig
from tests.runtime.live_kit import Memory, cluster, job, scheduler
from tests.runtime.rough_network import KINDS, RoughNetwork
from tests.runtime.test_worker import SCALE, running_worker

pytestmark = pytest.mark.live
JOBS = [job("a", 2, 300), job("b", 1, 200), job("wide", 4, 100, 20.0), job("c", 1, 150, 30.0), job("d", 2, 100, 40.0)]


async def through(seed: int, rate: float, lease_s: float, folder) -> tuple[Memory, Counter[str]]:
    """Runs the jobs on two workers, each behind its own network; returns the journal and what was done to them."""
    memory = Memory()
    master = Master(MasterConfig(cluster(), SCALE, report_interval_s=0.05, lease_s=lease_s), scheduler(), memory)
    address = await master.start()
    networks = [RoughNetwork(address, seed + node, rate) for node in range(2)]
    task = asyncio.create_task(master.run(JOBS))
    async with (
        networks[0].up() as first,
        networks[1].up() as second,
        running_worker(first, folder) as one,
        running_worker(second, folder, node="n1") as other,
    ):
        assert await asyncio.wait_for(task, 60)
        for network in networks:
            network.calm = True
        await master.close("over")
        assert not one.statuses()
        assert not other.statuses()
    return memory, networks[0].done + networks[1].done


def check(memory: Memory) -> None:
    """Each job ended once, well, and as the launch that was its last: what an earlier one did counted no more."""
    ends = {end.record.job_id: end.record.status for end in memory.of(RecordEnd)}
    assert ends == {one.job_id: JobStatus.FINISHED for one in JOBS}
    assert len(memory.of(RecordEnd)) == len(JOBS)
    last = {launch.job.job_id: launch.generation for launch in memory.of(Launch)}
    assert {done.job_id: done.generation for done in memory.of(JobFinished)} == last
    assert len(memory.of(JobFinished)) == len(JOBS)


@pytest.mark.parametrize(("seed", "rate", "lease_s"), [(1, 0.15, 5.0), (2, 0.3, 0.8)])
def test_what_the_network_does_to_words_changes_no_end(seed, rate, lease_s, tmp_path, monkeypatch):
    monkeypatch.setattr(runtime_worker, "_DEADLINE_S", 0.6)
    monkeypatch.setattr(runtime_link, "DEADLINE_S", 0.6)
    memory, done = asyncio.run(through(seed, rate, lease_s, tmp_path))
    check(memory)
    assert set(done) == set(KINDS), "too few words for every kind"
    if lease_s > 1:
        assert not memory.of(WorkerLost)  # a lease outlasts what is lost now and then
