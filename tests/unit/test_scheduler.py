"""The core, driven by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import Action, Launch, Preempt, RecordEnd, SetTurns, Wake
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.events import (
    CancelRequested,
    JobArrived,
    JobFailed,
    JobFinished,
    JobPreempted,
    JobStarted,
    PlanDue,
    Progressed,
    WorkerJoined,
    WorkerLost,
)
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.domain.plan import GroupPlan, Plan
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.snapshot import Snapshot
from cluster_exp.interleave.speed import LockstepSpeed

PROFILE = StageProfile(1.0, 0.1, 0.2, 0.6, 0.1)


@dataclass
class Scripted:
    """Plans what the test says, in job ids: a list of groups."""

    name: str = "scripted"
    reads: frozenset[str] = frozenset({"remaining_s"})
    learns: bool = False
    plans_rates: bool = False
    wanted: list[tuple[str, ...]] = field(default_factory=list)
    wake_s: float | None = None
    seen: list[Snapshot] = field(default_factory=list)
    memories: list[Mapping[str, Any]] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        self.seen.append(snapshot)
        self.memories.append(memory)
        groups = tuple(
            GroupPlan(tuple(self.slots[job] for job in group), tuple(range(len(group)))) for group in self.wanted
        )
        return Plan(groups, wake_s=self.wake_s, memory={"plans": len(self.seen)})


class Desk:
    """A scheduler with two nodes of two GPUs, and short ways to talk to it."""

    def __init__(self) -> None:
        self.policy = Scripted()
        self.scheduler = Scheduler(self.policy, LockstepSpeed(), PLACEMENTS["consolidated"])
        self.generations: dict[str, int] = {}
        for node in range(2):
            self.scheduler.handle(WorkerJoined(0.0, node, NodeSpec(f"n{node}", 2)))

    def arrive(self, job_id: str, num_gpu: int = 1, iterations: int = 100) -> None:
        job = JobSpec(job_id, num_gpu, 0.0, iterations, 100.0, "m", 1, PROFILE)
        self.scheduler.handle(JobArrived(0.0, job))
        snapshot = self.scheduler.snapshot()
        self.policy.slots[job_id] = int(snapshot.jobs[-1])

    def plan(self, now_s: float, *groups: tuple[str, ...]) -> list[Action]:
        self.policy.wanted = list(groups)
        return self.do(PlanDue(now_s))

    def do(self, event: Any) -> list[Action]:
        actions = self.scheduler.handle(event)
        self.scheduler.check()
        for action in actions:
            if isinstance(action, Launch):
                self.generations[action.job.job_id] = action.generation
        return actions

    def preempted(self, now_s: float, job_id: str, left: float = 50.0) -> list[Action]:
        return self.do(JobPreempted(now_s, job_id, self.generations[job_id], left))


def told(actions: list[Action]) -> list[str]:
    words = []
    for action in actions:
        match action:
            case Launch():
                words.append(f"launch {action.job.job_id}")
            case Preempt():
                words.append(f"preempt {action.job_id}")
            case SetTurns():
                words.append("turns " + "+".join(member.job_id for member in action.group.members))
            case RecordEnd():
                words.append(f"{action.record.status.name.lower()} {action.record.job_id}")
            case Wake():
                words.append(f"wake {action.at_s:g}")
    return words


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_plan_starts_jobs_and_keeps_what_runs(desk: Desk) -> None:
    desk.arrive("a")
    desk.arrive("b")
    assert told(desk.plan(0.0, ("a",))) == ["turns a", "launch a"]
    assert told(desk.plan(1.0, ("a",))) == []
    assert told(desk.plan(2.0, ("a", "b"))) == ["turns a+b", "launch b"]
    assert told(desk.plan(3.0, ("b", "a"))) == ["turns b+a"]


def test_a_group_waits_until_its_gpus_are_left(desk: Desk) -> None:
    desk.arrive("a", num_gpu=4)
    desk.arrive("b", num_gpu=2)
    desk.plan(0.0, ("a",))
    assert told(desk.plan(1.0, ("b",))) == ["preempt a"]
    assert told(desk.plan(2.0, ("b",))) == []
    assert told(desk.preempted(3.0, "a")) == ["turns b", "launch b"]
    assert desk.scheduler.snapshot().column("remaining_s")[desk.policy.slots["a"]] == 50.0


def test_a_member_that_moves_is_stopped_first_and_its_new_group_waits_for_it(desk: Desk) -> None:
    for job in "abc":
        desk.arrive(job)
    desk.plan(0.0, ("a",), ("b",))
    assert told(desk.plan(1.0, ("a", "b", "c"))) == ["preempt b"]
    assert told(desk.preempted(2.0, "b")) == ["turns a+b+c", "launch b", "launch c"]
    assert desk.generations["b"] == 2


def test_those_who_stay_are_told_when_a_member_ends(desk: Desk) -> None:
    for job in "ab":
        desk.arrive(job)
    desk.plan(0.0, ("a", "b"))
    actions = desk.do(JobFinished(7.0, "a", 1))
    assert told(actions) == ["finished a", "turns b"]
    record = next(action.record for action in actions if isinstance(action, RecordEnd))
    assert (record.start_s, record.end_s, record.executed_s) == (0.0, 7.0, 7.0)
    assert (record.preempted, record.resumed, record.status) == (0, 0, JobStatus.FINISHED)


def test_a_waiting_group_starts_without_a_member_that_ended(desk: Desk) -> None:
    desk.arrive("wide", num_gpu=4)
    desk.arrive("a")
    desk.arrive("b")
    desk.plan(0.0, ("wide",))
    desk.plan(1.0, ("a", "b"))
    assert told(desk.do(CancelRequested(2.0, "b"))) == ["cancelled b"]
    assert told(desk.preempted(3.0, "wide")) == ["turns a", "launch a"]


def test_executed_time_counts_while_gpus_are_held(desk: Desk) -> None:
    desk.arrive("a", num_gpu=2)
    desk.plan(10.0, ("a",))
    desk.do(JobStarted(11.0, "a", 1))
    desk.plan(15.0)
    desk.preempted(16.0, "a")
    desk.plan(30.0, ("a",))
    actions = desk.do(JobFinished(40.0, "a", 2))
    record = next(action.record for action in actions if isinstance(action, RecordEnd))
    assert record.executed_s == 16.0
    assert (record.preempted, record.resumed, record.start_s) == (1, 1, 10.0)


def test_reports_of_an_earlier_launch_change_nothing(desk: Desk) -> None:
    desk.arrive("a")
    desk.plan(0.0, ("a",))
    desk.plan(1.0)
    desk.preempted(2.0, "a")
    desk.plan(3.0, ("a",))
    assert desk.do(JobFinished(4.0, "a", 1)) == []
    assert desk.do(JobFailed(4.0, "a", 1, "late")) == []
    assert desk.do(JobPreempted(4.0, "a", 1, 0.0)) == []
    assert desk.do(JobFinished(4.0, "nobody", 1)) == []
    assert desk.scheduler.num_live == 1
    assert told(desk.do(JobFinished(5.0, "a", 2))) == ["finished a"]


def test_cancelling_a_running_job_stops_it_first(desk: Desk) -> None:
    desk.arrive("a")
    desk.plan(0.0, ("a",))
    assert told(desk.do(CancelRequested(1.0, "a"))) == ["preempt a"]
    assert told(desk.do(CancelRequested(1.0, "a"))) == []
    assert told(desk.preempted(2.0, "a")) == ["cancelled a"]
    assert told(desk.do(CancelRequested(3.0, "a"))) == []


def test_a_failure_ends_one_job_and_not_its_group(desk: Desk) -> None:
    for job in "ab":
        desk.arrive(job)
    desk.plan(0.0, ("a", "b"))
    assert told(desk.do(JobFailed(1.0, "a", 1, "exit code 3"))) == ["failed a", "turns b"]


def test_a_lost_worker_gives_its_jobs_back(desk: Desk) -> None:
    desk.arrive("wide", num_gpu=4)
    desk.arrive("a")
    desk.plan(0.0, ("wide",))
    desk.do(Progressed(4.0, ("wide",), (60.0,)))
    desk.do(WorkerLost(5.0, 1, "lease lapsed"))
    assert told(desk.plan(5.0, ("wide",), ("a",))) == ["turns a", "launch a"]
    desk.do(WorkerJoined(6.0, 1, NodeSpec("n1", 2)))
    assert told(desk.plan(6.0, ("wide",))) == ["preempt a"]
    launches = [action for action in desk.preempted(7.0, "a") if isinstance(action, Launch)]
    assert [(launch.job.job_id, launch.remaining_iterations) for launch in launches] == [("wide", 60.0)]


def test_undeclared_columns_are_hidden_and_nothing_can_be_written(desk: Desk) -> None:
    desk.arrive("a")
    desk.plan(0.0)
    snapshot = desk.policy.seen[-1]
    slot = desk.policy.slots["a"]
    assert snapshot.remaining_s[slot] == 100.0
    assert np.isnan(snapshot.duration_s).all()
    for column in (snapshot.remaining_s, snapshot.duration_s, snapshot.num_gpu, snapshot.jobs):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


def test_memory_and_wake_belong_to_the_plan(desk: Desk) -> None:
    desk.policy.wake_s = 12.0
    assert told(desk.plan(0.0)) == ["wake 12"]
    desk.plan(1.0)
    assert desk.policy.memories == [{}, {"plans": 1}]


def test_slots_are_reused_and_arrival_numbers_are_not(desk: Desk) -> None:
    desk.arrive("a")
    desk.do(CancelRequested(0.0, "a"))
    desk.arrive("b")
    assert desk.policy.slots["a"] == desk.policy.slots["b"]
    assert desk.scheduler.snapshot().seq[desk.policy.slots["b"]] == 1


def test_contradictions_are_refused(desk: Desk) -> None:
    desk.arrive("a")
    with pytest.raises(InvariantError, match="twice"):
        desk.plan(1.0, ("a",), ("a",))
    with pytest.raises(InvariantError, match="arrives twice"):
        desk.scheduler.handle(JobArrived(1.0, JobSpec("a", 1, 0.0, 1, 1.0, "m", 1, PROFILE)))
    with pytest.raises(InvariantError, match="backwards"):
        desk.scheduler.handle(PlanDue(0.5))


@pytest.mark.parametrize("offsets", [(0, 0), (0, 4), (0,)])
def test_impossible_turn_orders_are_refused(desk: Desk, offsets: tuple[int, ...]) -> None:
    desk.arrive("a")
    desk.arrive("b")
    slots = tuple(desk.policy.slots.values())
    desk.policy.plan = lambda snapshot, memory: Plan((GroupPlan(slots, offsets),))  # type: ignore[method-assign]
    with pytest.raises(InvariantError, match="scripted plans"):
        desk.scheduler.handle(PlanDue(0.0))
