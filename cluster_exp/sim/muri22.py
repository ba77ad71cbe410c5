"""Cost model `muri22`: the accounting of the simulator published with Muri (SIGCOMM'22).

At every event every running job loses its start overhead anew, restarted or not, and a member of a group loses the
overheads of all members; predicted ends leave it out. Docs: docs/cost-models.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster_exp.domain.columns import FloatColumn
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.policy import Policy, Trait, traits_of
from cluster_exp.interleave.contention import MURI22_CHUNKS_CONTENTION, MURI22_CONTENTION
from cluster_exp.interleave.muri22 import Muri22Speed
from cluster_exp.sim.performance import RunningColumns, StartCost
from cluster_exp.sim.sharing import leftover_s

_SHARING_ARRIVAL_TOLERANCE_S = 1e-4


@dataclass
class Muri22Cost:
    """Overhead at every event; see the module."""

    start_cost: StartCost
    speed: SpeedModel = field(default_factory=Muri22Speed)
    name: str = "muri22"
    placement: str = "yarn"
    end_tolerance: float = 1e-9
    arrival_tolerance_s: float = 0.0

    def as_run(self, job: JobSpec) -> JobSpec:
        """The job itself."""
        return job

    def start_cost_s(self, job: JobSpec) -> float:
        """Seconds that the job loses at every event while it runs alone."""
        return self.start_cost(job)

    def event_cost_s(self, job: JobSpec) -> float:
        """Its start cost, restarted or not."""
        return self.start_cost(job)

    def shared_cost_s(self, jobs: Sequence[JobSpec]) -> float | None:
        """The sum of the members' start costs: each of them loses it at every event."""
        return sum(self.start_cost(job) for job in jobs)

    def beside_s(self, job: JobSpec, iteration_s: float, others: Sequence[JobSpec]) -> float:
        """What is left beside guaranteed jobs, by their stage times."""
        return leftover_s(self.speed, job, iteration_s, others)

    def kept_iterations(self, job: JobSpec, remaining: float) -> float:
        """All that were left: nothing is lost."""
        return remaining

    def advance(self, running: RunningColumns, dt_s: float) -> None:
        """Iterations of what the overhead leaves of the time."""
        running.remaining -= np.maximum(dt_s - running.overhead_s, 0.0) / running.iteration_s

    def ends_s(self, running: RunningColumns, now_s: float) -> FloatColumn:
        """Now, plus the remaining iterations; overheads are left out."""
        return now_s + running.remaining * running.iteration_s


def muri22_cost(policy: Policy, start_cost: StartCost) -> Muri22Cost:
    """The accounting as the published simulator applied it to a policy of these traits."""
    traits = traits_of(policy)
    contention = MURI22_CHUNKS_CONTENTION if Trait.UNWEIGHED in traits else MURI22_CONTENTION
    cost = Muri22Cost(start_cost, Muri22Speed(contention, floored=Trait.FLOORED in traits))
    if Trait.SHARES in traits:
        cost.arrival_tolerance_s = _SHARING_ARRIVAL_TOLERANCE_S
    if Trait.WAKES in traits:
        cost.end_tolerance = 0.0
    if Trait.COUNTS in traits:
        cost.placement = "count"
    return cost
