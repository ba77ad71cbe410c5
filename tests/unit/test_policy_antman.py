"""AntMan: who gets which GPUs, and how fast it is there."""

import pytest

from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import Action, Launch
from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.events import JobArrived, JobFinished, PlanDue, WorkerJoined, WorkerLost
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.plan import GroupPlan, Plan
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.speed import LockstepSpeed
from cluster_exp.policies.registry import make_policy
from cluster_exp.sim.sharing import Neighbours, iterations_beside, leftover_s

PROFILE = StageProfile(1.0, 0.1, 0.2, 0.6, 0.1)


class Desk:
    """A scheduler under AntMan, with the allotment of each launched job."""

    def __init__(self, *sizes: int) -> None:
        self.scheduler = Scheduler(make_policy("antman"), LockstepSpeed(), PLACEMENTS["consolidated"])
        self.where: dict[str, tuple[tuple[int, int], ...]] = {}
        self.now_s = 0.0
        for node, size in enumerate(sizes):
            self.scheduler.handle(WorkerJoined(0.0, node, NodeSpec(f"n{node}", size)))

    def arrive(self, job_id: str, num_gpu: int, priority: int = 0) -> None:
        job = JobSpec(job_id, num_gpu, self.now_s, 100, 100.0, "m", 1, PROFILE, priority=priority)
        self.scheduler.handle(JobArrived(self.now_s, job))

    def plan(self) -> list[str]:
        """Ids of the jobs that start, in order."""
        self.now_s += 1.0
        return self.started(self.scheduler.handle(PlanDue(self.now_s)))

    def finish(self, job_id: str) -> None:
        self.scheduler.handle(JobFinished(self.now_s, job_id, 1))
        self.scheduler.check()

    def started(self, actions: list[Action]) -> list[str]:
        self.scheduler.check()
        launches = [action for action in actions if isinstance(action, Launch)]
        self.where |= {launch.job.job_id: launch.allotment.gpus for launch in launches}
        return [launch.job.job_id for launch in launches]


def test_guaranteed_jobs_have_gpus_of_their_own_and_opportunistic_ones_join_them() -> None:
    desk = Desk(2)
    for job_id, priority in (("g1", 0), ("o1", 1), ("o2", 1), ("g2", 0)):
        desk.arrive(job_id, 1, priority)
    assert desk.plan() == ["g1", "g2", "o1", "o2"]
    assert desk.where == {"g1": ((0, 0),), "g2": ((0, 1),), "o1": ((0, 0),), "o2": ((0, 1),)}


def test_two_opportunistic_jobs_do_not_share_a_gpu() -> None:
    desk = Desk(1)
    desk.arrive("o1", 1, 1)
    desk.arrive("o2", 1, 1)
    assert desk.plan() == ["o1"]
    desk.finish("o1")
    assert desk.plan() == ["o2"]


def test_opportunistic_jobs_take_idle_gpus_first_and_all_or_none() -> None:
    desk = Desk(2, 2)
    desk.arrive("g", 1)
    desk.arrive("o3", 3, 1)
    desk.arrive("o2", 2, 1)
    desk.arrive("o1", 1, 1)
    assert desk.plan() == ["g", "o3", "o1"]
    assert desk.where["o3"] == ((0, 1), (1, 0), (1, 1))
    assert desk.where["o1"] == ((0, 0),)


def test_a_waiting_guaranteed_job_keeps_what_it_found() -> None:
    """`wide` finds one GPU of two and keeps it: `late` would fit there, but waits behind it."""
    desk = Desk(2)
    desk.arrive("g", 1)
    assert desk.plan() == ["g"]
    desk.arrive("wide", 2)
    desk.arrive("late", 1)
    assert desk.plan() == []
    desk.finish("g")
    assert desk.plan() == ["wide"]
    desk.finish("wide")
    assert desk.plan() == ["late"]


def test_what_a_waiting_job_keeps_is_open_to_opportunistic_jobs() -> None:
    desk = Desk(2)
    desk.arrive("g", 1)
    desk.plan()
    desk.arrive("wide", 2)
    desk.arrive("o", 1, 1)
    assert desk.plan() == ["o"]
    assert desk.where["o"] == ((0, 1),)


def test_a_job_larger_than_a_node_gathers_whole_nodes_and_a_remainder() -> None:
    desk = Desk(2, 2, 2)
    desk.arrive("a", 1)
    desk.arrive("b", 1)
    assert desk.plan() == ["a", "b"]
    desk.arrive("wide", 5)
    assert desk.plan() == []
    desk.finish("a")
    assert desk.plan() == ["wide"]
    assert desk.where["wide"] == ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1))


