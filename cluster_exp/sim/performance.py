"""How running jobs advance in a simulation: the columns of the running jobs, and the rules of a cost model."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cluster_exp.domain.columns import FloatColumn
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.models import SpeedModel
from cluster_exp.sim.sharing import leftover_s

StartCost = Callable[[JobSpec], float]  # seconds that a start or a move of the job takes


@dataclass(slots=True)
class RunningColumns:
    """The running jobs, one element each in every column."""

    remaining: FloatColumn  # iterations
    iteration_s: FloatColumn  # seconds per iteration now
    overhead_s: FloatColumn  # start cost: what that means, the cost model says


class CostModel(Protocol):
    """The rules by which time becomes progress. No policy knows which is in force."""

    name: str
    speed: SpeedModel
    placement: str  # name of the placement that it assumes unless told otherwise
    end_tolerance: float  # predicted ends this close, relatively, are one event
    arrival_tolerance_s: float  # so is an arrival this close to the next end; infinity = as close as two ends

    def as_run(self, job: JobSpec) -> JobSpec:
        """The job as it is simulated: a cost model may count its work in another way."""
        ...

    def start_cost_s(self, job: JobSpec) -> float:
        """Seconds that a start, a resume or a move of the job costs."""
        ...

    def event_cost_s(self, job: JobSpec) -> float:
        """Seconds that a running job loses whenever anything happens."""
        ...

    def shared_cost_s(self, jobs: Sequence[JobSpec]) -> float | None:
        """`overhead_s` of each member of a group that was formed or changed; None = it stays what it was."""
        ...

    def beside_s(self, job: JobSpec, iteration_s: float, others: Sequence[JobSpec]) -> float:
        """Seconds per iteration of a job that takes `iteration_s` without the jobs of other groups on its GPUs."""
        ...

    def kept_iterations(self, job: JobSpec, remaining: float) -> float:
        """Iterations that a preempted job has to do, of which `remaining` were left when it was told."""
        ...

    def advance(self, running: RunningColumns, dt_s: float) -> None:
        """Lets `dt_s` seconds pass: changes `remaining` and `overhead_s` in place."""
        ...

    def ends_s(self, running: RunningColumns, now_s: float) -> FloatColumn:
        """When each running job would end if nothing changed."""
        ...


@dataclass
class PhysicalCost:
    """A start cost is paid once at a start or a move; after that a job advances at its group's speed."""

    speed: SpeedModel
    start_cost: StartCost
    name: str = "physical"
    placement: str = "consolidated"
    end_tolerance: float = 1e-9
    arrival_tolerance_s: float = math.inf

    def as_run(self, job: JobSpec) -> JobSpec:
        """The job itself."""
        return job

    def start_cost_s(self, job: JobSpec) -> float:
        """Seconds that a start, a resume or a move of the job costs."""
        return self.start_cost(job)

    def event_cost_s(self, job: JobSpec) -> float:
        """Nothing: only starts and moves cost."""
        return 0.0

    def shared_cost_s(self, jobs: Sequence[JobSpec]) -> float | None:
        """None: each member paid, or still pays, for its own start."""
        return None

    def beside_s(self, job: JobSpec, iteration_s: float, others: Sequence[JobSpec]) -> float:
        """What is left beside guaranteed jobs, by their stage times."""
        return leftover_s(self.speed, job, iteration_s, others)

    def kept_iterations(self, job: JobSpec, remaining: float) -> float:
        """All that were left: nothing is lost."""
        return remaining

    def advance(self, running: RunningColumns, dt_s: float) -> None:
        """The rest of the start cost passes first, then iterations."""
        paid = np.minimum(running.overhead_s, dt_s)
        running.overhead_s -= paid
        running.remaining -= (dt_s - paid) / running.iteration_s
        np.maximum(running.remaining, 0.0, out=running.remaining)

    def ends_s(self, running: RunningColumns, now_s: float) -> FloatColumn:
        """Now, plus the unpaid start cost, plus the remaining iterations."""
        return now_s + running.overhead_s + running.remaining * running.iteration_s
