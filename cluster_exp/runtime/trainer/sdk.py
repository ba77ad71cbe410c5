"""What a training loop calls."""

import os
import signal
import time
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any, TextIO

from cluster_exp.domain.measure import StageWindow
from cluster_exp.domain.resources import NUM_RESOURCES, RESOURCE_NAMES, Resource
from cluster_exp.runtime.trainer.connection import Connection, WorkerLostError
from cluster_exp.runtime.trainer.device import Device, TorchCuda
from cluster_exp.runtime.trainer.identity import STAGE_LOG_HEADER, Identity, greet, stage_row
from cluster_exp.runtime.trainer.meter import Meter

__all__ = ["Identity", "Trainer", "WorkerLostError"]

_PROGRESS_WALL_S = 0.1  # a trainer reports no more often than this


class Trainer:
    """A training loop's side of the turns.

    Usage::

        trainer = Trainer.from_env()
        while trainer.begin_iteration():
            with trainer.stage(Resource.STORAGE): ...
            with trainer.stage(Resource.CPU): ...
            with trainer.stage(Resource.GPU): ...
            with trainer.stage(Resource.NETWORK): ...
            trainer.end_iteration()
        trainer.close()

    Outside a cluster every call does nothing and `begin_iteration` is always true. Stages come in the order of
    `Resource`; one that is left out counts as empty, and nobody waits for it. A stage that needs several resources at
    once names them all: `trainer.stage(Resource.CPU, Resource.STORAGE)`.
    """

    def __init__(self, identity: Identity | None, device: Device | None = None) -> None:
        """Connects to the worker, unless `identity` is None. Raises WorkerLostError when it is not there.

        `device` is waited for before a gpu or network turn is given back; None = CUDA, where PyTorch uses it.
        """
        self.identity = identity
        self.iterations_done = identity.iterations_done if identity else 0
        self.turns = False  # whether this iteration's stages take turns
        self.batch = 1  # iterations that one emulated iteration of the group stands for
        self.stopped = False  # told to leave
        self._device: Device = device or TorchCuda()
        self._meter = Meter()
        self._reported_s = 0.0
        self._asks = True  # whether the next boundary waits for an answer
        self._begun = False
        self._stepped = 0  # iterations that the last step counted for
        self._finished = False  # said its last word
        self._term = False
        self._next_stage = 0
        self._stage_ns = 0  # when the stage under way began
        self._stages: dict[tuple[Resource, ...], _Stage] = {
            (resource,): _Stage(self, (resource,)) for resource in Resource
        }
        self._log: TextIO | None = None
        if identity is not None:
            self._connect(identity)

    @classmethod
    def from_env(cls) -> "Trainer":
        """A trainer as the launcher's environment variables say; SIGTERM then means: leave at the next boundary."""
        trainer = cls(Identity.from_env(os.environ))
        if trainer.identity is not None:
            signal.signal(signal.SIGTERM, trainer._on_term)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return trainer

    @property
    def remaining_iterations(self) -> int:
        """Iterations still to do; 0 outside a cluster."""
        return self.identity.iterations - self.iterations_done if self.identity else 0

    def begin_iteration(self) -> bool:
        """Whether to do another iteration: false when all are done or the job has to leave.

        Raises:
            WorkerLostError: the worker is gone.
        """
        if self.identity is None:
            return True
        if self.remaining_iterations <= 0:
            self._finish("done")
            return False
        if self._look_up() and not self._ask():
            self.stopped = True
            self._finish("left")
            return False
        if not self._begun:
            self._begun = True
            self._report("progress")
        self._next_stage = 0
        self._meter.begin(time.monotonic_ns(), self.turns, self._device.busy)
        return True

    def stage(self, *resources: Resource) -> AbstractContextManager[None]:
        """One stage of the iteration, as a `with` block; with company in the group it waits for its turn first.

        With several resources its turn locks all of them or none. Its time is counted as the first one's.

        Raises, when the block is entered:
            ValueError: the stage comes earlier in the order than one that this iteration had already.
            WorkerLostError: the worker is gone.
        """
        stage = self._stages.get(resources)
        if stage is None:
            stage = self._stages[resources] = _Stage(self, resources)
        return stage

    def enter_stage(self, *resources: Resource) -> None:
        """Begins a stage, for wrappers that have no block to put it around; else as `stage`."""
        if self.identity is None:
            return
        asked_ns = time.monotonic_ns()
        self._take(resources)
        self._stage_ns = time.monotonic_ns()
        if self.turns:
            self._meter.waited(self._stage_ns - asked_ns)

    def leave_stage(self, *resources: Resource, broken: bool = False, length_ns: int | None = None) -> None:
        """Ends it; where it broke off (`broken`), the device is not waited for.

        `length_ns`: how long its work was, where other processes did it and this one only waited for them.
        """
        if self.identity is None:
            return
        if self._meter.sampling and not broken and max(resources) >= Resource.GPU:
            self._device.synchronise()
        end_ns = time.monotonic_ns()
        if self.turns:
            self._arbiter.give_turn()
        self._meter.stage(resources[0], end_ns - self._stage_ns if length_ns is None else length_ns)
        if self._log is not None and self.identity is not None:
            row = stage_row(self.identity, self.iterations_done, resources, self._stage_ns, end_ns, self.turns)
            self._log.write(row)

    def end_iteration(self, count: int = 1) -> None:
        """Counts the iteration (or `count` of them, when one stands for several) as done."""
        self.iterations_done += count
        self._stepped = count
        if self.identity is None:
            return
        self._meter.end(time.monotonic_ns(), count)  # what was left out has no length
        self._next_stage = NUM_RESOURCES
        now_s = time.monotonic()
        if now_s - self._reported_s >= _PROGRESS_WALL_S:
            self._reported_s = now_s
            self._report("progress", self._window() if self._meter.due else None)

    @property
    def checkpoint_dir(self) -> str:
        """This job's folder for checkpoints, on a path that all nodes share; it need not be there. "" = none."""
        return self.identity.checkpoint_dir if self.identity else ""

    @property
    def checkpoint_due(self) -> bool:
        """Whether to write a checkpoint now, between two iterations, or before leaving with iterations to do.

        All processes of a job get the same answer after the same iteration. Outside a cluster it is false.
        """
        if self.identity is None:
            return False
        every = self.identity.checkpoint_every
        return self.stopped or bool(every and self._stepped and self.iterations_done % every < self._stepped)

    def resumed(self, iterations: int) -> None:
        """Says that the job goes on from a checkpoint of so many iterations, which may not be what was counted.

        Call it before the first iteration.
        """
        self.iterations_done = iterations
        self.checkpointed()

    def checkpointed(self) -> None:
        """Says that a checkpoint of the iterations done so far lies on disk: after a crash the job resumes there."""
        if self.identity is not None:
            self._worker.send("saved", done=self.iterations_done)

    def dismiss_helpers(self) -> None:
        """Says that nobody waits for what prefetches for this process: it need not wait for a turn any more."""
        if self.identity is not None:
            self._arbiter.send("dismiss")

    def close(self) -> None:
        """Says that all iterations are done, if they are and that is not known yet, and hangs up."""
        if self.identity is not None:
            if self.remaining_iterations <= 0 and not self._finished:
                self._finish("done")
            self._arbiter.close()
            self._worker.close()
        if self._log is not None:
            self._log.close()

    def _connect(self, identity: Identity) -> None:
        self._arbiter = Connection(identity.arbiter, identity.tls_dir)
        greet(self._arbiter, identity, turns=True)
        self._worker = self._arbiter
        if identity.worker != identity.arbiter:
            self._worker = Connection(identity.worker)
            greet(self._worker, identity, turns=False)
        if identity.stage_log:
            self._log = open(identity.stage_log, "a", 1, "utf-8")  # noqa: SIM115 - open for the whole run
            if self._log.tell() == 0:
                self._log.write(STAGE_LOG_HEADER)

    def _look_up(self) -> bool:
        """Whether to ask at this boundary: always with turns or among several processes, else when told to."""
        if self.identity is not None and self.identity.world > 1:
            return True
        return self._asks or self._term or self._arbiter.waiting()

    def _ask(self) -> bool:
        """Asks whether to go on, and how; false means leave."""
        if self._term and self.identity is not None and self.identity.world == 1:
            return False
        leave = {"leave": True} if self._term else {}
        self._arbiter.send("ask", done=self.iterations_done, **leave)
        while True:
            message = self._arbiter.receive()
            match message["t"]:
                case "go":
                    self.turns, self.batch = message["turns"], message["batch"]
                    self._asks = self.turns
                    return True
                case "stop":
                    return False

    def _take(self, resources: tuple[Resource, ...]) -> None:
        first = min(resources)
        if first < self._next_stage:
            raise ValueError(f"stage {first.name} comes after stage {RESOURCE_NAMES[self._next_stage - 1]}")
        if self.turns:  # those left out before it are passed by asking for it
            self._arbiter.take_turn(resources)
        self._next_stage = max(resources) + 1

    def _report(self, kind: str, window: StageWindow | None = None) -> None:
        measured = {} if window is None else {"window": window_fields(window)}
        self._worker.send(kind, done=self.iterations_done, **measured)

    def _window(self) -> StageWindow | None:
        return self._meter.take(self._device.peak_memory_mib())

    def _finish(self, kind: str) -> None:
        self._finished = True
        window = self._window()
        if window is not None:
            self._report("progress", window)
        self._report(kind)

    def _on_term(self, signum: int, frame: FrameType | None) -> None:
        self._term = True


class _Stage(AbstractContextManager[None]):
    """The block of a stage. One object serves all iterations: making one costs as much as all it does."""

    __slots__ = ("_resources", "_trainer")

    def __init__(self, trainer: Trainer, resources: tuple[Resource, ...]) -> None:
        self._trainer, self._resources = trainer, resources

    def __enter__(self) -> None:
        self._trainer.enter_stage(*self._resources)

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._trainer.leave_stage(*self._resources, broken=kind is not None)


def window_fields(window: StageWindow) -> dict[str, Any]:
    """A window as it goes over the wire (`protocol.turn_wire`)."""
    return {
        "n": window.iterations,
        "s": window.iterations_s,
        "sampled": window.sampled,
        "stages": window.stages_s,
        "turns": window.turns,
        "mib": window.gpu_memory_mib,
    }
