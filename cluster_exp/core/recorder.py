"""Where a run's events and actions go, and the one way from an event to its actions."""

from collections.abc import Sequence
from typing import Protocol

from cluster_exp.domain.actions import Action
from cluster_exp.domain.events import Event


class Recorder(Protocol):
    """Keeps what happened, in order."""

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Keeps one event and what the core answered. Raises OSError when it cannot."""
        ...


class Core(Protocol):
    """What a driver needs of the scheduler."""

    def handle(self, event: Event) -> list[Action]:
        """Applies one event and returns what is to be done."""
        ...


class Session:
    """A scheduler whose every event and action is recorded."""

    def __init__(self, core: Core, recorder: Recorder) -> None:
        self.core = core
        self._recorder = recorder

    def handle(self, event: Event) -> list[Action]:
        """Applies one event, records it with its actions, and returns the actions."""
        actions = self.core.handle(event)
        self._recorder.record(event, actions)
        return actions
