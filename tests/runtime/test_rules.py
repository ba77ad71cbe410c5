"""The runtime's rules that need no network."""

import asyncio
import math

import pytest

from cluster_exp.domain.actions import Launch
from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.events import JobFailed, JobFinished, JobPreempted, JobStarted, Progressed
from cluster_exp.protocol.gangs import Gangs, Outcome
from cluster_exp.protocol.messages import PreemptOrder, ReportKind, TrainerReport
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.protocol.submissions import Submissions
from cluster_exp.protocol.timetable import Timetable
from cluster_exp.runtime.calls import CallQueue, QueryCluster, WorkerSilent
from cluster_exp.runtime.clock import ScaledClock
from cluster_exp.runtime.links import iterations_per_turn
from tests.runtime.live_kit import job

STARTED, PROGRESS, FINISHED, PREEMPTED, FAILED, _ = ReportKind


def test_the_clock_counts_simulated_seconds_from_its_start():
    wall = [100.0]
    clock = ScaledClock(50.0, lambda: wall[0])
    wall[0] += 2.0
    assert clock.now_s() == 100.0
    assert clock.wall_until_s(150.0) == 1.0
    assert clock.wall_until_s(50.0) == 0.0
    clock.restart()
    assert clock.now_s() == 0.0
    with pytest.raises(ValueError, match="time_scale must be positive, not 0"):
        ScaledClock(0)


def test_a_timetable_knows_arrivals_rounds_and_wishes():
    table = Timetable([job("b", submit_s=5.0), job("a", submit_s=1.0)], 0.0)
    assert table.next_arrival_s == 1.0
    assert math.isinf(table.next_plan_s(busy=True))
    assert [spec.job_id for spec in table.arrivals(5.0)] == ["a", "b"]
    assert table.exhausted
    assert not table.plan_due(6.0, changed=False)
    assert table.plan_due(6.0, changed=True)
    table.wake_at(9.0)
    table.wake_at(8.0)
    assert table.next_plan_s(busy=False) == 8.0
    assert math.isinf(table.next_arrival_s)
    assert table.plan_due(8.5, changed=False)
    assert math.isinf(table.next_plan_s(busy=True))
    rounds = Timetable([], 10.0)
    assert rounds.plan_due(0.0, changed=False)
    assert not rounds.plan_due(9.9, changed=True)
    assert rounds.next_plan_s(busy=True) == 10.0
    assert math.isinf(rounds.next_plan_s(busy=False))
    assert rounds.plan_due(35.0, changed=False)
    assert rounds.next_plan_s(busy=True) == 40.0


def gang(nodes=(0, 1), retries: int = 0) -> Gangs:
    gangs = Gangs(retries)
    start(gangs, 3, nodes)
    return gangs


def start(gangs: Gangs, generation: int, nodes=(0, 1), done: int = 10) -> None:
    allotment = Allotment(tuple(NodeShare(node, (0,)) for node in nodes))
    gangs.launch(Launch(0.0, job("a", len(nodes)), generation, allotment, 100.0 - done, 1, ""), done)


def told(gangs, node, kind, done, generation=3, reason="", saved=None):
    report = TrainerReport("a", generation, kind, done, reason, done if saved is None else saved)
    return gangs.report(node, (report,), 7.0)


def test_the_slowest_part_says_how_far_a_job_is():
    gangs = gang()
    assert told(gangs, 0, STARTED, 10).events == [Progressed(7.0, ("a",), (90.0,))]
    assert told(gangs, 1, STARTED, 10).events[1:] == [JobStarted(7.0, "a", 3)]
    assert told(gangs, 0, PROGRESS, 60).events == [Progressed(7.0, ("a",), (90.0,))]
    assert told(gangs, 1, PROGRESS, 40).events == [Progressed(7.0, ("a",), (60.0,))]
    assert told(gangs, 1, PROGRESS, 50, generation=2).events == []
    assert told(gangs, 5, PROGRESS, 50).events == []
    assert told(gangs, 0, FINISHED, 100).orders == []
    assert told(gangs, 1, FINISHED, 100).events[1:] == [JobFinished(7.0, "a", 3)]
    assert told(gangs, 1, FINISHED, 100).events == []


