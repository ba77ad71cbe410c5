"""The cost model `helios`, worked out by hand."""

import random
from dataclasses import dataclass, field

import pytest

from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.domain.actions import Action, JobRecord, RecordEnd
from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.events import Event, PlanDue
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.plan import Misfit
from cluster_exp.domain.profile import StageProfile
from cluster_exp.policies.registry import make_policy
from cluster_exp.sim.simulate import SimulationOptions, simulate
from tests.unit.placement_kit import Request, place


@dataclass
class Collector:
    records: dict[str, JobRecord] = field(default_factory=dict)
    plans: int = 0

    def record(self, event: Event, actions: list[Action]) -> None:
        self.plans += isinstance(event, PlanDue)
        for action in actions:
            if isinstance(action, RecordEnd):
                self.records[action.record.job_id] = action.record


def job(name: str, num_gpu: int, submit_s: float, duration_s: float) -> JobSpec:
    """Iterations and stages are nonsense: the cost model is to look at the duration alone."""
    return JobSpec(name, num_gpu, submit_s, 3, duration_s, "vgg16", 1, StageProfile(7.0, 1.0, 1.0, 1.0, 1.0))


def ran(policy: str, jobs: list[JobSpec], nodes: int = 1, interval_s: float = 0.0) -> Collector:
    cluster = ClusterSpec(tuple(NodeSpec(f"n{i}", 8) for i in range(nodes)))
    options = SimulationOptions("helios", interval_s=interval_s)
    collector = Collector()
    simulate(make_policy(policy), jobs, cluster, options, lambda _: 99.0, collector)
    return collector


def ends(collector: Collector) -> dict[str, float]:
    return {name: record.end_s for name, record in collector.records.items()}


def test_a_job_lasts_its_stated_duration_without_preemption() -> None:
    """A runs 0 to 100. B (8 GPUs) waits for it, 100 to 110. C needs one GPU but does not overtake B: 110 to 115."""
    jobs = [job("A", 8, 0, 100), job("B", 8, 50, 10), job("C", 1, 51, 5)]
    assert ends(ran("fifo", jobs)) == {"A": 100, "B": 110, "C": 115}


@pytest.mark.parametrize(("num_gpu", "penalty_s"), [(1, 7), (2, 30), (8, 30), (16, 60)])
def test_a_preemption_costs_by_gpus(num_gpu: int, penalty_s: int) -> None:
    """B takes A's GPUs at 50, when A has 50 s left, and holds them 10 s and a tick: until 61.

    A then has 50 s and the penalty to do, and a tick.
    """
    wide = job("wide", 16 - num_gpu, 0, 1) if num_gpu < 16 else None
    jobs = [job("A", num_gpu, 0, 100), job("B", 16, 50, 10)]
    collector = ran("srtf", [*([wide] if wide else []), *jobs], nodes=2)
    assert collector.records["B"].end_s == 61
    assert collector.records["A"].end_s == 61 + 50 + penalty_s + 1
    assert collector.records["A"].preempted == 1


def test_who_runs_is_counted_and_only_then_placed() -> None:
    """Two nodes with 4 GPUs free each. A job of 8 is chosen by count, finds no node, and holds back the job of 4."""
    left, right = (Allotment((NodeShare(node, (0, 1, 2, 3)),)) for node in (0, 1))
    requests = [Request(4, left), Request(4, right), Request(8), Request(4)]
    placed = place(requests, {0: 8, 1: 8}, PLACEMENTS["quota"], Misfit.SKIP, False)
    assert placed == [left, right, None, None]


def test_five_jobs_by_hand() -> None:
    """Two nodes. At 0, P (4 GPUs, 40 s), Q (4, 60 s) fill one node and R (4, 90 s) half the other. At 10, W (8 GPUs,
    45 s) and X (4, 100 s) come. The order is P 30, W 45, Q 50, R 80, X 100: with P, W and Q all 16 GPUs are counted,
    R is preempted (30 s: 110 left), and W starts on the node that R leaves. P ends at 41; X (100 s) is before R now
    and takes its place until 142. W ends at 56, Q at 61. R has its node back at 56, for 110 s and a tick.
    """
    jobs = [job("P", 4, 0, 40), job("Q", 4, 0, 60), job("R", 4, 0, 90), job("W", 8, 10, 45), job("X", 4, 10, 100)]
    collector = ran("srtf", jobs, nodes=2)
    assert ends(collector) == {"P": 41, "Q": 61, "W": 56, "X": 142, "R": 167}


@pytest.mark.parametrize("seed", range(6))
def test_skipped_ticks_change_nothing(seed: int) -> None:
    draw = random.Random(seed)
    sizes = (1, 2, 4, 5, 8, 12, 16)
    jobs = [
        job(f"j{i}", draw.choice(sizes), submit_s, draw.randint(1, 60))
        for i, submit_s in enumerate(sorted(draw.randint(0, 200) for _ in range(30)))
    ]
    skipping, ticking = ran("srtf", jobs, nodes=3), ran("srtf", jobs, nodes=3, interval_s=1.0)
    assert ends(skipping) == ends(ticking)
    assert skipping.plans < ticking.plans / 3
