"""Everything that the core can ask its driver (simulator or runtime) to do."""

from dataclasses import dataclass

from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.job import JobSpec, JobStatus
from cluster_exp.domain.profile import ProfileKey, StageProfile


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One job's place in a group."""

    job_id: str
    offset: int  # in slot s the member uses resource (s + offset) mod 4
    generation: int


@dataclass(frozen=True, slots=True)
class TurnGroup:
    """Jobs that take turns on the same GPUs; `version` grows with each change of one group id."""

    group_id: int
    version: int
    members: tuple[GroupMember, ...]  # in turn order
    lead_node: int  # its worker arbitrates


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a job, or resume it where it was."""

    time_s: float
    job: JobSpec
    generation: int  # counts the job's launches from 1
    allotment: Allotment
    remaining_iterations: float
    group_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop a job at the end of its iteration; answered by `JobPreempted` (or by `JobFinished`)."""

    time_s: float
    job_id: str
    generation: int
    reason: str


@dataclass(frozen=True, slots=True)
class SetTurns:
    """A group's members or their order changed: take turns like this from now on.

    It comes before the launches of new members. A group whose last member left is not announced.
    """

    time_s: float
    group: TurnGroup
    reason: str


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is known of a job that ended. Times in seconds."""

    job_id: str
    num_gpu: int
    submit_s: float
    start_s: float | None  # first launch; None = never
    end_s: float
    executed_s: float  # time in which it held GPUs
    duration_s: float  # as stated by the user or the log
    preempted: int  # times preempted
    resumed: int  # launches after the first
    status: JobStatus
    reason: str


@dataclass(frozen=True, slots=True)
class RecordEnd:
    """A job ended; keep its record. Its slot is free again."""

    time_s: float
    record: JobRecord


@dataclass(frozen=True, slots=True)
class Wake:
    """The policy wants to plan again at `at_s`; a later Wake replaces an earlier one."""

    time_s: float
    at_s: float


@dataclass(frozen=True, slots=True)
class UseProfile:
    """From now on decisions about jobs of this kind rest on what was measured. Nobody has to do anything."""

    time_s: float
    key: ProfileKey
    former: StageProfile  # what decisions rested on before
    profile: StageProfile
    windows: int  # measurements of which it is made
    job_ids: tuple[str, ...]  # the live jobs that it changes, by arrival
    peak_gpu_mib: float | None = None  # most that was measured so far
    guessed: bool = False  # whether `former` was a guess


Action = Launch | Preempt | SetTurns | RecordEnd | Wake | UseProfile
