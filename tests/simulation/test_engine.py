"""The engine under the physical cost model, on cases worked out by hand."""

from collections.abc import Sequence

import pytest

from cluster_exp.domain.actions import Action, JobRecord, RecordEnd
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.events import Event, PlanDue, Progressed
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile
from cluster_exp.policies.registry import make_policy
from cluster_exp.sim.engine import Engine
from cluster_exp.sim.simulate import SimulationOptions, simulate

GPU_ONLY = StageProfile(1.0, 0.0, 0.0, 1.0, 0.0)
CPU_ONLY = StageProfile(1.0, 0.0, 1.0, 0.0, 0.0)


class Notes:
    def __init__(self) -> None:
        self.records: dict[str, JobRecord] = {}
        self.plans_s: list[float] = []
        self.log: list[tuple[Event, tuple[Action, ...]]] = []

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        self.log.append((event, tuple(actions)))
        if isinstance(event, PlanDue):
            self.plans_s.append(event.time_s)
        for action in actions:
            if isinstance(action, RecordEnd):
                self.records[action.record.job_id] = action.record


def job(
    job_id: str, iterations: int, submit_s: float = 0.0, num_gpu: int = 1, profile: StageProfile = GPU_ONLY
) -> JobSpec:
    return JobSpec(job_id, num_gpu, submit_s, iterations, float(max(1, iterations)), "m", 1, profile)


def run(
    policy: str, jobs: list[JobSpec], gpus: tuple[int, ...] = (1,), start_s: float = 0.0, interval_s: float = 0.0
) -> Notes:
    notes = Notes()
    cluster = ClusterSpec(tuple(NodeSpec(f"n{i}", size) for i, size in enumerate(gpus)))
    options = SimulationOptions(interval_s=interval_s)
    simulate(make_policy(policy), jobs, cluster, options, lambda _: start_s, notes)
    return notes


def ends(notes: Notes) -> dict[str, float]:
    return {job_id: record.end_s for job_id, record in notes.records.items()}


def test_fifo_runs_one_after_another() -> None:
    assert ends(run("fifo", [job("a", 10), job("b", 1, submit_s=1)])) == {"a": 10, "b": 11}


def test_srtf_preempts_for_the_shorter_and_resumes() -> None:
    notes = run("srtf", [job("a", 10), job("b", 1, submit_s=1)])
    assert ends(notes) == {"b": 2, "a": 11}
    assert (notes.records["a"].preempted, notes.records["a"].executed_s) == (1, 10)


def test_a_start_costs_once_per_start() -> None:
    # a starts (2 s), runs 3 of 10 iterations until 5; b starts (2 s), runs 1 until 8; a starts again and needs 7.
    notes = run("srtf", [job("a", 10), job("b", 1, submit_s=5)], start_s=2.0)
    assert ends(notes) == {"b": 8, "a": 17}


def test_fifo_does_not_overtake_and_srsf_does() -> None:
    jobs = [job("a", 10), job("wide", 1, submit_s=1, num_gpu=2), job("c", 3, submit_s=2)]
    assert ends(run("fifo", jobs, gpus=(2,))) == {"a": 10, "wide": 11, "c": 14}
    # wide needs 2 GPU-seconds and goes first; c has 3, a 9 left.
    assert ends(run("srsf", jobs, gpus=(2,))) == {"wide": 2, "c": 5, "a": 11}


def test_muri_interleaves_complementary_jobs_only_when_gpus_are_short() -> None:
    pair = [job("a", 10), job("b", 10, profile=CPU_ONLY)]
    assert ends(run("muri-s", pair, gpus=(1,))) == {"a": 10, "b": 10}
    assert ends(run("muri-s", [job("a", 10), job("b", 20)], gpus=(2,))) == {"a": 10, "b": 20}


