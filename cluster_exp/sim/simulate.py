"""One simulation, put together from its named parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster_exp.core.placement import PLACEMENTS, any_order_fits
from cluster_exp.core.recorder import Recorder, Session
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.core.watch import NO_WATCH, Watch
from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.policy import Policy, Trait, traits_of
from cluster_exp.domain.snapshot import PROGRESS_COLUMNS
from cluster_exp.interleave.speed import make_speed
from cluster_exp.sim.engine import Engine, OnProgress, SimulationResult
from cluster_exp.sim.helios import HeliosCost
from cluster_exp.sim.muri22 import muri22_cost
from cluster_exp.sim.performance import CostModel, PhysicalCost, StartCost

COST_MODELS: dict[str, Callable[[Policy, SpeedModel, StartCost], CostModel]] = {
    "physical": lambda _, speed, start_cost: PhysicalCost(speed, start_cost),
    "muri22": lambda policy, _, start_cost: muri22_cost(policy, start_cost),
    "helios": lambda policy, speed, _: HeliosCost(speed, watches=bool(policy.reads & PROGRESS_COLUMNS)),
}


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """Names and numbers that choose a simulation's rules; None = the default of the policy or the cost model."""

    cost_model: str = "physical"
    speed_model: str | None = None  # None = rates for a policy that plans rates, else lockstep
    contention: str = "none"
    placement: str | None = None
    interval_s: float = 0.0  # seconds between plans; 0 = at every event


def speed_model_of(policy: Policy, options: SimulationOptions) -> str:
    """Name of the speed model: the one asked for, else rates for a policy that plans rates, else lockstep."""
    return options.speed_model or ("rates" if policy.plans_rates else "lockstep")


def make_cost(policy: Policy, options: SimulationOptions, start_cost: StartCost) -> CostModel:
    """The cost model for a policy. Raises KeyError for a name that is none."""
    speed_name = speed_model_of(policy, options)
    return COST_MODELS[options.cost_model](policy, make_speed(speed_name, options.contention), start_cost)


def make_scheduler(policy: Policy, options: SimulationOptions, cost: CostModel, watch: Watch = NO_WATCH) -> Scheduler:
    """The core as the simulator (and, with the physical cost model, the runtime) runs it."""
    return Scheduler(policy, cost.speed, PLACEMENTS[options.placement or cost.placement], watch, cost.event_cost_s)


def simulate(
    policy: Policy,
    jobs: Sequence[JobSpec],
    cluster: ClusterSpec,
    options: SimulationOptions,
    start_cost: StartCost,
    recorder: Recorder,
    on_progress: OnProgress | None = None,
    watch: Watch = NO_WATCH,
) -> SimulationResult:
    """Simulates `jobs`, sorted by submit time, on `cluster` until all ended.

    Args:
        policy: decides.
        jobs: the trace.
        cluster: the nodes, all up from time 0.
        options: the rules.
        start_cost: seconds that a start, a resume or a move of a job takes.
        recorder: gets every event with its actions.
        on_progress: called now and then with (simulated seconds, jobs ended, events handled).
        watch: told which part of the work begins and ends.

    Raises:
        KeyError: an option names nothing that exists.
        OSError: the recorder cannot write.
    """
    cost = make_cost(policy, options, start_cost)
    session = Session(make_scheduler(policy, options, cost, watch), recorder, watch)
    sizes, widths = {node.num_gpu for node in cluster.nodes}, {job.num_gpu for job in jobs}
    placement = PLACEMENTS[options.placement or cost.placement]
    fills = Trait.FILLS in traits_of(policy) and any_order_fits(placement, sizes, widths)
    engine = Engine(session, cost, options.interval_s, on_progress, fills)
    return engine.run(cluster, [cost.as_run(job) for job in jobs])
