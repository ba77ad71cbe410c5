"""What of the published accounting depends on the policy, and that a policy's table of groups decides nothing."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from cluster_exp.domain.actions import Action, Launch
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.events import Event
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.models import Order
from cluster_exp.domain.policy import Trait
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.muri22 import Muri22Speed
from cluster_exp.policies.muri import Muri
from cluster_exp.policies.muri_groups import Groups, GroupTable, by_chunks, by_matching
from cluster_exp.policies.registry import make_policy
from cluster_exp.sim.muri22 import Muri22Cost, muri22_cost
from cluster_exp.sim.performance import RunningColumns
from cluster_exp.sim.simulate import SimulationOptions, simulate

LOADER, BRAIN = StageProfile(1, 0.5, 0.5, 0, 0), StageProfile(1, 0, 0, 1, 0)


def job(number: int, profile: StageProfile, submit_s: float = 0.0, num_gpu: int = 1) -> JobSpec:
    return JobSpec(f"j{number}", num_gpu, submit_s, 50 + 7 * number, 50.0 + 7 * number, "m", 1, profile)


@dataclass
class Launches:
    seen: list[tuple[float, str]]

    def record(self, event: Event, actions: tuple[Action, ...]) -> None:
        self.seen += [(a.time_s, a.job.job_id) for a in actions if isinstance(a, Launch)]


def launches(policy: Muri, jobs: list[JobSpec], cost_model: str) -> list[tuple[float, str]]:
    notes = Launches([])
    cluster = ClusterSpec((NodeSpec("n0", 2), NodeSpec("n1", 2)))
    simulate(policy, jobs, cluster, SimulationOptions(cost_model=cost_model), lambda _: 3.0, notes)
    return notes.seen


def test_every_member_of_a_group_loses_what_all_of_them_cost() -> None:
    cost = Muri22Cost(lambda job: 10.0 * job.num_gpu)
    assert cost.shared_cost_s([job(1, LOADER), job(2, BRAIN, num_gpu=4)]) == 50
    columns = RunningColumns(np.array([100.0, 100.0]), np.array([2.0, 1.0]), np.array([10.0, 50.0]))
    assert cost.ends_s(columns, 7.0).tolist() == [207, 107]
    cost.advance(columns, 30.0)
    assert columns.remaining.tolist() == [90, 100]
    assert columns.overhead_s.tolist() == [10, 50]  # and again at the next event


@pytest.mark.parametrize(
    ("traits", "arrival_s", "end", "placement", "factor_of_four"),
    [
        (set(), 0.0, 1e-9, "yarn", 1.37),
        ({Trait.SHARES}, 1e-4, 1e-9, "yarn", 1.37),
        ({Trait.SHARES, Trait.UNWEIGHED}, 1e-4, 1e-9, "yarn", 1.3),
        ({Trait.WAKES, Trait.COUNTS}, 0.0, 0.0, "count", 1.37),
    ],
)
def test_rules_follow_from_traits(
    traits: set[Trait], arrival_s: float, end: float, placement: str, factor_of_four: float
) -> None:
    class Declares:
        pass

    policy = Declares()
    policy.traits = frozenset(traits)
    cost = muri22_cost(policy, lambda _: 0.0)
    assert (cost.arrival_tolerance_s, cost.end_tolerance, cost.placement) == (arrival_s, end, placement)
    assert isinstance(cost.speed, Muri22Speed)
    assert cost.speed.contention.factor(4) == factor_of_four / 1.015


@pytest.mark.parametrize("cost_model", ["physical", "muri22"])
def test_a_policy_that_ran_before_plans_as_a_fresh_one(cost_model: str) -> None:
    first = [job(i, LOADER if i % 3 else BRAIN, submit_s=11.0 * i) for i in range(20)]
    other = [job(i, BRAIN if i % 2 else LOADER, submit_s=5.0 * i) for i in range(20)]
    used = make_policy("muri-s")
    assert isinstance(used, Muri)
    launches(used, first, "physical")
    launches(used, other, "muri22")
    assert launches(used, first, cost_model) == launches(replace(used, _tables=[]), first, cost_model)


def alone(table: GroupTable, classes: np.ndarray, home: list[int]) -> Groups:
    slots = np.full((classes.size, 4), -1)
    slots[:, 0] = np.arange(classes.size)
    return Groups(table.singles(classes), slots, np.array(home))


def members(buckets: list[Groups]) -> list[list[int]]:
    return [[slot for slot in row if slot >= 0] for groups in buckets for row in groups.members.tolist()]


def test_jobs_that_share_stay_together_when_the_matching_leaves_the_choice() -> None:
    table = GroupTable(Muri22Speed(), Order.BEST, (LOADER, BRAIN))
    classes = np.array([0, 0, 1, 1])
    joined = by_matching(table, classes, {1: alone(table, classes, [7, 8, 7, 8])}, 2, 4)
    assert sorted(members(joined)) == [[0, 2], [1, 3]]


def test_strangers_pair_from_both_ends_and_the_inner_pair_merges_first() -> None:
    table = GroupTable(Muri22Speed(), Order.BEST, (BRAIN,))
    classes = np.zeros(4, np.int64)
    groups = alone(table, classes, [-1] * 4)
    assert members(by_matching(table, classes, {1: groups}, 2, 4)) == [[0, 3], [1, 2]]
    assert members(by_matching(table, classes, {1: groups}, 1, 4)) == [[0], [1, 2], [3]]
    assert members(by_chunks(table, classes, {1: groups}, 1, 2)) == [[0, 1], [2], [3]]