def test_jobs_that_wait_for_what_the_other_keeps_give_it_back() -> None:
    """After the loss of a node `first`, which ran, waits again, while `second` keeps the other node."""
    desk = Desk(2, 2, 2)
    desk.arrive("first", 4)
    assert desk.plan() == ["first"]
    desk.arrive("second", 4)
    assert desk.plan() == []
    desk.scheduler.handle(WorkerLost(desk.now_s, 0, "lost"))
    assert desk.plan() == ["first"]
    assert desk.where["first"] == ((1, 0), (1, 1), (2, 0), (2, 1))


def test_a_job_larger_than_what_is_left_of_the_cluster_keeps_nothing() -> None:
    desk = Desk(2, 1)
    desk.arrive("wide", 3)
    desk.scheduler.handle(WorkerLost(desk.now_s, 1, "lost"))
    desk.arrive("small", 2)
    assert desk.plan() == ["small"]


def job(priority: int, profile: StageProfile = PROFILE) -> JobSpec:
    return JobSpec("j", 1, 0.0, 100, 100.0, "m", 1, profile, priority=priority)


def test_an_iteration_in_the_gaps_of_a_neighbour() -> None:
    """Stages: own 3, 2, 1; the neighbour's 2, 1, 1 (4 s an iteration).

    Loading 3 s in gaps of 1 + 1: one iteration and 1 s of a second, whose gap leaves 1 s for computing: 1 s of 2 is
    left. Computing 1 s in gaps of 2 + 1: a third iteration, and since 1 < 2, 2 + 1 - 1 = 2 s are left of it for the
    exchange of 1 s: nothing remains. Three iterations.
    """
    assert iterations_beside(StageProfile(6.0, 3.0, 0.0, 2.0, 1.0), StageProfile(4.0, 1.0, 1.0, 1.0, 1.0)) == 3


def test_a_neighbour_that_leaves_a_resource_no_time_takes_turns() -> None:
    gpu_only = StageProfile(1.0, 0.0, 0.0, 1.0, 0.0)
    assert iterations_beside(gpu_only, gpu_only) == 1
    assert iterations_beside(StageProfile(2.5, 0.0, 0.0, 2.5, 0.0), gpu_only) == 3
    idle = StageProfile(1.0, 0.0, 0.0, 0.0, 0.0)
    assert iterations_beside(gpu_only, idle) == 0


def test_guaranteed_jobs_are_never_slowed_and_others_by_the_worst_neighbour() -> None:
    speed = LockstepSpeed()
    slow = StageProfile(4.0, 1.0, 1.0, 1.0, 1.0)
    own = job(1, StageProfile(6.0, 3.0, 0.0, 2.0, 1.0))
    assert leftover_s(speed, job(0), 1.0, [job(0, slow), job(1)]) == 1.0
    assert leftover_s(speed, own, 6.0, [job(0, slow)]) == 12.0
    assert leftover_s(speed, own, 6.0, []) == 6.0
    assert leftover_s(speed, own, 60.0, [job(0, slow)]) == 60.0
    assert leftover_s(speed, own, 20.0, [job(0, slow), job(1)]) == 40.0


def test_neighbours_are_jobs_of_other_groups_on_common_gpus() -> None:
    def part(*gpus: int) -> Allotment:
        return Allotment((NodeShare(0, gpus, 0.5),))

    neighbours = Neighbours()
    neighbours.start("a", 1, part(0, 1))
    neighbours.start("b", 2, part(1))
    neighbours.start("c", 2, part(1))
    neighbours.start("whole", 3, Allotment((NodeShare(0, (2,)),)))
    assert neighbours.of("a") == ["b", "c"]
    assert neighbours.of("b") == ["a"]
    assert neighbours.of("whole") == []
    assert set(neighbours.take_touched()) == {1, 2}
    neighbours.leave("a")
    assert neighbours.of("b") == []
    assert list(neighbours.take_touched()) == [2]
    neighbours.regroup(4, ["c"])
    assert neighbours.of("b") == ["c"]


@pytest.mark.parametrize(("fraction", "fine"), [(0.5, True), (0.6, False), (1.0, False)])
def test_groups_on_a_gpu_ask_for_at_most_all_of_it(fraction: float, fine: bool) -> None:
    class Halves:
        name, reads, learns, plans_rates = "halves", frozenset[str](), False, False

        def plan(self, snapshot, memory) -> Plan:
            share = (Allotment((NodeShare(0, (0,), fraction),)),)
            return Plan(tuple(GroupPlan((slot,), allotments=share) for slot in snapshot.jobs.tolist()))

    scheduler = Scheduler(Halves(), LockstepSpeed(), PLACEMENTS["consolidated"])
    scheduler.handle(WorkerJoined(0.0, 0, NodeSpec("n0", 1)))
    for job_id in ("a", "b"):
        scheduler.handle(JobArrived(0.0, JobSpec(job_id, 1, 0.0, 1, 1.0, "m", 1, PROFILE)))
    scheduler.handle(PlanDue(0.0))
    if fine:
        scheduler.check()
    else:
        with pytest.raises(InvariantError, match="together hold more than GPU 0/0"):
            scheduler.check()
