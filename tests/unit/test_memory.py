"""GPU memory limits who shares, for every policy that shares."""

import dataclasses
import math

import numpy as np
import pytest

from cluster_exp.core.invariants import check_plan
from cluster_exp.core.state import JobTable
from cluster_exp.domain.actions import Launch, SetTurns
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.memory import MemoryRules
from cluster_exp.domain.plan import GroupPlan, Plan, columns_of
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.fitting import NEVER, FittingSpeed
from cluster_exp.interleave.speed import LockstepSpeed, RatesSpeed
from cluster_exp.policies.registry import make_policy
from cluster_exp.sim.simulate import SimulationOptions, simulate
from tests.runtime.live_kit import Memory, job

RULES = MemoryRules(16_000.0, 4_000.0)
CLUSTER = ClusterSpec((NodeSpec("n0", 2),))
SHARING = ("muri-s", "muri-l", "muri-s:unpack=off", "muri-s:grouping=chunks", "weave-s", "weave-l")


def sized(job_id: str, memory_mib: float):
    """A long job; those of a kind interleave well."""
    stage = int(job_id[1:]) % 4
    times = [0.1] * 4
    times[stage] = 0.7
    plain = job(job_id, 1, 1000, profile=StageProfile(1.0, *times))
    return dataclasses.replace(plain, gpu_memory_mib=memory_mib)


def run(policy: str, jobs, rules: MemoryRules | None) -> Memory:
    memory = Memory()
    options = SimulationOptions(memory=rules)
    simulate(make_policy(policy), jobs, CLUSTER, options, lambda job: 0.0, memory)
    return memory


def shared(memory: Memory, jobs) -> list[float]:
    """Memory of each group of several that ever took turns."""
    needs = {one.job_id: one.gpu_memory_mib for one in jobs}
    groups = [[needs[member.job_id] for member in turns.group.members] for turns in memory.of(SetTurns)]
    return [sum(group) for group in groups if len(group) > 1]


def test_what_counts_is_measured_else_stated_else_assumed_else_infinite():
    plain = job("a").profile
    stated = sized("j0", 5_000.0)
    assert RULES.counted(stated, plain, 7_000.0).memory_mib == 7_000.0
    assert RULES.counted(stated, plain).memory_mib == 5_000.0
    assert RULES.counted(job("a"), plain).memory_mib == 4_000.0
    assert MemoryRules(16_000.0).counted(job("a"), plain).memory_mib == math.inf


@pytest.mark.parametrize("policy", SHARING)
def test_groups_that_share_fit(policy):
    jobs = [sized(f"j{i}", need) for i, need in enumerate([9_000, 9_000, 7_000, 7_000, 3_000, 3_000, 15_900, 100])]
    free, limited = run(policy, jobs, None), run(policy, jobs, RULES)
    assert max(shared(free, jobs)) > RULES.gpu_mib, "without the limit groups do not fit: the test shows something"
    assert shared(limited, jobs) or "chunks" in policy  # consecutive jobs: here no four of them fit
    assert max(shared(limited, jobs), default=0.0) <= RULES.gpu_mib
    assert {action.job.job_id for action in limited.of(Launch)} == {one.job_id for one in jobs}


@pytest.mark.parametrize("policy", SHARING)
def test_jobs_of_unknown_memory_share_with_nobody_unless_some_is_assumed(policy):
    jobs = [sized(f"j{i}", math.nan) for i in range(8)]
    assert shared(run(policy, jobs, MemoryRules(16_000.0)), jobs) == []
    assert len(shared(run(policy, jobs, RULES), jobs)) > 0


def test_antman_lets_large_jobs_have_gpus_of_their_own():
    jobs = [
        dataclasses.replace(sized(f"j{i}", need), priority=priority)
        for i, (need, priority) in enumerate([(9_000, 0), (9_000, 1), (7_000, 0), (7_000, 1)])
    ]
    held: dict[int, set[str]] = {}
    together: set[frozenset[str]] = set()
    memory = run("antman", jobs, RULES)
    for _, actions in memory.entries:
        for action in actions:
            if isinstance(action, Launch):
                for _, gpu in action.allotment.gpus:
                    held.setdefault(gpu, set()).add(action.job.job_id)
                    together |= {frozenset(held[gpu])}
            elif type(action).__name__ == "RecordEnd":
                for there in held.values():
                    there.discard(action.record.job_id)
    assert not [group for group in together if len(group) > 1 and group & {"j0", "j1"}]


def test_a_plan_that_does_not_fit_is_refused():
    table = JobTable(LockstepSpeed(), memory=RULES)
    slots = tuple(table.add(sized(f"j{i}", 9_000.0)) for i in range(2))
    plan = Plan((GroupPlan(slots, (0, 1)),))
    with pytest.raises(InvariantError, match="someone plans 18000 MiB on GPUs of 16000 MiB"):
        check_plan("someone", plan, columns_of(plan.groups), table)


def test_a_measured_peak_counts_from_then_on():
    table = JobTable(LockstepSpeed(), memory=RULES)
    slot = table.add(sized("j0", 5_000.0))
    table.use_profile(slot, table.live[slot].spec.profile, 12_000.0)
    assert table.profiles[table.int_column("profile_class")[slot]].memory_mib == 12_000.0


@pytest.mark.parametrize("base", [LockstepSpeed(), RatesSpeed()])
def test_only_groups_that_do_not_fit_are_slow(base):
    speed = FittingSpeed(base, RULES)
    small, large = StageProfile(1.0, 0.1, 0.2, 0.3, 0.1, 6_000.0), StageProfile(1.0, 0.2, 0.2, 0.1, 0.1, 11_000.0)
    assert speed.group([large]) == base.group([large])
    assert speed.group([small, small]) == base.group([small, small])
    assert speed.group([small, large]).cycle_s == NEVER * base.group([small, large]).cycle_s
    members = np.array([[0, 0], [0, 1]])
    factors = speed.iterations_s([small, large], members) / base.iterations_s([small, large], members)
    assert factors.tolist() == [[1.0, 1.0], [NEVER, NEVER]]
    assert (speed.cycles_s([small, large], members) / base.cycles_s([small, large], members)).tolist() == [1.0, NEVER]
