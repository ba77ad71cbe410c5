"""A live run's events, given to a fresh scheduler, lead to the same actions."""

import pytest

from cluster_exp.domain.actions import RecordEnd
from cluster_exp.domain.events import PlanDue
from cluster_exp.domain.profile import StageProfile
from cluster_exp.runtime.local import LiveConfig, run_local
from tests.runtime.live_kit import Memory, cluster, job, scheduler

pytestmark = pytest.mark.live
READER = StageProfile(1.0, 0.6, 0.2, 0.1, 0.1)
LEARNER = StageProfile(1.0, 0.1, 0.1, 0.7, 0.1)
TALKER = StageProfile(1.0, 0.1, 0.1, 0.2, 0.6)


@pytest.mark.parametrize("policy", ["srsf", "muri-s"])
def test_replaying_a_live_run_gives_the_same_actions(tmp_path, policy):
    jobs = (
        job("a", 2, 300, 0.0, READER),
        job("b", 2, 250, 0.0, LEARNER),
        job("c", 2, 200, 1.0, TALKER),
        job("d", 1, 200, 10.0, LEARNER),
        job("e", 4, 100, 100.0, LEARNER),
        job("f", 1, 80, 120.0, READER),
        job("g", 2, 60, 150.0, TALKER),
        job("h", 1, 40, 200.0, READER),
    )
    memory = Memory()
    result = run_local(LiveConfig(cluster(), jobs, 200.0, tmp_path), scheduler(policy), memory)
    assert dict(result.ended) == {"finished": len(jobs)}
    assert len(memory.of(PlanDue)) >= len(jobs)
    assert len(memory.of(RecordEnd)) == len(jobs)
    fresh = scheduler(policy)
    for event, actions in memory.entries:
        assert fresh.handle(event) == actions
