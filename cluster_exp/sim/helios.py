"""Cost model `helios`: the accounting of the simulator published with Helios (SC'21, HeliosArtifact, QSSF service).

A job is as long as the log says: its iterations and stage times do not count. The clock ticks in whole seconds and
a plan is made at every tick. A preemption makes the rest of a job longer. Under a policy that watches how far the
jobs are, the end of a job is noticed a tick late, so that every start takes a second more than there was to do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.snapshot import FloatColumn
from cluster_exp.sim.performance import RunningColumns

TICK_S = 1.0
# (most GPUs, seconds): what a preemption adds to the remaining time of a job of so many GPUs
PREEMPTION_S: tuple[tuple[float, float], ...] = ((1, 7.0), (8, 30.0), (math.inf, 60.0))
_SECOND_OF_WORK = StageProfile(TICK_S, 0.0, 0.0, TICK_S, 0.0)


@dataclass
class HeliosCost:
    """Seconds of work instead of iterations; see the module."""

    speed: SpeedModel
    watches: bool  # whether the policy reads how far the jobs are
    name: str = "helios"
    placement: str = "quota"
    end_tolerance: float = 1e-9
    arrival_tolerance_s: float = math.inf

    def as_run(self, job: JobSpec) -> JobSpec:
        """The job with an iteration for each second of its stated duration."""
        return replace(job, iterations=math.ceil(job.duration_s), profile=_SECOND_OF_WORK)

    def start_cost_s(self, job: JobSpec) -> float:
        """The tick in which the end is noticed; it passes after the work, not before."""
        return TICK_S if self.watches else 0.0

    def shared_cost_s(self, jobs: Sequence[JobSpec]) -> float | None:
        """None: each member has its own."""
        return None

    def kept_iterations(self, job: JobSpec, remaining: float) -> float:
        """The seconds of work that were left, and those that the preemption costs."""
        return remaining + next(cost_s for most, cost_s in PREEMPTION_S if job.num_gpu <= most)

    def advance(self, running: RunningColumns, dt_s: float) -> None:
        """Work passes first, then the tick in which its end is noticed."""
        worked = np.minimum(running.remaining, dt_s)
        running.remaining -= worked
        running.overhead_s -= dt_s - worked

    def ends_s(self, running: RunningColumns, now_s: float) -> FloatColumn:
        """Now, plus the work, plus the last tick."""
        return now_s + running.remaining + running.overhead_s

    def next_plan_s(self, running: RunningColumns, waiting: Mapping[str, float], now_s: float) -> float:
        """The next tick at which a running job comes level with, or falls below, a waiting one's remaining work.

        At no tick in between can a plan differ from the last one: which jobs run depends on the order of the
        remaining work alone, waiting jobs keep theirs, and running jobs lose theirs at one speed.
        """
        if not self.watches or not waiting or not running.remaining.size:
            return math.inf
        levels = np.sort(np.fromiter(waiting.values(), np.float64, len(waiting)))
        below = np.searchsorted(levels, running.remaining, side="right") - 1
        gaps = (running.remaining - levels[below])[below >= 0]
        return now_s + max(TICK_S, math.ceil(gaps.min())) if gaps.size else math.inf
