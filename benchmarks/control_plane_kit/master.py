"""The master's process: the real master with a real recorder, and meters around core and recorder."""

import asyncio
import cProfile
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.core.recorder import Core, Recorder
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import Action
from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.events import Event, PlanDue, Progressed
from cluster_exp.interleave.speed import make_speed
from cluster_exp.policies.registry import make_policy
from cluster_exp.results.journal import Detail
from cluster_exp.results.run_directory import RunDirectory
from cluster_exp.runtime.master import Master
from cluster_exp.runtime.settings import MasterConfig
from control_plane_kit.process import leave_with_parent, peak_memory_mib, raise_open_files

_SAMPLE_S = 0.25
_SPARE_FILES = 256


@dataclass(frozen=True, slots=True)
class MasterPlan:
    """What the master is to run."""

    cluster: ClusterSpec
    jobs: int  # that will be submitted
    policy: str
    out: Path  # a new run directory
    profile: Path | None  # where a cProfile of the loop's thread is written
    parent_pid: int


@dataclass(slots=True)
class Sample:
    """How far the master is; sums since it began."""

    at_s: float = 0.0  # monotonic clock
    running: bool = False  # all workers are there
    cpu_s: float = 0.0
    plan_s: float = 0.0  # CPU time in the core for PlanDue
    core_s: float = 0.0  # in the core for everything else
    record_s: float = 0.0  # in the recorder
    reports: int = 0  # of progress that the core was given
    events: int = 0
    plans: int = 0
    peak_mib: float = 0.0
    slowest_plan_s: float = 0.0  # wall time


@dataclass(frozen=True, slots=True)
class Address:
    """Where the master listens."""

    address: str


class MeteredCore:
    """A core whose CPU time is added up (`core.recorder.Core`)."""

    def __init__(self, core: Core, sums: Sample) -> None:
        self._core = core
        self._sums = sums

    def handle(self, event: Event) -> list[Action]:
        """Applies one event."""
        sums = self._sums
        cpu_s, wall_s = time.thread_time(), time.monotonic()
        actions = self._core.handle(event)
        spent_s = time.thread_time() - cpu_s
        sums.events += 1
        if isinstance(event, PlanDue):
            sums.plans += 1
            sums.plan_s += spent_s
            sums.slowest_plan_s = max(sums.slowest_plan_s, time.monotonic() - wall_s)
        else:
            sums.core_s += spent_s
            if isinstance(event, Progressed):
                sums.reports += len(event.job_ids)
        return actions


class MeteredRecorder:
    """A recorder whose CPU time is added up (`core.recorder.Recorder`)."""

    def __init__(self, recorder: Recorder, sums: Sample) -> None:
        self._recorder = recorder
        self._sums = sums

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Keeps one event with its actions."""
        cpu_s = time.thread_time()
        self._recorder.record(event, actions)
        self._sums.record_s += time.thread_time() - cpu_s


def files_needed(workers: int) -> int:
    """Open files of a master with so many workers: a connection each way."""
    return 3 * workers + _SPARE_FILES


def master_main(plan: MasterPlan, pipe: Connection) -> None:
    """Runs the master until all jobs ended or SIGTERM came; tells the parent its address, then samples."""
    leave_with_parent(plan.parent_pid)
    raise_open_files(files_needed(len(plan.cluster.nodes)))
    profiler = cProfile.Profile() if plan.profile else None
    if profiler is not None:
        profiler.enable()
    asyncio.run(_serve(plan, pipe))
    if profiler is not None and plan.profile is not None:
        profiler.disable()
        profiler.dump_stats(plan.profile)


async def _serve(plan: MasterPlan, pipe: Connection) -> None:
    policy = make_policy(plan.policy)
    speed = make_speed("rates" if policy.plans_rates else "lockstep", "none")
    sums = Sample()
    options = {"policy": plan.policy, "mode": "benchmark", "workers": len(plan.cluster.nodes)}
    with RunDirectory(plan.out, options, plan.cluster.num_gpu, speed, Detail.FULL) as out:
        core = MeteredCore(Scheduler(policy, speed, PLACEMENTS["consolidated"]), sums)
        master = Master(MasterConfig(plan.cluster, 1.0), core, MeteredRecorder(out, sums))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, master.stop, "told to stop")
        pipe.send(Address(await master.start()))
        sampling = asyncio.create_task(_sample(master, sums, pipe))
        try:
            if not await master.run((), extra=plan.jobs):
                out.interrupted()
        finally:
            sampling.cancel()
            _send(master, sums, pipe)
            await master.close("the benchmark is over")


async def _sample(master: Master, sums: Sample, pipe: Connection) -> None:
    while True:
        _send(master, sums, pipe)
        await asyncio.sleep(_SAMPLE_S)


def _send(master: Master, sums: Sample, pipe: Connection) -> None:
    times = os.times()
    sums.at_s, sums.running, sums.cpu_s = time.monotonic(), master.running, times.user + times.system
    sums.peak_mib = peak_memory_mib()
    pipe.send(sums)
