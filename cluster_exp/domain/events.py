"""Everything that can happen. Events enter the core through `Scheduler.handle`, one at a time.

Events of one instant are handled in the order of `EVENT_ORDER`; within a kind, in the order in which they were
reported.
"""

from dataclasses import dataclass

from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import StageProfile


@dataclass(frozen=True, slots=True)
class Progressed:
    """Several jobs report how far they are. The tuples are parallel: one batch is one report."""

    time_s: float
    job_ids: tuple[str, ...]
    remaining_iterations: tuple[float, ...]  # may be fractional in a simulation


@dataclass(frozen=True, slots=True)
class Measured:
    """A job's trainer timed its iterations and stages. Times in seconds of the run, not of a compressed clock."""

    time_s: float
    job_id: str
    generation: int  # of the launch that was measured
    iterations: int  # over which `profile` is the mean
    profile: StageProfile  # one iteration without waiting for turns
    turns: bool  # whether its stages took turns with those of other jobs
    peak_gpu_mib: float | None = None  # peak of a process so far; None = it uses no GPU


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A launched job runs."""

    time_s: float
    job_id: str
    generation: int  # of the launch that this answers


@dataclass(frozen=True, slots=True)
class JobFinished:
    """A job did all its iterations and left."""

    time_s: float
    job_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class JobPreempted:
    """A job left its GPUs and waits again: at an iteration's end, as it was told, or because it has to be retried."""

    time_s: float
    job_id: str
    generation: int
    remaining_iterations: float  # from its checkpoint on
    reason: str = ""  # of a retry: how it ended
    wait_s: float = 0.0  # of a retry: how long it is not to be planned


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A job ended by itself, short of its iterations."""

    time_s: float
    job_id: str
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A user wants a job gone."""

    time_s: float
    job_id: str


@dataclass(frozen=True, slots=True)
class JobArrived:
    """A job is submitted."""

    time_s: float
    job: JobSpec


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A node's worker registered: its GPUs can be used."""

    time_s: float
    node: int  # node id
    spec: NodeSpec


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A node's worker is gone, and with it whatever ran there."""

    time_s: float
    node: int
    reason: str


@dataclass(frozen=True, slots=True)
class PlanDue:
    """Plan now: the driver posts it after a batch of events, or when a round begins."""

    time_s: float


Event = (
    Progressed
    | Measured
    | JobStarted
    | JobFinished
    | JobPreempted
    | JobFailed
    | CancelRequested
    | JobArrived
    | WorkerJoined
    | WorkerLost
    | PlanDue
)

EVENT_ORDER: tuple[type, ...] = (
    WorkerJoined,
    Progressed,
    Measured,
    JobStarted,
    JobFinished,
    JobFailed,
    JobPreempted,
    CancelRequested,
    WorkerLost,
    JobArrived,
    PlanDue,
)
