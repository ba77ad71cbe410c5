"""Tasks several at a time, each in a process of its own that tells how far it is."""

import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType, TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from cluster_exp.domain.errors import InputError, InvariantError

Task = TypeVar("Task")
Result = TypeVar("Result")
Tell = Callable[[int], None]  # units (jobs that ended) that a task has done so far
OnProgress = Callable[[int], object]  # units done since the last call, over all tasks

_TELL_EVERY_S = 0.2  # between two reports of a process
_LEAVE_WITHIN_S = 5.0  # for a process that was told to stop
_EXPECTED = (InputError, InvariantError, OSError)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Result]):
    """What came of a task."""

    result: Result | None  # None = it failed
    wall_s: float  # from the start of its process
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Done:
    result: Any


@dataclass(frozen=True, slots=True)
class _Failed:
    error: str


@dataclass(slots=True)
class _Active:
    index: int
    process: BaseProcess
    inbox: Connection
    started_s: float
    told: int = 0


class Crew(Generic[Task, Result]):
    """Processes that carry out tasks; use it as a context manager and iterate over it once.

    Iterating gives (index of the task, outcome) as the tasks end. A task that raises has failed, the others go on.
    When the block is left, also by KeyboardInterrupt, every process is gone; one that is told to stop sees a
    KeyboardInterrupt first. When this process is killed, they end by themselves.

    Args:
        work: what a process does with a task; a function of a module. Task and result are pickled.
        tasks: what there is to do.
        sizes: one a task; the largest start first, equal ones in their order.
        workers: processes at once, at least 1.
        on_progress: called now and then with the units done since the last call.
    """

    def __init__(
        self,
        work: Callable[[Task, Tell], Result],
        tasks: Sequence[Task],
        sizes: Sequence[int],
        workers: int,
        on_progress: OnProgress,
    ) -> None:
        self._work = work
        self._tasks = tasks
        self._todo = sorted(range(len(tasks)), key=lambda i: (sizes[i], -i))
        self._workers = workers
        self._on_progress = on_progress
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload([__name__, work.__module__])
        _start_server()
        self._active: list[_Active] = []

    @property
    def active(self) -> int:
        """Tasks at work now."""
        return len(self._active)

    def __enter__(self) -> "Crew[Task, Result]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for active in self._active:
            active.process.terminate()
        deadline_s = time.monotonic() + _LEAVE_WITHIN_S
        for active in self._active:
            active.process.join(max(0.0, deadline_s - time.monotonic()))
            if active.process.is_alive():
                active.process.kill()
                active.process.join()
            active.inbox.close()
        self._active.clear()

    def __iter__(self) -> Iterator[tuple[int, Outcome[Result]]]:
        while self._todo or self._active:
            while self._todo and len(self._active) < self._workers:
                self._start(self._todo.pop())
            yield from self._listen()

    def _start(self, index: int) -> None:
        inbox, outbox = self._context.Pipe(duplex=False)
        arguments = (self._work, self._tasks[index], outbox)
        process = self._context.Process(target=_carry_out, args=arguments, daemon=True)
        process.start()
        outbox.close()
        self._active.append(_Active(index, process, inbox, time.monotonic()))
        self._on_progress(0)

    def _listen(self) -> Iterator[tuple[int, Outcome[Result]]]:
        """Waits until a process says something or is gone."""
        ready = wait([active.inbox for active in self._active])
        for active in [active for active in self._active if active.inbox in ready]:
            try:
                message = active.inbox.recv()
            except EOFError:
                active.process.join()
                message = _Failed(_death(active.process.exitcode))
            if isinstance(message, int):
                self._on_progress(message - active.told)
                active.told = message
            else:
                yield active.index, self._finish(active, message)

    def _finish(self, active: _Active, message: _Done | _Failed) -> Outcome[Result]:
        wall_s = time.monotonic() - active.started_s
        active.process.join()
        active.inbox.close()
        self._active.remove(active)
        if isinstance(message, _Done):
            return Outcome(message.result, wall_s)
        return Outcome(None, wall_s, message.error)


def _start_server() -> None:
    """Starts the fork server so that Ctrl-C, which reaches the whole process group, never reaches its processes."""
    resource_tracker.ensure_running()  # it would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _death(code: int | None) -> str:
    if code is None or code >= 0:
        return f"its process died with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = " (the memory may have run out)" if -code == signal.SIGKILL else ""
    return f"its process was ended by {name}{hint}"


def _carry_out(work: Callable[[Any, Tell], Any], task: Any, outbox: Connection) -> None:
    """A process: does a task and sends units done (int), at last its result or the words of an error."""
    threading.Thread(target=_end_with_the_parent, args=(outbox,), daemon=True).start()
    told_s, done = 0.0, 0

    def tell(units: int) -> None:
        nonlocal told_s, done
        done = units
        now_s = time.monotonic()
        if now_s - told_s >= _TELL_EVERY_S:
            told_s = now_s
            outbox.send(units)

    try:
        signal.signal(signal.SIGTERM, _stop)
        message = _result(work, task, tell)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # we leave anyway
        outbox.send(done)
        outbox.send(message)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(1)


def _result(work: Callable[[Any, Tell], Any], task: Any, tell: Tell) -> _Done | _Failed:
    """What came of a task. Raises BrokenPipeError when nobody wants to know."""
    try:
        return _Done(work(task, tell))
    except BrokenPipeError:
        raise
    except _EXPECTED as error:
        return _Failed(f"{type(error).__name__}: {error}")
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return _Failed(f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})")


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # what is being put in order is not to be disturbed by a second one
    raise KeyboardInterrupt


def _end_with_the_parent(outbox: Connection) -> None:
    """Ends this process at once when nobody is left to read from its pipe: the parent was killed."""
    poll = select.poll()
    poll.register(outbox.fileno(), 0)  # errors are always reported, and nothing else is asked for
    poll.poll()
    os._exit(1)
