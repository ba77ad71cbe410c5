"""What trainers say, as their turn server passes it on."""

from dataclasses import dataclass

from cluster_exp.domain.measure import StageWindow


@dataclass(frozen=True, slots=True)
class TrainerStarted:
    """A process begins its first iteration."""

    job_id: str
    generation: int
    rank: int
    monotonic_s: float
    iterations_done: int


@dataclass(frozen=True, slots=True)
class TrainerProgress:
    """A process says how far its job is."""

    job_id: str
    generation: int
    rank: int
    monotonic_s: float
    iterations_done: int  # of the whole job, earlier launches included
    window: StageWindow | None = None  # what it measured since it last said so


@dataclass(frozen=True, slots=True)
class TrainerStopped:
    """A process leaves at a boundary, as it was told."""

    job_id: str
    generation: int
    rank: int
    monotonic_s: float
    iterations_done: int


@dataclass(frozen=True, slots=True)
class TrainerDone:
    """A process did all iterations and leaves."""

    job_id: str
    generation: int
    rank: int
    monotonic_s: float
    iterations_done: int


@dataclass(frozen=True, slots=True)
class TrainerSaved:
    """A process wrote a checkpoint of its part of the job."""

    job_id: str
    generation: int
    rank: int
    monotonic_s: float
    iterations_done: int  # that it holds


@dataclass(frozen=True, slots=True)
class TrainerStuck:
    """A process kept a stage for longer than the limit; the others of its group no longer wait for it."""

    job_id: str
    generation: int
    rank: int
    monotonic_s: float
    resource: str
    held_s: float


TrainerEvent = TrainerStarted | TrainerProgress | TrainerStopped | TrainerDone | TrainerSaved
