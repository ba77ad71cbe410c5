"""The trainers of one node: their processes, what they say, and how they are stopped."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from cluster_exp.protocol.launches import Launches
from cluster_exp.protocol.messages import (
    LaunchOrder,
    PreemptOrder,
    ReportKind,
    TrainerReport,
    TrainerState,
    TrainerStatus,
)
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.runtime.commands import Command
from cluster_exp.runtime.launchers import JobLauncher, LaunchKey, TrainerProcess

_LAST_WORDS_S = 1.0  # wall time that a trainer's last message may take longer than its exit
_TIMES_LONGEST = 20  # a trainer hangs only after so many times its longest silence
_TERM_S = 2.0  # wall time between SIGTERM and SIGKILL
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Trainer:
    order: LaunchOrder
    num_ranks: int  # on this node
    process: TrainerProcess
    iterations_done: int
    saved_of: dict[int, int] = field(default_factory=dict)  # iterations of the newest checkpoint, by rank
    state: TrainerState = TrainerState.STARTING
    heard_s: float | None = None  # wall time of its last word
    last_word: ReportKind | None = None  # FINISHED or PREEMPTED, once it said so
    spoke: asyncio.Event = field(default_factory=asyncio.Event)  # set with `last_word`
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    forced: bool = False  # ended by force because it did not stop in time
    hung: str = ""  # why it was ended, if it hung
    longest_s: float = 0.0  # longest wall time between two of its words
    superseded: bool = False  # nobody waits for its reports any more

    @property
    def key(self) -> LaunchKey:
        return self.order.job.job_id, self.order.generation

    @property
    def saved(self) -> int:
        """Iterations from which it can go on; an emulated trainer has nothing to lose."""
        if not self.order.job.command:
            return self.iterations_done
        if len(self.saved_of) < self.num_ranks:
            return self.order.iterations_done
        return min(self.saved_of.values())


class Trainers:
    """Trainers by job; at most one launch of a job at a time. Used from one event loop only."""

    def __init__(self, launcher: JobLauncher, emit: Callable[[TrainerReport], None], grace_s: float) -> None:
        """`emit` takes the reports; `grace_s` is the wall time to reach an iteration's end."""
        self._launcher = launcher
        self._emit = emit
        self._grace_s = grace_s
        self.hang_s = 0.0  # wall time without an iteration after which a trainer is ended; 0 = for ever
        self._trainers: dict[str, _Trainer] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._seen = Launches()
        self._changed = asyncio.Event()  # set when a trainer has left

    def statuses(self) -> tuple[TrainerStatus, ...]:
        """All trainers whose process is there."""
        now_s = time.monotonic()
        return tuple(
            TrainerStatus(
                *trainer.key,
                trainer.state,
                trainer.process.pid,
                trainer.iterations_done,
                None if trainer.heard_s is None else now_s - trainer.heard_s,
            )
            for trainer in self._trainers.values()
        )

    def is_new(self, order: LaunchOrder) -> bool:
        """Whether a launch was not seen yet.

        Raises:
            Refused: a newer generation of the job was seen.
        """
        return self._seen.is_new(order.job.job_id, order.generation)

    def launch(self, order: LaunchOrder, command: Command) -> None:
        """Starts a job's part here; the same launch again changes nothing, a newer one replaces an older.

        Raises:
            Refused: a newer generation of the job was seen, or the process cannot be started.
        """
        job_id, generation = order.job.job_id, order.generation
        if not self.is_new(order):
            return
        former = self._trainers.pop(job_id, None)
        if former is not None:
            former.superseded = True
            self._launcher.signal(former.key, signal.SIGKILL)
        try:
            process = self._launcher.start((job_id, generation), command)
        except OSError as error:
            raise Refused(RefusalKind.PRECONDITION, f"{command.argv[0]} cannot be started: {error}") from error
        self._seen.note(job_id, generation)
        trainer = _Trainer(order, command.num_ranks, process, order.iterations_done)
        self._trainers[job_id] = trainer
        if self.hang_s > 0:
            trainer.tasks.add(asyncio.create_task(self._end_if_it_hangs(trainer)))
        watch = asyncio.create_task(self._watch(trainer))
        self._leaving.add(watch)
        watch.add_done_callback(self._leaving.discard)

    def stop(self, order: PreemptOrder) -> bool:
        """Notes that a launch is told to stop, and ends it by force after the grace; False when it is not here."""
        trainer = self._find(order.job_id, order.generation)
        if trainer is None:
            return False
        self._expect_exit(trainer)
        return True

    def heard(self, job_id: str, generation: int, kind: ReportKind, iterations_done: int) -> None:
        """Takes a trainer's own word; FINISHED and PREEMPTED are passed on when its process is gone."""
        trainer = self._find(job_id, generation)
        if trainer is None:
            return
        now_s = time.monotonic()
        if trainer.heard_s is not None:
            trainer.longest_s = max(trainer.longest_s, now_s - trainer.heard_s)
        trainer.heard_s = now_s
        trainer.iterations_done = max(trainer.iterations_done, iterations_done)
        if kind in (ReportKind.FINISHED, ReportKind.PREEMPTED):
            trainer.last_word = kind
            trainer.spoke.set()
            self._expect_exit(trainer)
            return
        if kind is ReportKind.STARTED and trainer.state is TrainerState.STARTING:
            trainer.state = TrainerState.RUNNING
        self._report(trainer, kind)

    def saved(self, job_id: str, generation: int, rank: int, iterations: int) -> None:
        """Takes a rank's word that it wrote a checkpoint, or found the one that it goes on from."""
        trainer = self._find(job_id, generation)
        if trainer is not None:
            trainer.saved_of[rank] = iterations
            trainer.iterations_done = max(trainer.iterations_done, iterations)
            self._report(trainer, ReportKind.PROGRESS)

    async def all_left(self) -> None:
        """Waits until every trainer has left and was reported."""
        while self._trainers:
            self._changed.clear()
            await self._changed.wait()

    async def stop_all(self) -> None:
        """Ends all trainers at once and waits until they are gone; nothing is reported."""
        for trainer in self._trainers.values():
            trainer.superseded = True
            self._launcher.signal(trainer.key, signal.SIGKILL)
        self._trainers.clear()
        self._seen.clear()
        await asyncio.gather(*self._leaving)

    def _find(self, job_id: str, generation: int) -> _Trainer | None:
        trainer = self._trainers.get(job_id)
        return trainer if trainer is not None and trainer.order.generation == generation else None

    def _expect_exit(self, trainer: _Trainer) -> None:
        if trainer.state is not TrainerState.STOPPING:
            trainer.state = TrainerState.STOPPING
            task = asyncio.create_task(self._force(trainer))
            trainer.tasks.add(task)

    async def _force(self, trainer: _Trainer) -> None:
        """SIGTERM after the grace, SIGKILL soon after; cancelled when the process is gone."""
        await asyncio.sleep(self._grace_s)
        trainer.forced = True
        _log.warning("job=%s generation=%d did not stop within %g s", *trainer.key, self._grace_s)
        self._launcher.signal(trainer.key, signal.SIGTERM)
        await asyncio.sleep(_TERM_S)
        self._launcher.signal(trainer.key, signal.SIGKILL)

    async def _end_if_it_hangs(self, trainer: _Trainer) -> None:
        """SIGKILL when no iteration was done for so long, and for far longer than any took before."""
        last_s = time.monotonic()
        while trainer.state is not TrainerState.STOPPING:
            limit_s = max(self.hang_s, _TIMES_LONGEST * trainer.longest_s)
            due_s = (last_s if trainer.heard_s is None else trainer.heard_s) + limit_s
            left_s = due_s - time.monotonic()
            if left_s <= 0:
                trainer.hung = f"no iteration for {limit_s:.0f} s"
                _log.warning("job=%s generation=%d hangs: %s", *trainer.key, trainer.hung)
                self._launcher.signal(trainer.key, signal.SIGKILL)
                return
            await asyncio.sleep(left_s)

    async def _watch(self, trainer: _Trainer) -> None:
        """Waits for the process's end and reports what it means."""
        code = await trainer.process.exited
        if code == 0 and not trainer.superseded:
            with suppress(TimeoutError):
                await asyncio.wait_for(trainer.spoke.wait(), _LAST_WORDS_S)
        for task in trainer.tasks:
            task.cancel()
        if trainer.superseded:
            return
        del self._trainers[trainer.key[0]]
        if trainer.last_word is not None and code == 0:
            self._report(trainer, trainer.last_word)
        elif trainer.forced:
            self._report(trainer, ReportKind.PREEMPTED)
        else:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            how = trainer.hung or how
            tail = self._launcher.log_tail(trainer.key)
            reason = f"{how} after {trainer.iterations_done} iterations"
            self._report(trainer, ReportKind.FAILED, f"{reason}: {tail}" if tail else reason)
        self._changed.set()

    def _report(self, trainer: _Trainer, kind: ReportKind, reason: str = "") -> None:
        self._emit(TrainerReport(*trainer.key, kind, trainer.iterations_done, reason, trainer.saved))