def test_muri_does_not_form_groups_that_lose() -> None:
    idle = StageProfile(1.0, 0.0, 0.0, 0.6, 0.0)
    jobs = [job("a", 10, profile=idle), job("b", 10, profile=idle)]
    notes = run("muri-s", jobs)
    assert ends(notes) == {"a": 12, "b": 12}
    worse = StageProfile(0.5, 0.5, 0.0, 0.5, 0.0)  # stages overlap alone: in turns it would take twice as long
    assert ends(run("muri-s", [job("a", 10, profile=worse), job("b", 10, profile=worse)])) == {"a": 10, "b": 10}


def test_rounds_plan_at_multiples_of_the_interval() -> None:
    notes = run("fifo", [job("a", 10, submit_s=3), job("b", 1, submit_s=4)], interval_s=5.0)
    assert ends(notes) == {"a": 15, "b": 16}
    assert all(time_s % 5 == 0 for time_s in notes.plans_s)


def test_no_iterations_no_time() -> None:
    assert ends(run("srtf", [job("a", 0, submit_s=2), job("b", 5, submit_s=2)])) == {"a": 2, "b": 7}


def test_equal_submit_times_are_one_instant() -> None:
    notes = run("fifo", [job(str(i), 1) for i in range(4)], gpus=(4,))
    assert set(ends(notes).values()) == {1.0}
    assert notes.plans_s == [0.0, 1.0]


def test_the_same_input_gives_the_same_events_and_actions() -> None:
    jobs = [job(str(i), 5 + 7 * i % 11, submit_s=i, num_gpu=1 + i % 3) for i in range(20)]
    assert run("muri-s", jobs, gpus=(2, 2)).log == run("muri-s", jobs, gpus=(2, 2)).log


def test_a_job_that_can_never_run_is_named() -> None:
    with pytest.raises(InvariantError, match="1 jobs wait"):
        run("fifo", [job("a", 1, num_gpu=3)], gpus=(2,))


@pytest.mark.parametrize("policy", ["fifo", "srsf", "las", "muri-s"])
def test_rounds_that_are_skipped_change_nothing(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [job(f"j{i}", 300 + 170 * i, submit_s=90.0 * i, num_gpu=2 ** (i % 3)) for i in range(12)]
    skipping = run(policy, jobs, (4, 4), start_s=7.0, interval_s=60.0)
    monkeypatch.setattr(Engine, "_alone", lambda self: False)
    planning = run(policy, jobs, (4, 4), start_s=7.0, interval_s=60.0)
    assert len(skipping.plans_s) < len(planning.plans_s) - 10
    for job_id, record in planning.records.items():
        skipped = skipping.records[job_id]
        assert skipped.end_s == pytest.approx(record.end_s)
        assert (skipped.start_s, skipped.preempted) == (record.start_s, record.preempted)
        assert skipped.executed_s == pytest.approx(record.executed_s)


def test_policies_that_want_to_be_asked_are_asked_in_every_round() -> None:
    assert len(run("tiresias", [job("a", 600)], (4,), interval_s=60.0).plans_s) >= 9


def test_between_rounds_nobody_reports_progress() -> None:
    notes = run("srsf", [job("a", 100), job("b", 10), job("c", 200, submit_s=5)], (2,), interval_s=60.0)
    reports = [event.time_s for event, _ in notes.log if isinstance(event, Progressed)]
    assert set(reports) <= set(notes.plans_s)
    assert len(reports) >= 1


def test_rounds_are_not_skipped_where_another_order_of_the_same_jobs_does_not_fit() -> None:
    jobs = [job("a", 900), job("b", 900), job("c", 300, 100, num_gpu=3), job("d", 300, 100, num_gpu=3)]
    notes = run("muri-l", jobs, gpus=(4, 4), interval_s=10)
    # From 160 s on the wide jobs have had more: 3 * 60 s > 160 s. In that order the others share a node.
    assert notes.records["d"].preempted > 0
    assert 160 in notes.plans_s
