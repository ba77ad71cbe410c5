"""Where a run's events and actions go, and the one way from an event to its actions."""

from collections.abc import Sequence
from typing import Protocol

from cluster_exp.core.watch import CORE, NO_WATCH, RECORD, Watch
from cluster_exp.domain.actions import Action
from cluster_exp.domain.events import Event


class Recorder(Protocol):
    """Keeps what happened, in order."""

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Keeps one event and what the core answered. Raises OSError when it cannot."""
        ...


class NoRecorder:
    """Keeps nothing."""

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Drops it."""


class Core(Protocol):
    """What a driver needs of the scheduler."""

    def handle(self, event: Event) -> list[Action]:
        """Applies one event and returns what is to be done."""
        ...


class Session:
    """A scheduler whose every event and action is recorded."""

    def __init__(self, core: Core, recorder: Recorder, watch: Watch = NO_WATCH) -> None:
        self.core = core
        self._recorder = recorder
        self._watch = watch

    def handle(self, event: Event) -> list[Action]:
        """Applies one event, records it with its actions, and returns the actions."""
        watch = self._watch
        watch.enter(CORE)
        actions = self.core.handle(event)
        watch.leave()
        watch.enter(RECORD)
        self._recorder.record(event, actions)
        watch.leave()
        return actions
