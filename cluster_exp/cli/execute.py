"""Carries out a checked run: simulated, or live."""

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from cluster_exp.cli.options import RunSpec
from cluster_exp.cli.progress import progress_bar
from cluster_exp.cli.stopping import terminable
from cluster_exp.core.watch import NO_WATCH
from cluster_exp.domain.policy import Policy
from cluster_exp.protocol.turns import Discipline
from cluster_exp.results.run_directory import STATE_FILE, RunDirectory
from cluster_exp.runtime.local import LiveConfig, LiveResult, run_local, run_testbed
from cluster_exp.runtime.store import StateFile
from cluster_exp.sim.faults.run import FaultReport, FaultyRun
from cluster_exp.sim.faults.spec import FaultSpec
from cluster_exp.sim.simulate import make_cost, make_scheduler, simulate, speed_model_of
from cluster_exp.sim.stopwatch import Stopwatch

# How trainers have to take turns for a speed model to describe them.
TURNS = {"lockstep": Discipline.LOCKSTEP, "rates": Discipline.WORK_CONSERVING}


def simulated(spec: RunSpec, policy: Policy, directory: Path) -> None:
    """Simulates one policy into a directory."""
    speed = make_cost(policy, spec.rules, spec.start_cost()).speed
    described = spec.described(policy)
    with (
        terminable(),
        RunDirectory(directory, described, spec.cluster.num_gpu, speed, spec.detail) as out,
        progress_bar(f"{policy.name} simulated", len(spec.jobs)) as show,
    ):
        watch = Stopwatch() if spec.profile else None
        began_s = time.monotonic()
        try:
            result = simulate(
                policy, spec.jobs, spec.cluster, spec.rules, spec.start_cost(), out, show, watch or NO_WATCH
            )
            show(result.end_s, result.jobs_ended, result.events)
            out.note(plans=result.plans, rounds_skipped=result.rounds_skipped, events=result.events)
        finally:
            out.note(wall_s=time.monotonic() - began_s)
            if watch:
                out.note(profile_s=watch.stop())


def broken(spec: RunSpec, policy: Policy, directory: Path, faults: FaultSpec) -> FaultReport:
    """Simulates one policy on a cluster that breaks into a directory.

    Raises:
        InvariantError: something that must hold does not; the message names the seed.
    """
    cost = make_cost(policy, spec.rules, spec.start_cost())
    described = spec.described(policy)
    with (
        terminable(),
        RunDirectory(directory, described, spec.cluster.num_gpu, cost.speed, spec.detail) as out,
        progress_bar(f"{policy.name} breaking", len(spec.jobs)) as show,
    ):
        run = FaultyRun(
            faults,
            spec.cluster,
            spec.jobs,
            (),
            lambda: make_scheduler(policy, spec.rules, cost),
            cost.speed,
            retries=spec.programs.retries,
            retry_wait_s=spec.programs.retry_wait_s,
            interval_s=spec.rules.interval_s,
            start_cost=spec.start_cost(),
            on_safe=out.record,
            on_progress=show,
        )
        report = run.run()
        out.note(faults_injected=report.injected, jobs_lost=list(report.lost), trainers_broken=report.retried)
    return report


def live(spec: RunSpec, policy: Policy, directory: Path, state: StateFile | None = None) -> LiveResult:
    """Runs one policy live into a directory; what the workers and trainers write goes below `logs`.

    With the `state` of a run that was stopped it goes on there; else the directory gets a new state file.

    Raises:
        LiveError: it could not go on.
        OSError: the disk does not take what has to be kept.
    """
    resumes = state is not None
    cost = make_cost(policy, spec.rules, spec.start_cost())
    config = LiveConfig(
        spec.cluster,
        spec.jobs,
        spec.time_scale,
        directory / "logs",
        interval_s=spec.rules.interval_s,
        turns=TURNS[speed_model_of(policy, spec.rules)],
        stage_logs=spec.stage_logs,
        measures=spec.measures,
        comm=spec.programs.comm,
        checkpoint_dir=_checkpoint_dir(spec, directory, str((state.meta() if state else spec.origin)["run"])),
        checkpoint_every=spec.programs.checkpoint_every,
        retries=spec.programs.retries,
        retry_wait_s=spec.programs.retry_wait_s,
        limits=spec.programs.limits,
        bind=spec.bind,
        access=spec.access,
    )
    scheduler = make_scheduler(policy, spec.rules, cost)
    described = spec.described(policy)
    with (
        terminable(),
        RunDirectory(directory, described, spec.cluster.num_gpu, cost.speed, spec.detail, again=resumes) as out,
        closing(state or StateFile.create(directory / STATE_FILE, {**spec.origin, "policy": policy.name})) as kept,
        progress_bar(f"{policy.name} {spec.mode}", len(spec.jobs)) as show,
    ):
        config = replace(config, state=kept, resumes=resumes)
        if spec.mode == "local":
            result = run_local(config, scheduler, out, lambda now: show(now.now_s, now.ended, 0))
        else:
            result = run_testbed(config, scheduler, out, _announce, lambda now: show(now.now_s, now.ended, 0))
        out.note(start_cost_mean_s=result.start_cost_mean_s, starts=result.starts)
        if not result.complete:
            out.interrupted()
    return result


def _checkpoint_dir(spec: RunSpec, directory: Path, run: str) -> Path | None:
    """Where real jobs leave their checkpoints: those of each run and policy begin anew."""
    if spec.programs.workloads is None:
        return None
    chosen = spec.programs.checkpoint_dir
    return directory / "checkpoints" if chosen is None else chosen / f"{directory.name}-{run}"


def _announce(commands: Sequence[str]) -> None:
    if commands:
        sys.stderr.write("Start a worker on each node:\n" + "".join(f"  {command}\n" for command in commands))
    sys.stderr.flush()
