"""What master, workers and users tell each other, as records of the domain's kind."""

from dataclasses import dataclass, field
from enum import Enum, IntEnum

from cluster_exp.domain.actions import TurnGroup
from cluster_exp.domain.allotment import NodeShare
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.domain.measure import StageWindow
from cluster_exp.protocol.turns import Discipline

PROTOCOL_VERSION = 5


class ReportKind(Enum):
    """What a trainer's report says; the value is the field's name on the wire."""

    STARTED = "started"
    PROGRESS = "progress"
    FINISHED = "finished"
    PREEMPTED = "preempted"
    FAILED = "failed"
    MEASURED = "measured"


FINAL_REPORTS = frozenset({ReportKind.FINISHED, ReportKind.PREEMPTED, ReportKind.FAILED})


@dataclass(frozen=True, slots=True)
class TrainerReport:
    """What happened to one launch of a job on one node."""

    job_id: str
    generation: int
    kind: ReportKind
    iterations_done: int  # of the whole job, earlier launches included
    reason: str = ""  # of a failure
    saved: int = 0  # iterations of the newest checkpoint that this node can resume from
    window: StageWindow | None = None  # of MEASURED, and only of it


@dataclass(frozen=True, slots=True)
class ReportBatch:
    """A worker's reports since its last batch; without any it is a heartbeat."""

    node: str
    instance: str
    sequence: int  # 1, 2, 3...
    reports: tuple[TrainerReport, ...]
    leaving: bool = False  # its trainers have left, and it leaves too


class TrainerState(IntEnum):
    """State of a trainer's process."""

    STARTING = 1
    RUNNING = 2
    STOPPING = 3


@dataclass(frozen=True, slots=True)
class TrainerStatus:
    """A trainer's process as its worker sees it."""

    job_id: str
    generation: int
    state: TrainerState
    pid: int
    iterations_done: int
    last_report_age_s: float | None = None  # wall time; None = it has not reported yet


@dataclass(frozen=True, slots=True)
class Registration:
    """A worker offers its node."""

    protocol_version: int
    node: str
    instance: str  # drawn when the worker starts
    worker_address: str  # host:port
    turns_address: str  # host:port
    num_gpu: int
    gpu_type: str = ""
    gpu_memory_mib: float | None = None
    trainers: tuple[TrainerStatus, ...] = ()
    turns_key: str = field(default="", repr=False)  # from which the tokens of its turn server derive


@dataclass(frozen=True, slots=True)
class CheckpointRules:
    """Where the jobs' checkpoints lie, and when they are written."""

    directory: str  # a path that all nodes share
    mark: str  # what a file in it holds, by which a worker knows that it is the same directory
    every: int = 0  # iterations between checkpoints on the way; 0 = only when told to leave


@dataclass(frozen=True, slots=True)
class Limits:
    """How long trainers may be silent, in seconds of wall time; 0 = for ever."""

    stage_s: float = 60.0  # a job that keeps a stage for longer is passed over
    hang_s: float = 600.0  # a trainer without an iteration for longer is ended: its job has failed


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Welcome:
    """The master's answer to a registration."""

    node_id: int
    time_scale: float  # simulated seconds per second
    report_interval_s: float  # wall time between batches of progress
    lease_s: float  # wall time without a batch after which the node counts as lost
    turns: Discipline = Discipline.LOCKSTEP
    stage_logs: bool = False  # trainers write when each stage began and ended
    comm: str = "none"  # how the ranks of a real job exchange gradients: none, horovod or torch
    checkpoints: CheckpointRules | None = None  # None = the run has no real jobs
    limits: Limits = DEFAULT_LIMITS
    protocol_version: int = PROTOCOL_VERSION  # of the master


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the ranks of one launch meet: the worker of rank 0 opens it, the master tells the others."""

    backend: str  # horovod or torch
    address: str  # of the node of rank 0
    port: int


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """Start a node's part of a job."""

    job: JobSpec
    generation: int
    shares: tuple[NodeShare, ...]  # of the whole job, by node id ascending
    iterations_done: int
    iterations_per_turn: int
    turns_address: str  # host:port of the turn server that arbitrates
    endpoint: Endpoint | None = None  # where the ranks of several nodes meet; None = this node opens it, if need be
    turns_token: str = field(default="", repr=False)  # that the turn server asks trainers of other nodes for

    @property
    def needs_meeting(self) -> bool:
        """Whether the ranks of this launch have to find each other."""
        return bool(self.job.command) and self.job.num_gpu > 1


@dataclass(frozen=True, slots=True)
class PreemptOrder:
    """Stop a job at the end of its iteration."""

    job_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class TurnsOrder:
    """A group's members and order from now on."""

    group: TurnGroup
    iterations_per_turn: int


Order = LaunchOrder | PreemptOrder | TurnsOrder


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as a user sees it."""

    job_id: str
    status: JobStatus
    num_gpu: int
    generation: int
    iterations: int
    remaining_iterations: float
    shares: tuple[NodeShare, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as a user sees it."""

    node: str
    node_id: int
    registered: bool
    num_gpu: int
    gpu_type: str
    worker_address: str
    last_report_age_s: float | None
    job_ids: tuple[str, ...]
