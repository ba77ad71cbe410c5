"""Measured profiles in the core: when decisions turn to them, and who has to be alone before."""

import argparse
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from cluster_exp.cli.options import RunSpec, run_spec
from cluster_exp.cli.run import add_arguments
from cluster_exp.core.measured import KEPT_WINDOWS, LEAST_WINDOWS, MeasuredProfiles
from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import Launch, UseProfile
from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.errors import InputError, InvariantError
from cluster_exp.domain.events import JobArrived, JobStarted, Measured, PlanDue, WorkerJoined
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.plan import GroupPlan, Plan
from cluster_exp.domain.profile import StageProfile
from cluster_exp.inputs.profiles import ProfileTable, default_profiles
from cluster_exp.inputs.traces import read_trace
from cluster_exp.interleave.speed import LockstepSpeed
from cluster_exp.policies.registry import POLICIES, make_policy
from cluster_exp.results.history import read_history
from cluster_exp.results.journal import JournalWriter, read_journal

READER = StageProfile(1.0, 0.6, 0.2, 0.1, 0.1)
LEARNER = StageProfile(1.0, 0.1, 0.1, 0.7, 0.1)
GUESS = StageProfile(1.0, 0.0, 0.0, 1.0, 0.0)


def job(job_id: str, profile: StageProfile = READER, model: str = "m", **fields: object) -> JobSpec:
    return JobSpec(job_id, 1, 0.0, 100, 100.0, model, 16, profile, **fields)  # type: ignore[arg-type]


def started(*jobs: JobSpec, policy: str = "srsf", gpus: int = 4) -> Scheduler:
    scheduler = Scheduler(make_policy(policy, read_history), LockstepSpeed(), PLACEMENTS["consolidated"])
    scheduler.handle(WorkerJoined(0.0, 0, NodeSpec("n", gpus)))
    for spec in jobs:
        scheduler.handle(JobArrived(0.0, spec))
    for action in scheduler.handle(PlanDue(0.0)):
        if isinstance(action, Launch):
            scheduler.handle(JobStarted(0.0, action.job.job_id, action.generation))
    return scheduler


def measured(job_id: str, profile: StageProfile, turns: bool = False, time_s: float = 1.0) -> Measured:
    return Measured(time_s, job_id, 1, 10, profile, turns, 512.0)


def test_a_stated_profile_gives_way_to_several_measurements_that_differ() -> None:
    scheduler = started(job("a"), job("b"), job("other", model="n"))
    for _ in range(LEAST_WINDOWS - 1):
        assert scheduler.handle(measured("a", LEARNER)) == []
    twice = StageProfile(2.0, 0.2, 0.2, 1.4, 0.2)
    assert scheduler.handle(measured("other", twice)) == []
    (action,) = scheduler.handle(measured("a", LEARNER))
    assert action == UseProfile(1.0, job("a").profile_key, READER, LEARNER, LEAST_WINDOWS, ("a", "b"), 512.0)
    seen = scheduler.snapshot()
    profiles = [seen.profiles[seen.profile_class[slot]] for slot in seen.jobs]
    assert profiles == [LEARNER, LEARNER, READER]
    (action,) = scheduler.handle(JobArrived(1.0, job("late")))
    assert action == UseProfile(1.0, job("a").profile_key, READER, LEARNER, LEAST_WINDOWS, ("late",), 512.0)
    seen = scheduler.snapshot()
    assert seen.profiles[seen.profile_class[seen.jobs[-1]]] == LEARNER


def test_remaining_service_follows_the_measured_iteration() -> None:
    scheduler = started(job("a"))
    for _ in range(LEAST_WINDOWS):
        scheduler.handle(measured("a", StageProfile(3.0, 0.6, 0.2, 2.1, 0.1)))
    seen = scheduler.snapshot()
    assert seen.columns["remaining_s"][seen.jobs[0]] == 300.0


def test_measurements_that_hardly_differ_or_come_too_late_change_nothing() -> None:
    scheduler = started(job("a"))
    near = StageProfile(1.05, 0.63, 0.2, 0.1, 0.1)
    assert [scheduler.handle(measured("a", near)) for _ in range(20)] == [[]] * 20
    assert scheduler.handle(dataclasses.replace(measured("a", LEARNER), generation=2)) == []
    assert scheduler.handle(measured("stranger", LEARNER)) == []


def test_odd_windows_do_not_sway_the_estimate() -> None:
    profiles = MeasuredProfiles()
    odd = StageProfile(30.0, 20.0, 2.0, 7.0, 1.0)
    changes = [profiles.note(job("a"), measured("a", odd if i % 4 == 1 else READER)) for i in range(3 * KEPT_WINDOWS)]
    assert set(changes) == {None}


def test_stages_come_from_turns_and_the_iteration_from_iterations_alone() -> None:
    """Alone, prefetching squeezes the stages below what they need by themselves."""
    profiles = MeasuredProfiles()
    squeezed, unfolded = StageProfile(1.0, 0.3, 0.2, 0.3, 0.2), StageProfile(2.0, 0.6, 0.4, 0.6, 0.4)
    profiles.note(job("a"), measured("a", squeezed))
    for _ in range(LEAST_WINDOWS):
        profiles.note(job("a"), measured("a", unfolded, turns=True))
    assert profiles.in_use(job("a")) == StageProfile(1.0, 0.6, 0.4, 0.6, 0.4)


def test_without_iterations_alone_the_stated_one_is_stretched() -> None:
    profiles = MeasuredProfiles()
    overlapping = job("a", StageProfile(1.0, 0.5, 0.5, 0.5, 0.5))
    change = None
    for _ in range(LEAST_WINDOWS):
        change = profiles.note(overlapping, measured("a", StageProfile(4.0, 1.0, 1.0, 1.0, 1.0), turns=True))
    assert change is not None
    assert change.profile == StageProfile(2.0, 1.0, 1.0, 1.0, 1.0)


