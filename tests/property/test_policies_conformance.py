"""What every policy of the registry has to keep, on small random traces and clusters."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from cluster_exp.core.recorder import Session
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import Action, RecordEnd
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.events import Event
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.domain.plan import Plan
from cluster_exp.domain.policy import Policy
from cluster_exp.domain.snapshot import DURATION_COLUMNS, Snapshot
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.policies.registry import make_policy, policy_names
from cluster_exp.sim.engine import Engine
from cluster_exp.sim.simulate import SimulationOptions, make_cost, make_scheduler

VARIANTS = ("muri-s:unpack=off", "muri-l:group=2", "muri-l:group=3", "muri-l:order=worst", "muri-l:grouping=chunks")
POLICIES = [*policy_names(), *VARIANTS, "drf:between=queues"]
COST_MODELS = ("physical", "muri22")
SEEDS = range(6)
PROFILES = [default_profiles().find(key) for key in default_profiles() if key.num_gpu in (1, 2, 4)]


@dataclass
class Checked:
    """A policy whose every plan is checked on the way through."""

    inner: Policy
    plans: list[Plan] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        before = {name: column.copy() for name, column in columns_of(snapshot).items()}
        for column in columns_of(snapshot).values():
            assert not column.flags.writeable
        plan = self.inner.plan(snapshot, json.loads(json.dumps(memory)))
        for name, column in columns_of(snapshot).items():
            np.testing.assert_array_equal(column, before[name], err_msg=name)
        for name in set(snapshot.columns) - self.inner.reads:
            assert np.isnan(snapshot.columns[name]).all()
        jobs = Counter(slot for group in plan.groups for slot in group.jobs)
        assert all(count == 1 for count in jobs.values()), "a job is in two groups"
        assert json.loads(json.dumps(dict(plan.memory))) == dict(plan.memory)
        self.plans.append(plan)
        return plan


def columns_of(snapshot: Snapshot) -> dict[str, np.ndarray]:
    opened = ("jobs", "seq", "status", "num_gpu", "profile_class", "group")
    return {name: getattr(snapshot, name) for name in opened} | dict(snapshot.columns)


class Watch:
    """Records everything, and runs the scheduler's invariants after every event."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.log: list[tuple[Event, tuple[Action, ...]]] = []

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        self.scheduler.check()
        self.log.append((event, tuple(actions)))


def random_case(seed: int) -> tuple[list[JobSpec], ClusterSpec]:
    rng = random.Random(seed)
    sizes = rng.choice([(1, 1), (4,), (8,), (3, 5), (4, 4, 2)])
    cluster = ClusterSpec(tuple(NodeSpec(f"n{i}", size, num_cpu=8, memory_gib=64.0) for i, size in enumerate(sizes)))
    identical = rng.random() < 0.2
    jobs = []
    for i in range(rng.randint(5, 25)):
        profile = PROFILES[0 if identical else rng.randrange(len(PROFILES))]
        assert profile is not None
        iterations = 0 if rng.random() < 0.1 else rng.randint(1, 20_000)
        jobs.append(
            JobSpec(
                job_id=f"j{i}",
                num_gpu=1 if identical else rng.randint(1, sum(sizes)),
                submit_s=float(rng.choice([0, 0, rng.randint(0, 5_000)])),
                iterations=iterations,
                duration_s=max(1.0, iterations * profile.iteration_s),
                model="m",
                batch_size=1,
                profile=profile,
                user=rng.choice(["", "ann", "bob"]),
                priority=rng.randint(0, 1),
            )
        )
    return sorted(jobs, key=lambda job: job.submit_s), cluster


def run(
    policy: Policy, jobs: list[JobSpec], cluster: ClusterSpec, cost_model: str, interval_s: float
) -> list[tuple[Event, tuple[Action, ...]]]:
    options = SimulationOptions(cost_model=cost_model, interval_s=interval_s)
    cost = make_cost(policy, options, lambda job: 5.0)
    scheduler = make_scheduler(policy, options, cost)
    watch = Watch(scheduler)
    Engine(Session(scheduler, watch), cost, interval_s).run(cluster, jobs)
    return watch.log


@pytest.mark.parametrize("interval_s", [0.0, 300.0], ids=["events", "rounds"])
@pytest.mark.parametrize("cost_model", COST_MODELS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_job_finishes_exactly_once_and_the_same_input_gives_the_same_run(
    name: str, cost_model: str, interval_s: float
) -> None:
    for seed in SEEDS:
        jobs, cluster = random_case(seed)
        log = run(Checked(make_policy(name)), jobs, cluster, cost_model, interval_s)
        ends = [action.record for _, actions in log for action in actions if isinstance(action, RecordEnd)]
        assert sorted(record.job_id for record in ends) == sorted(job.job_id for job in jobs), f"seed {seed}"
        assert {record.status for record in ends} == {JobStatus.FINISHED}, f"seed {seed}"
        assert log == run(make_policy(name), jobs, cluster, cost_model, interval_s), f"seed {seed}"


@dataclass
class Liar:
    """Shows a policy another length of every job that has not finished; both plans have to be equal."""

    inner: Policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        plan = self.inner.plan(snapshot, memory)
        altered = {
            name: column * 7.0 + 3.0 if name in DURATION_COLUMNS else column
            for name, column in snapshot.columns.items()
        }
        assert plan == self.inner.plan(replace(snapshot, columns=altered), memory)
        return plan


UNKNOWING = [name for name in POLICIES if not make_policy(name).reads & DURATION_COLUMNS]


def test_policies_for_unknown_durations_are_known() -> None:
    assert {"fifo", "las", "tiresias", "gittins", "drf", "muri-l"} <= set(UNKNOWING)
    assert not {"sjf", "srtf", "srsf", "muri-s"} & set(UNKNOWING)


@pytest.mark.parametrize("name", UNKNOWING)
def test_unknown_durations_do_not_matter_to_the_plan(name: str) -> None:
    """Neither the columns nor the jobs' own lengths: with other lengths the first plans are the same."""
    for seed in SEEDS:
        jobs, cluster = random_case(seed)
        run(Liar(make_policy(name)), jobs, cluster, "physical", 300.0)
        longer = [replace(job, duration_s=9 * job.duration_s, iterations=3 * job.iterations + 40_000) for job in jobs]
        first, second = Checked(make_policy(name)), Checked(make_policy(name))
        run(first, jobs, cluster, "physical", 1.0e6)
        run(second, longer, cluster, "physical", 1.0e6)
        assert first.plans[0] == second.plans[0], f"seed {seed}"


def test_a_hidden_column_is_really_hidden() -> None:
    """The check above can fail: a policy that peeks sees NaN."""

    class Peeking:
        name, reads, learns, plans_rates = "peeking", frozenset[str](), False, False

        def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
            assert np.isnan(snapshot.remaining_s).all()
            assert np.isnan(snapshot.duration_s).all()
            return make_policy("fifo").plan(replace(snapshot, columns={"submit_s": snapshot.seq * 1.0}), memory)

    jobs, cluster = random_case(1)
    options = SimulationOptions()
    cost = make_cost(Peeking(), options, lambda job: 0.0)  # type: ignore[arg-type]
    scheduler = make_scheduler(Peeking(), options, cost)  # type: ignore[arg-type]
    watch = Watch(scheduler)
    Engine(Session(scheduler, watch), cost).run(cluster, jobs)
    assert len(watch.log) > len(jobs)
