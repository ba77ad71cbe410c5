"""A process that holds many real workers; their trainers are timers in the same event loop."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from cluster_exp.runtime.collector import rare_collections
from cluster_exp.runtime.commands import Command
from cluster_exp.runtime.launchers import LaunchKey, TrainerProcess
from cluster_exp.runtime.turn_server import (
    TrainerDone,
    TrainerEvent,
    TrainerProgress,
    TrainerStarted,
    TrainerStopped,
)
from cluster_exp.runtime.worker import Worker, WorkerConfig, WorkerRefusedError
from control_plane_kit.process import leave_with_parent, raise_open_files

FILES_PER_WORKER = 14  # two listeners and an epoll of its turns, gRPC server, a connection each way, and pipes
_SPARE_FILES = 256
_START_S = 0.05  # wall time from the launch to the first iteration
_TELL_S = 0.1
_GRACE_S = 2.0  # a timer hears of a preemption by SIGTERM, after this time


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The workers of one process."""

    master: str  # host:port
    nodes: tuple[str, ...]
    num_gpu: int  # of each node
    folder: Path  # for logs and sockets
    parent_pid: int


@dataclass(slots=True)
class News:
    """What happened since the parent was told last. Times are those of the monotonic clock."""

    launched: list[tuple[str, float]] = field(default_factory=list)
    ended: list[tuple[str, int, float]] = field(default_factory=list)  # job id, iterations done, when
    error: str = ""


@dataclass(slots=True)
class _Trainer:
    job_id: str
    generation: int
    rank: int
    iteration_s: float  # wall time
    iterations: int
    done: int
    next_s: float
    exited: asyncio.Future[int]
    timer: asyncio.TimerHandle | None = None


@dataclass
class TimerLauncher:
    """Trainers that count iterations and do nothing else (`runtime.launchers.JobLauncher`)."""

    hear: Callable[[TrainerEvent], None]
    news: News
    _running: dict[LaunchKey, _Trainer] = field(default_factory=dict)

    def start(self, key: LaunchKey, command: Command) -> TrainerProcess:
        """Starts to count as the command line and the environment of an emulated trainer say."""
        loop = asyncio.get_running_loop()
        self.news.launched.append((key[0], time.monotonic()))
        argv, env = command.argv, command.env
        option = dict(zip(argv[3::2], argv[4::2], strict=True))
        trainer = self._running[key] = _Trainer(
            *key,
            int(env["CLUSTER_EXP_RANK"]),
            float(option["--iteration-s"]) / float(option["--time-scale"]),
            int(env["CLUSTER_EXP_ITERATIONS"]),
            int(env["CLUSTER_EXP_ITERATIONS_DONE"]),
            loop.time() + _START_S,
            loop.create_future(),
        )
        trainer.timer = loop.call_at(trainer.next_s, self._begin, trainer)
        return TrainerProcess(os.getpid(), trainer.exited)

    def list(self) -> Mapping[LaunchKey, int]:
        """The process ids: this process's."""
        return dict.fromkeys(self._running, os.getpid())

    def signal(self, key: LaunchKey, number: int) -> None:
        """SIGTERM ends a trainer at an iteration's boundary, SIGKILL at once."""
        trainer = self._running.get(key)
        if trainer is None:
            return
        if number == signal.SIGTERM:
            self._say(TrainerStopped, trainer)
            self._exit(trainer, 0)
        else:
            self._exit(trainer, -number)

    def log_tail(self, key: LaunchKey) -> str:
        """Nothing: timers write no log."""
        return ""

    def _begin(self, trainer: _Trainer) -> None:
        self._say(TrainerStarted, trainer)
        self._wait(trainer)

    def _tick(self, trainer: _Trainer) -> None:
        trainer.done += 1
        self._say(TrainerProgress, trainer)
        self._wait(trainer)

    def _wait(self, trainer: _Trainer) -> None:
        if trainer.done >= trainer.iterations:
            self.news.ended.append((trainer.job_id, trainer.done, time.monotonic()))
            self._say(TrainerDone, trainer)
            self._exit(trainer, 0)
            return
        trainer.next_s += trainer.iteration_s
        trainer.timer = asyncio.get_running_loop().call_at(trainer.next_s, self._tick, trainer)

    def _say(self, kind: Callable[[str, int, int, float, int], TrainerEvent], trainer: _Trainer) -> None:
        self.hear(kind(trainer.job_id, trainer.generation, trainer.rank, time.monotonic(), trainer.done))

    def _exit(self, trainer: _Trainer, code: int) -> None:
        if trainer.timer is not None:
            trainer.timer.cancel()
        del self._running[(trainer.job_id, trainer.generation)]
        trainer.exited.set_result(code)


def host_main(plan: HostPlan, pipe: Connection) -> None:
    """Runs the workers until the master tells them to leave; tells the parent what happens."""
    leave_with_parent(plan.parent_pid)
    raise_open_files(files_needed(len(plan.nodes)))
    with rare_collections():
        asyncio.run(_serve(plan, pipe))


def files_needed(workers: int) -> int:
    """Open files of a process with so many workers."""
    return workers * FILES_PER_WORKER + _SPARE_FILES


async def _serve(plan: HostPlan, pipe: Connection) -> None:
    news = News()
    workers = [
        Worker(
            WorkerConfig(plan.master, node, plan.num_gpu, plan.folder, scratch=plan.folder, grace_s=_GRACE_S),
            lambda hear: TimerLauncher(hear, news),
        )
        for node in plan.nodes
    ]
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: [worker.stop() for worker in workers])
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    everything = asyncio.gather(*tasks)
    while not everything.done():
        await asyncio.wait([everything], timeout=_TELL_S)
        _tell(pipe, news)
    try:
        await everything
    except (WorkerRefusedError, OSError) as error:
        news.error = f"a worker left: {error}"
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
    _tell(pipe, news)


def _tell(pipe: Connection, news: News) -> None:
    if news.launched or news.ended or news.error:
        pipe.send(News(news.launched, news.ended, news.error))
        news.launched, news.ended = [], []
