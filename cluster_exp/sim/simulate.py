"""One simulation, put together from its named parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster_exp.core.interference_watch import UNWATCHED, InterferenceWatch, Unwatched
from cluster_exp.core.placement import PLACEMENTS, any_order_fits
from cluster_exp.core.recorder import Recorder, Session
from cluster_exp.core.scheduler import Scheduler
from cluster_exp.core.watch import NO_WATCH, Watch
from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.memory import MemoryRules
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.policy import Policy, Trait, traits_of
from cluster_exp.domain.snapshot import PROGRESS_COLUMNS
from cluster_exp.interleave.contention import CONTENTIONS, MURI22_CONTENTION, NO_CONTENTION
from cluster_exp.interleave.fitting import FittingSpeed
from cluster_exp.interleave.pairwise import Drawn, PairwiseSpeed
from cluster_exp.interleave.speed import make_speed
from cluster_exp.sim.engine import Engine, OnProgress, SimulationResult
from cluster_exp.sim.helios import HeliosCost
from cluster_exp.sim.muri22 import muri22_cost
from cluster_exp.sim.performance import CostModel, PhysicalCost, StartCost

LEARNED, DRAWN = "learned", "drawn"
PRIOR = MURI22_CONTENTION  # what is believed before anything was observed
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
    contention: str = "none"  # what the scheduler believes: a name of CONTENTIONS, `learned`, or `drawn:SEED`
    memory: MemoryRules | None = None  # which jobs fit on the same GPUs; None = all do
    true_contention: str | None = None  # what the simulated cluster does; None = what is believed, or its prior
    placement: str | None = None
    interval_s: float = 0.0  # seconds between plans; 0 = at every event


def speed_model_of(policy: Policy, options: SimulationOptions) -> str:
    """Name of the speed model: the one asked for, else rates for a policy that plans rates, else lockstep."""
    return options.speed_model or ("rates" if policy.plans_rates else "lockstep")


def make_cost(policy: Policy, options: SimulationOptions, start_cost: StartCost) -> CostModel:
    """The cost model for a policy. Raises KeyError for a name that is none."""
    name = speed_model_of(policy, options)
    truth = options.true_contention or (PRIOR.name if options.contention == LEARNED else options.contention)
    return COST_MODELS[options.cost_model](policy, believed_speed(name, truth), start_cost)


def check_contention(contention: str) -> None:
    """Raises ValueError, with what is allowed, for a contention that there is not."""
    kind, _, seed = contention.partition(":")
    known = contention in CONTENTIONS or contention == LEARNED
    if not known and not (kind == DRAWN and seed.isascii() and seed.isdigit()):
        raise ValueError(f"{', '.join(CONTENTIONS)}, {LEARNED}, {DRAWN}:SEED")


def believed_speed(name: str, contention: str) -> SpeedModel:
    """A speed model with a contention that has a name, or is drawn from a seed: `drawn:SEED`.

    Raises:
        KeyError: a name that is none.
        ValueError: a seed that is no number.
    """
    kind, _, seed = contention.partition(":")
    if kind == DRAWN:
        return PairwiseSpeed(make_speed(name, NO_CONTENTION.name), Drawn(int(seed)), name == "lockstep")
    return make_speed(name, contention)


def make_scheduler(policy: Policy, options: SimulationOptions, cost: CostModel, watch: Watch = NO_WATCH) -> Scheduler:
    """The core as the simulator (and, with the physical cost model, the runtime) runs it."""
    speed: SpeedModel = cost.speed
    learns: Unwatched | InterferenceWatch = UNWATCHED
    name = speed_model_of(policy, options)
    if options.contention == LEARNED:
        turns = make_speed(name, NO_CONTENTION.name)
        fitting = turns if options.memory is None else FittingSpeed(turns, options.memory)
        learns = InterferenceWatch(fitting, PRIOR, name == "lockstep")
        speed = learns.speed
    elif options.true_contention is not None:
        speed = believed_speed(name, options.contention)
    if options.memory is not None:
        speed = FittingSpeed(speed, options.memory)
    placement = PLACEMENTS[options.placement or cost.placement]
    return Scheduler(policy, speed, placement, watch, cost.event_cost_s, learns, options.memory)


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
