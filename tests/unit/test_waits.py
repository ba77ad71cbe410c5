"""Jobs that failed wait before their retry: how long, and that nobody plans them meanwhile."""

import argparse
from pathlib import Path

import numpy as np
import pytest

from cluster_exp.cli.run import add_arguments
from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import Action, Launch, Wake
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.events import (
    CancelRequested,
    Event,
    JobArrived,
    JobFinished,
    JobPreempted,
    PlanDue,
    WorkerJoined,
)
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.speed import LockstepSpeed
from cluster_exp.policies.registry import POLICIES, make_policy
from cluster_exp.protocol.retries import JITTER, LONGEST_WAIT_S, Retries
from cluster_exp.results.history import read_history
from cluster_exp.results.journal import JournalWriter, read_journal
from tests.unit.test_scheduler import Desk, told

PROFILE = StageProfile(1.0, 0.1, 0.2, 0.6, 0.1)


@pytest.fixture
def desk() -> Desk:
    """Jobs a and b, of which a runs."""
    desk = Desk()
    desk.arrive("a")
    desk.arrive("b")
    desk.plan(0.0, ("a",))
    return desk


def crash(desk: Desk, now_s: float, wait_s: float, job_id: str = "a") -> list[Action]:
    return desk.do(JobPreempted(now_s, job_id, desk.generations[job_id], 50.0, "exit code 1", wait_s))


def seen(desk: Desk) -> list[int]:
    return desk.policy.seen[-1].jobs.tolist()


def waits_s(job_id: str, count: int, first_wait_s: float) -> list[float]:
    retries = Retries(count, first_wait_s)
    return [retry.wait_s for retry in iter(lambda: retries.failed(job_id), None)]


def test_waits_are_doubled_up_to_the_longest_and_the_same_in_every_life() -> None:
    expected_s = [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, *[LONGEST_WAIT_S] * 6]
    assert waits_s("a", 12, 10.0) == [pytest.approx(wait_s, rel=JITTER) for wait_s in expected_s]
    assert waits_s("a", 12, 10.0) == waits_s("a", 12, 10.0)
    assert waits_s("a", 2000, 0.0) == [0.0] * 2000
    assert waits_s("a", 2000, 10.0)[-1] == pytest.approx(LONGEST_WAIT_S, rel=JITTER)


def test_the_jitter_spreads_the_jobs_of_a_crashed_node_and_stays_within_its_bounds() -> None:
    shifts = np.array([waits_s(f"job-{number}", 1, 1.0)[0] - 1.0 for number in range(1000)])
    assert np.abs(shifts).max() <= JITTER
    share, _ = np.histogram(shifts, bins=10, range=(-JITTER, JITTER))
    assert share.min() > 50


def test_a_waiting_job_is_not_planned_though_gpus_are_free_and_is_planned_afterwards(desk: Desk) -> None:
    assert told(crash(desk, 1.0, 10.0)) == ["wake 11"]
    assert told(desk.plan(2.0, ("b",))) == ["turns b", "launch b", "wake 11"]
    assert seen(desk) == [desk.policy.slots["b"]]
    desk.plan(10.999, ("b",))
    assert seen(desk) == [desk.policy.slots["b"]]
    assert told(desk.plan(11.0, ("b",), ("a",))) == ["turns a", "launch a"]
    assert seen(desk) == [desk.policy.slots["a"], desk.policy.slots["b"]]
    assert desk.policy.slots["a"] in desk.policy.seen[-1].changed


def test_a_plan_with_a_waiting_job_is_refused(desk: Desk) -> None:
    crash(desk, 1.0, 10.0)
    with pytest.raises(InvariantError, match="has to wait"):
        desk.plan(2.0, ("a",))


def test_a_job_that_fails_while_it_moves_is_not_started_by_the_plan_made_before(desk: Desk) -> None:
    desk.plan(1.0, ("a",), ("b",))
    assert told(desk.plan(2.0, ("a", "b"))) == ["preempt b"]
    assert told(crash(desk, 3.0, 10.0, "b")) == ["wake 13"]


