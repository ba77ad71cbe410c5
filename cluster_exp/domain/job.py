"""Jobs: what a user asks for, and the states that a job passes through."""

import math
from dataclasses import dataclass
from enum import IntEnum

from cluster_exp.domain.profile import ProfileKey, StageProfile


class JobStatus(IntEnum):
    """State of a job. The last three are final."""

    PENDING = 0
    LAUNCHING = 1  # told to start, not yet reported as running
    RUNNING = 2
    PREEMPTING = 3  # told to stop, still holds its GPUs
    FINISHED = 4
    FAILED = 5
    CANCELLED = 6


HOLDS_GPUS = frozenset({JobStatus.LAUNCHING, JobStatus.RUNNING, JobStatus.PREEMPTING})
FINAL = frozenset({JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED})

_ENDS = FINAL
TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.PENDING: frozenset({JobStatus.LAUNCHING, JobStatus.CANCELLED, JobStatus.FAILED}),
    JobStatus.LAUNCHING: frozenset({JobStatus.RUNNING, JobStatus.PREEMPTING, JobStatus.PENDING}) | _ENDS,
    JobStatus.RUNNING: frozenset({JobStatus.PREEMPTING, JobStatus.PENDING}) | _ENDS,
    JobStatus.PREEMPTING: frozenset({JobStatus.PENDING}) | _ENDS,
    JobStatus.FINISHED: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELLED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a user asks for. Times in seconds from the run's start."""

    job_id: str  # unique in a run
    num_gpu: int  # GPUs, at least 1
    submit_s: float  # when it is submitted
    iterations: int  # iterations to do, at least 0
    duration_s: float  # the user's (or the log's) own statement of its length
    model: str
    batch_size: int  # samples per GPU
    profile: StageProfile
    user: str = ""
    queue: str = "default"
    priority: int = 0  # 0 = guaranteed, 1 = opportunistic (AntMan)
    gpu_type: str = ""  # "" = any
    gpu_fraction: float = 1.0  # share of each GPU, in (0, 1]
    gpu_memory_mib: float = math.nan  # peak per GPU; NaN = not stated
    num_cpu: float = math.nan  # cores of the whole job; NaN = not stated
    memory_gib: float = math.nan  # host memory of the whole job; NaN = not stated
    command: tuple[str, ...] = ()  # argument list that starts one of its ranks, live; empty = an emulated trainer
    profiled: bool = True  # False = `profile` is a guess: the job runs alone until it is measured

    @property
    def profile_key(self) -> ProfileKey:
        """The key under which the job's profile is stored."""
        return ProfileKey(self.model, self.batch_size, self.num_gpu, self.gpu_type)