def test_overlapping_stages_are_not_taken_from_iterations_alone() -> None:
    profiles = MeasuredProfiles()
    overlapping = job("a", StageProfile(1.0, 0.5, 0.5, 0.5, 0.5))
    as_stated, slower = StageProfile(1.0, 0.25, 0.25, 0.25, 0.25), StageProfile(2.0, 0.5, 0.5, 0.5, 0.5)
    assert {profiles.note(overlapping, measured("a", as_stated)) for _ in range(LEAST_WINDOWS)} == {None}
    for _ in range(KEPT_WINDOWS):
        profiles.note(overlapping, measured("a", slower))
    assert profiles.in_use(overlapping) == StageProfile(2.0, 1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_no_policy_lets_a_job_share_before_it_was_measured(policy: str) -> None:
    """More jobs than GPUs, so that policies that share have a reason to; `check_plan` raises if one does."""
    specs = [job(f"j{i}", (READER, LEARNER)[i % 2], priority=i % 2) for i in range(9)]
    specs += [job(f"g{i}", GUESS, "new", profiled=False, priority=i % 2) for i in range(3)]
    scheduler = started(*specs, policy=policy)
    for i in range(3):
        scheduler.handle(measured(f"g{i}", LEARNER, time_s=1.0 + i))
        scheduler.handle(PlanDue(2.0 + i))
        scheduler.check()


def test_a_guess_gives_way_to_the_first_measurement_and_then_shares() -> None:
    scheduler = started(
        job("a", GUESS, "new", profiled=False),
        job("b"),
        job("c", LEARNER),
        job("d", LEARNER),
        policy="muri-s",
        gpus=2,
    )
    seen = scheduler.snapshot()
    assert seen.guessed[seen.jobs].tolist() == [1, 0, 0, 0]
    alone = seen.group[seen.jobs]
    assert alone[0] >= 0
    assert np.count_nonzero(alone == alone[0]) == 1
    (action,) = scheduler.handle(measured("a", READER))
    assert isinstance(action, UseProfile)
    assert action.guessed
    assert not scheduler.snapshot().guessed.any()


class Careless:
    """Puts all jobs into one group."""

    name, reads, learns, plans_rates = "careless", frozenset[str](), False, False

    def plan(self, snapshot, memory):  # type: ignore[no-untyped-def]
        jobs = tuple(snapshot.jobs.tolist())
        return Plan((GroupPlan(jobs, tuple(range(len(jobs)))),))


def test_a_plan_that_lets_a_guess_share_is_refused() -> None:
    scheduler = Scheduler(Careless(), LockstepSpeed(), PLACEMENTS["consolidated"])
    scheduler.handle(WorkerJoined(0.0, 0, NodeSpec("n", 1)))
    scheduler.handle(JobArrived(0.0, job("a")))
    scheduler.handle(JobArrived(0.0, job("b", GUESS, profiled=False)))
    with pytest.raises(InvariantError, match="careless lets job b share GPUs before it was measured"):
        scheduler.handle(PlanDue(0.0))


def test_a_journal_keeps_measurements_and_replays_to_the_same_actions(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path / "journal", {})
    scheduler = started()
    spec = job("a", GUESS, profiled=False)
    events = [JobArrived(0.0, spec), PlanDue(0.0), measured("a", READER), PlanDue(2.0)]
    events.append(dataclasses.replace(measured("a", READER, time_s=3.0), peak_gpu_mib=None))
    for event in events:
        writer.record(event, scheduler.handle(event))
    writer.close()
    fresh = started()
    entries = read_journal(tmp_path / "journal").entries
    assert [entry.event for entry in entries][2:] == events[2:]
    assert [tuple(fresh.handle(entry.event)) for entry in entries] == [entry.actions for entry in entries]
    assert any(isinstance(action, UseProfile) for entry in entries for action in entry.actions)


def test_a_trace_without_stage_times_is_admitted_when_asked(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration\na,1,0,50,mine,8,100000\n")
    with pytest.raises(InputError, match="no stage times of such a model"):
        read_trace(trace, default_profiles())
    (spec,) = read_trace(trace, ProfileTable(), admit_unprofiled=True).jobs
    assert (spec.profiled, spec.profile) == (False, StageProfile(2.0, 0.0, 0.0, 2.0, 0.0))


def options_of(tmp_path: Path, *words: str) -> RunSpec:
    trace, cluster = tmp_path / "t.csv", tmp_path / "c.csv"
    trace.write_text("job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration\na,1,0,50,bert,4,100000\n")
    columns = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node"
    cluster.write_text(f"{columns}\n1,1,1,8,64\n")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = ["--policy", "srsf", "--trace", str(trace), "--cluster", str(cluster), "--out", str(tmp_path / "out")]
    return run_spec(parser.parse_args([*given, *words]))


@pytest.mark.parametrize(
    ("words", "measures"),
    [
        (["--mode", "local"], False),
        (["--mode", "local", "--measured-profiles"], True),
        (["--mode", "local", "--admit-unprofiled"], True),
        (["--mode", "local", "--admit-unprofiled", "--stated-profiles"], False),
        (["--admit-unprofiled"], False),
    ],
)
def test_emulated_runs_keep_what_is_stated_unless_asked(tmp_path: Path, words: list[str], measures: bool) -> None:
    assert options_of(tmp_path, *words).measures is measures


def test_a_simulation_measures_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is measured in a simulation"):
        options_of(tmp_path, "--measured-profiles")
