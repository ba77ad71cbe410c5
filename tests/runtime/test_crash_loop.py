"""A job whose program fails at every start, on real workers."""

from dataclasses import replace
from itertools import pairwise

import pytest

from cluster_exp.domain.actions import Launch, RecordEnd
from cluster_exp.domain.events import JobPreempted
from cluster_exp.domain.job import JobStatus
from cluster_exp.protocol.retries import JITTER
from cluster_exp.runtime.local import LiveConfig, run_local
from tests.runtime.live_kit import Memory, cluster, job, scheduler

pytestmark = pytest.mark.live
SCALE = 100.0
FIRST_WAIT_S = 0.05  # wall time


def test_a_crash_loop_ends_after_its_retries_with_growing_waits(tmp_path):
    memory = Memory()
    config = LiveConfig(
        cluster(1, 1),
        (replace(job("loop"), command=("false",)),),
        SCALE,
        tmp_path / "logs",
        checkpoint_dir=tmp_path / "checkpoints",
        retries=3,
        retry_wait_s=FIRST_WAIT_S,
    )
    result = run_local(config, scheduler(), memory)
    assert result.complete
    (end,) = memory.of(RecordEnd)
    assert end.record.status is JobStatus.FAILED
    assert end.record.reason.endswith("(after 3 retries)")
    crashes = memory.of(JobPreempted)
    assert [event.wait_s for event in crashes] == pytest.approx([5.0, 10.0, 20.0], rel=JITTER)
    assert all(later.wait_s > sooner.wait_s for sooner, later in pairwise(crashes))
    again = memory.of(Launch)[1:]
    assert len(again) == len(crashes)
    for crash, launch in zip(crashes, again, strict=True):
        assert launch.time_s >= crash.time_s + crash.wait_s
    fresh = scheduler()
    for event, actions in memory.entries:
        assert fresh.handle(event) == actions