def test_one_wake_stands_for_all_waits_and_for_the_policy(desk: Desk) -> None:
    desk.policy.wake_s = 8.0
    desk.plan(1.0, ("a",), ("b",))
    assert told(crash(desk, 2.0, 10.0)) == ["wake 8"]
    assert told(crash(desk, 3.0, 4.0, "b")) == ["wake 7"]
    desk.policy.wake_s = None
    assert told(desk.plan(7.0)) == ["wake 12"]
    assert seen(desk) == [desk.policy.slots["b"]]
    assert told(desk.plan(12.0)) == []


def test_a_waiting_job_that_is_cancelled_ends_at_once_and_its_slot_is_free(desk: Desk) -> None:
    crash(desk, 1.0, 10.0)
    assert told(desk.do(CancelRequested(2.0, "a"))) == ["cancelled a"]
    slot = desk.policy.slots["a"]
    desk.scheduler.handle(JobArrived(3.0, JobSpec("c", 1, 3.0, 100, 100.0, "m", 1, PROFILE)))
    assert told(desk.plan(4.0)) == []  # nobody waits
    assert seen(desk) == [desk.policy.slots["b"], slot]
    desk.plan(11.0)
    assert seen(desk) == [desk.policy.slots["b"], slot]


def test_a_cancelled_job_that_fails_does_not_wait(desk: Desk) -> None:
    assert told(desk.do(CancelRequested(1.0, "a"))) == ["preempt a"]
    assert told(crash(desk, 2.0, 10.0)) == ["cancelled a"]


def crashing_run(policy: str) -> tuple[Scheduler, list[Event]]:
    """A scheduler, and events in which a job that is there alone fails, waits and finishes."""
    scheduler = Scheduler(make_policy(policy, read_history), LockstepSpeed(), PLACEMENTS["consolidated"])
    scheduler.handle(WorkerJoined(0.0, 0, NodeSpec("n", 2)))
    events: list[Event] = [
        JobArrived(0.0, JobSpec("a", 1, 0.0, 100, 100.0, "m", 1, PROFILE)),
        PlanDue(0.0),
        JobPreempted(1.0, "a", 1, 99.0, "retry 1 of 1: exit code 1", 10.0),
        PlanDue(1.0),
        PlanDue(5.0),
        PlanDue(11.0),
        JobFinished(200.0, "a", 2),
        PlanDue(200.0),
    ]
    return scheduler, events


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_starts_the_job_again_after_its_wait_and_not_before(policy: str) -> None:
    scheduler, events = crashing_run(policy)
    launched = []
    for event in events:
        launched += [action.time_s for action in scheduler.handle(event) if isinstance(action, Launch)]
        scheduler.check()
    assert launched == [0.0, 11.0]


def test_a_journal_with_waits_replays_to_the_same_actions(tmp_path: Path) -> None:
    scheduler, events = crashing_run("srsf")
    writer = JournalWriter(tmp_path / "journal", {})
    for event in events:
        writer.record(event, scheduler.handle(event))
    writer.close()
    fresh, _ = crashing_run("srsf")
    entries = read_journal(tmp_path / "journal").entries
    assert [entry.event for entry in entries] == events
    assert [tuple(fresh.handle(entry.event)) for entry in entries] == [entry.actions for entry in entries]
    assert any(isinstance(action, Wake) for entry in entries for action in entry.actions)


def test_a_journal_from_before_waits_is_read(tmp_path: Path) -> None:
    event = JobPreempted(1.0, "a", 1, 99.0, "exit code 1")
    path = tmp_path / "journal"
    writer = JournalWriter(path, {})
    writer.record(event, [])
    writer.close()
    text = path.read_text()
    assert ',"wait_s":0.0' in text
    path.write_text(text.replace(',"wait_s":0.0', ""))
    assert [entry.event for entry in read_journal(path).entries] == [event]


def test_the_first_wait_is_ten_seconds_when_none_is_given() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert parser.parse_args([]).retry_wait == 10.0
