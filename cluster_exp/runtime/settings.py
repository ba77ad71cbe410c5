"""What a master is told, and what it tells while it runs."""

from dataclasses import dataclass

from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.protocol.messages import DEFAULT_LIMITS, CheckpointRules, Limits
from cluster_exp.protocol.turns import Discipline
from cluster_exp.runtime.security.access import Access


@dataclass(frozen=True, slots=True)
class MasterConfig:
    """What a master needs to know of a run."""

    cluster: ClusterSpec
    time_scale: float  # simulated seconds per second
    interval_s: float = 0.0  # simulated seconds between rounds; 0 = plan whenever something changed
    bind: str = "127.0.0.1:0"  # port 0 = the system chooses
    report_interval_s: float | None = None  # wall time between a worker's batches; None = by the number of workers
    lease_s: float = 10.0  # wall time after which a silent worker counts as lost
    turns: Discipline = Discipline.LOCKSTEP
    stage_logs: bool = False  # trainers write when each stage began and ended
    measures: bool = False  # decisions turn to the stage times that trainers measure
    comm: str = "none"  # how the ranks of a real job exchange gradients: none, horovod or torch
    checkpoints: CheckpointRules | None = None  # None = no job has a command
    retries: int = 0  # how often a job that fails is started again from its checkpoint
    retry_wait_s: float = 10.0  # wall time before its first retry; each further one waits twice as long
    limits: Limits = DEFAULT_LIMITS
    access: Access | None = None  # TLS and tokens; None = loopback only
    drain_s: float = 40.0  # wall time in which trainers have to leave when the run is told to end in peace


@dataclass(frozen=True, slots=True)
class LiveProgress:
    """How far a run is."""

    now_s: float  # simulated
    arrived: int
    running: int  # jobs that hold GPUs
    ended: int
    total: int  # jobs of the trace and those submitted so far
