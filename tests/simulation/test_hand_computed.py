"""Traces of our own whose results are worked out here, under the physical and the published accounting.

Every job has a start cost of 10 s. An iteration of the traces takes 1 s or 2 s alone; under `muri22` it takes 1.015
times as long.

**Preemption**: one node of two GPUs, policy `srtf`.

    job  GPUs  submitted  iterations
    a    1     0          1000 x 1 s
    b    2     100        100 x 1 s
    c    1     200        50 x 2 s

Physical. a starts at 0 and computes from 10 on. At 100 it has 910 s to go, b 100 s: b takes both GPUs, computes from
110 on, and has 10 s to go when c comes at 200 with 100 s. b ends at 210. Then c and a share the node: c computes from
220 to 320, a from 220 to 1130.

muri22. At 100 a lost 10 s of its 100, as at every event: 1015 - 90 = 925 s to go; b has 101.5 s. At 200 b lost 10 s,
too: 101.5 - 90 = 11.5 s to go, c has 101.5 s, so b ends at 211.5. Then c runs its 101.5 s, undisturbed, until 313. At
that event a has run for 101.5 s and loses 10 again: 925 - 91.5 = 833.5 s to go; it ends at 313 + 833.5 = 1146.5.

**Interleaving**: the same node, policy `muri-s`.

    job  GPUs  submitted  iterations  stage
    x    2     0          100 x 1 s   cpu
    y    2     0          100 x 1 s   gpu
    z    1     50         1000 x 1 s  gpu

x and y share both GPUs, since together they ask for four, and z waits: they have less to do, times GPUs, than z.

Physical. Their cycle is 1 s, because their stages lie in the same slot: both start at 10 and end at 110. Then z
computes from 120 to 1120.

muri22. A pipeline of y and x has a period of 1 s, which contention makes 1.33 / 1.015 s. When z comes at 50, each of
them loses the start costs of both: 30 s of work are done, and the other 133 / 1.015 - 30 s follow without another
loss, so that they end at 50 + 133 / 1.015 - 30 = 151.034483. z then runs its 1015 s in one go.
"""

import pytest

from cluster_exp.domain.actions import JobRecord, RecordEnd
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile
from cluster_exp.policies.registry import make_policy
from cluster_exp.sim.simulate import SimulationOptions, simulate

START_S = 10.0


def job(job_id: str, num_gpu: int, submit_s: float, iterations: int, cpu_s: float, gpu_s: float) -> JobSpec:
    profile = StageProfile(cpu_s + gpu_s, 0.0, cpu_s, gpu_s, 0.0)
    duration_s = iterations * profile.iteration_s
    return JobSpec(job_id, num_gpu, submit_s, iterations, duration_s, "m", 1, profile)


PREEMPTION = (job("a", 1, 0, 1000, 0, 1), job("b", 2, 100, 100, 0, 1), job("c", 1, 200, 50, 0, 2))
INTERLEAVING = (job("x", 2, 0, 100, 1, 0), job("y", 2, 0, 100, 0, 1), job("z", 1, 50, 1000, 0, 1))
TOGETHER_S = 50 + 133 / 1.015 - 30


class Ends:
    def __init__(self) -> None:
        self.records: dict[str, JobRecord] = {}

    def record(self, event, actions) -> None:
        for action in actions:
            if isinstance(action, RecordEnd):
                self.records[action.record.job_id] = action.record


@pytest.mark.parametrize(
    ("policy", "cost_model", "jobs", "ends_s"),
    [
        ("srtf", "physical", PREEMPTION, {"a": 1130, "b": 210, "c": 320}),
        ("srtf", "muri22", PREEMPTION, {"a": 1146.5, "b": 211.5, "c": 313}),
        ("muri-s", "physical", INTERLEAVING, {"x": 110, "y": 110, "z": 1120}),
        ("muri-s", "muri22", INTERLEAVING, {"x": TOGETHER_S, "y": TOGETHER_S, "z": TOGETHER_S + 1015}),
    ],
)
def test_results_are_those_worked_out_above(
    policy: str, cost_model: str, jobs: tuple[JobSpec, ...], ends_s: dict[str, float]
) -> None:
    ends = Ends()
    cluster = ClusterSpec((NodeSpec("n0", 2),))
    options = SimulationOptions(cost_model=cost_model)
    simulate(make_policy(policy), jobs, cluster, options, lambda _: START_S, ends)
    assert {job_id: record.end_s for job_id, record in ends.records.items()} == pytest.approx(ends_s, abs=1e-6)
    assert sum(ends.records[job.job_id].end_s - job.submit_s for job in jobs) == pytest.approx(
        sum(ends_s.values()) - sum(job.submit_s for job in jobs)
    )
