"""What a master writes down before it acknowledges: the core's events, and notes of what else it was told.

The rows of a log, in their order, are all that a master needs to be again what it was: the events go through the core
once more, and the notes through the state machines beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, get_args

from cluster_exp.domain.actions import Action
from cluster_exp.domain.events import Event
from cluster_exp.protocol.messages import Registration, TrainerReport


@dataclass(frozen=True, slots=True)
class WorkerKnown:
    """A worker registered."""

    registration: Registration


@dataclass(frozen=True, slots=True)
class ReportsTaken:
    """What of a worker's batch is to outlive the master; the core's events that follow from it come after it."""

    node: int
    sequence: int  # of the batch; 0 = these come from no batch
    reports: tuple[TrainerReport, ...]
    at_s: float  # simulated


@dataclass(frozen=True, slots=True)
class SubmissionTaken:
    """Jobs were submitted; their arrivals come after it."""

    request_id: str
    job_ids: tuple[str, ...]
    at_s: float  # simulated


Note = WorkerKnown | ReportsTaken | SubmissionTaken
NOTES: dict[str, type[Note]] = {kind.__name__: kind for kind in get_args(Note)}


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of the core, with the check sum of the actions that it caused."""

    event: Event
    actions_sum: int


Row = Happened | Note


class Log(Protocol):
    """Keeps rows in order. What was added is safe from a crash when `commit` has returned."""

    def note(self, note: Note) -> None:
        """Adds a note. Raises OSError when it cannot be kept."""
        ...

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Adds an event (`core.recorder.Recorder`). Raises OSError when it cannot be kept."""
        ...

    def commit(self) -> None:
        """Makes everything that was added safe. Raises OSError when it cannot."""
        ...


class NoLog:
    """Keeps nothing: what is lost with the master is lost."""

    def note(self, note: Note) -> None:
        """Drops it."""

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Drops it."""

    def commit(self) -> None:
        """Nothing is to be done."""
