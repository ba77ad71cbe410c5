"""Cost model `helios`: the accounting of the simulator published with Helios (SC'21, HeliosArtifact, QSSF service).

A job is as long as the log says: its iterations and stage times do not count. The clock ticks in whole seconds and
a plan is made at every tick. The GPUs of the cluster are counted along the order of the remaining times, and whoever
is still counted in runs, if there is a place for it. A preemption makes the rest of a job longer. Under a policy that
watches how far the jobs are, the end of a job is noticed a tick late, so that every start takes a second more than
there was to do.

Plans are made at arrivals and ends only: at the ticks between them nobody starts and nobody stops. Whoever runs moves
forward in the order as its remaining time falls, and the chosen never need more GPUs in all than there are, so that
the chosen stay chosen. Whoever is not chosen finds at its place in the order no fewer GPUs taken than before. Whoever
is chosen and has no place takes no GPUs from the nodes, and finds none until someone leaves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster_exp.domain.columns import FloatColumn
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.sim.performance import RunningColumns
from cluster_exp.sim.sharing import leftover_s

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

    def event_cost_s(self, job: JobSpec) -> float:
        """Nothing."""
        return 0.0

    def shared_cost_s(self, jobs: Sequence[JobSpec]) -> float | None:
        """None: each member has its own."""
        return None

    def beside_s(self, job: JobSpec, iteration_s: float, others: Sequence[JobSpec]) -> float:
        """Beside guaranteed jobs a second of work takes longer."""
        return leftover_s(self.speed, job, iteration_s, others)

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