def test_a_part_that_leaves_by_itself_takes_the_others_along():
    gangs = gang()
    assert told(gangs, 0, PREEMPTED, 70).orders == [(1, PreemptOrder("a", 3))]
    assert told(gangs, 1, FINISHED, 100).events[1:] == [JobPreempted(7.0, "a", 3, 30.0)]


def test_a_failure_wins_over_a_preemption():
    gangs = gang()
    assert gangs.stop("a", 3) == [(0, PreemptOrder("a", 3)), (1, PreemptOrder("a", 3))]
    assert gangs.stop("a", 2) == []
    assert told(gangs, 0, FAILED, 20, reason="why").orders == []
    assert told(gangs, 1, PREEMPTED, 30).events[1:] == [JobFailed(7.0, "a", 3, "why")]


def test_a_lost_node_stops_the_parts_elsewhere_and_their_reports_count_no_longer():
    gangs = gang()
    assert gangs.lose(4, 8.0) == Outcome()
    assert gangs.lose(1, 8.0).orders == [(0, PreemptOrder("a", 3))]
    assert told(gangs, 0, PREEMPTED, 30).events == []


def test_a_job_that_fails_goes_back_to_the_checkpoint_that_all_its_parts_have_until_its_retries_are_used_up():
    gangs = gang(retries=2)
    for generation, (first, second) in enumerate([(40, 30), (60, 50)], start=3):
        told(gangs, 0, PROGRESS, 70, generation, saved=first)
        told(gangs, 1, FAILED, 70, generation, "exit code 1", saved=second)
        (event,) = told(gangs, 0, FAILED, 70, generation, "lost its peer", saved=first).events[1:]
        again = f"retry {generation - 2} of 2: exit code 1"
        assert event == JobPreempted(7.0, "a", generation, 100.0 - second, again)
        start(gangs, generation + 1, done=second)
    told(gangs, 0, PREEMPTED, 70, 5)
    (event,) = told(gangs, 1, FAILED, 70, 5, "exit code 1").events[1:]
    assert event == JobFailed(7.0, "a", 5, "exit code 1 (after 2 retries)")
    start(gangs, 6, (0,))  # another job of that name: it has its own retries
    (event,) = told(gangs, 0, FAILED, 70, 6, "exit code 1", saved=0).events[1:]
    assert event == JobPreempted(7.0, "a", 6, 90.0, "retry 1 of 2: exit code 1")


def test_a_job_of_a_lost_node_goes_back_to_its_checkpoint():
    gangs = gang()
    told(gangs, 0, PROGRESS, 60, saved=60)
    told(gangs, 1, PROGRESS, 70, saved=40)
    assert gangs.lose(1, 8.0).events == [Progressed(8.0, ("a",), (60.0,))]


def test_a_job_that_was_told_to_stop_and_wrote_no_checkpoint_begins_where_it_was_launched():
    gangs = gang((0,))
    (event,) = told(gangs, 0, PREEMPTED, 70, saved=0).events[1:]
    assert event == JobPreempted(7.0, "a", 3, 90.0)


def test_submissions_are_forgotten_when_there_are_too_many():
    taken = Submissions(remembered=2)
    for number in range(3):
        taken.add(f"r{number}", (f"j{number}",), float(number))
    assert taken.known("r0", (job("j0"),)) is None
    assert taken.known("r2", (job("j2"),)) == 2.0
    with pytest.raises(Refused, match="request r2 came before with other jobs"):
        taken.known("r2", (job("j1"),))


def test_a_full_queue_refuses_requests_but_takes_the_runtimes_own_news():
    async def scenario():
        queue = CallQueue(1)
        request = QueryCluster(asyncio.get_running_loop().create_future())
        assert await queue.wait(0) == []
        queue.post(request, 1.0)
        with pytest.raises(Refused, match="1 requests are waiting") as caught:
            queue.post(request, 2.0)
        assert caught.value.kind is RefusalKind.BUSY
        queue.tell(WorkerSilent(0, "gone"), 3.0)
        assert [arrival.at_s for arrival in await queue.wait(10)] == [1.0, 3.0]

    asyncio.run(scenario())


def test_an_emulated_cycle_lasts_at_least_100_ms_of_wall_time():
    alone = iterations_per_turn([job("a")], (0,), 2_000.0)
    assert alone == 200
    pair = iterations_per_turn([job("a"), job("b")], (0, 2), 2_000.0)
    assert 100 <= pair < 200
    assert iterations_per_turn([job("a")], (0,), 1.0) == 1
