"""What starts processes: workers of a run, trainers of a worker."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.runtime.commands import Command, package_path
from cluster_exp.runtime.leftovers import end_marked
from cluster_exp.runtime.names import file_name
from cluster_exp.runtime.orphans import parent_death_prefix
from cluster_exp.runtime.private import append_private

_LOG_TAIL_BYTES = 2_000
_LONGEST_BASE = 40  # a Unix socket's path has at most 107 bytes
LaunchKey = tuple[str, int]  # job id, generation


@dataclass(frozen=True, slots=True)
class TrainerProcess:
    """A process that a launcher started."""

    pid: int
    exited: asyncio.Future[int]  # its exit code; negative = the signal that ended it


class JobLauncher(Protocol):
    """Starts the processes of one node's part of a job."""

    def start(self, key: LaunchKey, command: Command) -> TrainerProcess:
        """Starts a launch, or returns it when it runs already. Raises OSError when it cannot be started."""
        ...

    def list(self) -> Mapping[LaunchKey, int]:
        """Process ids of the launches that run."""
        ...

    def signal(self, key: LaunchKey, number: int) -> None:
        """Sends a signal to all processes of a launch; none is there any more: nothing happens."""
        ...

    def log_tail(self, key: LaunchKey) -> str:
        """The last lines that a launch wrote, on one line."""
        ...


class WorkerLauncher(Protocol):
    """Brings up the workers of a run."""

    def start(self, index: int, node: NodeSpec, master: str) -> None:
        """Starts the worker of a node. Raises OSError when it cannot be started."""
        ...

    def gone(self) -> str | None:
        """What happened to a worker that ended before it was told to, or None."""
        ...

    def kill(self) -> None:
        """Ends the workers, and with them their trainers, at once."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Waits for the workers to leave, then ends those that are still there."""
        ...


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    handle: TrainerProcess
    pidfd: int
    strays: bool  # its processes may have left its process group


@dataclass
class SubprocessJobLauncher:
    """Trainers as process groups of this machine; the kernel kills them when the worker dies.

    Used from inside an event loop, whose thread must live as long as the worker.
    """

    log_dir: Path
    node: str  # part of the logs' names: workers of several nodes may share the folder
    marks: Mapping[str, str]  # in the environment of every trainer: whose it is
    _running: dict[LaunchKey, _Running] = field(default_factory=dict, repr=False)
    _prefix: list[str] = field(default_factory=parent_death_prefix, repr=False)

    def start(self, key: LaunchKey, command: Command) -> TrainerProcess:
        """Starts a launch in a process group of its own; its output is appended to the job's log."""
        if key in self._running:
            return self._running[key].handle
        loop = asyncio.get_running_loop()
        with append_private(self._log_path(key)) as log:
            process = subprocess.Popen(
                [*self._prefix, *command.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **command.env, **self.marks},
                cwd=command.cwd or self.log_dir,
                process_group=0,
            )
        pidfd = os.pidfd_open(process.pid)
        running = _Running(process, TrainerProcess(process.pid, loop.create_future()), pidfd, command.cwd is not None)
        self._running[key] = running
        loop.add_reader(pidfd, self._reap, key, loop)
        return running.handle

    def list(self) -> Mapping[LaunchKey, int]:
        """Process ids of the launches that run."""
        return {key: running.process.pid for key, running in self._running.items()}

    def signal(self, key: LaunchKey, number: int) -> None:
        """Sends a signal to the launch's process group."""
        if key in self._running:
            with suppress(ProcessLookupError):
                os.killpg(self._running[key].process.pid, number)

    def log_tail(self, key: LaunchKey) -> str:
        """The end of the job's log, its lines joined by ` | `."""
        path = self._log_path(key)
        if not path.exists():
            return ""
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return " | ".join(line.strip() for line in lines[-5:] if line.strip())

    def _log_path(self, key: LaunchKey) -> Path:
        return self.log_dir / f"trainer-{file_name(key[0], 150)}-{file_name(self.node, 50)}.log"

    def _reap(self, key: LaunchKey, loop: asyncio.AbstractEventLoop) -> None:
        running = self._running.pop(key)
        loop.remove_reader(running.pidfd)
        os.close(running.pidfd)
        with suppress(ProcessLookupError):  # what it left behind; its own id is not free before the wait
            os.killpg(running.process.pid, signal.SIGKILL)
        code = running.process.wait()
        if running.strays:
            marks = {**self.marks, "CLUSTER_EXP_JOB_ID": key[0], "CLUSTER_EXP_GENERATION": str(key[1])}
            loop.run_in_executor(None, end_marked, marks)
        if not running.handle.exited.done():
            running.handle.exited.set_result(code)
        self._drop_empty_log(key)

    def _drop_empty_log(self, key: LaunchKey) -> None:
        path = self._log_path(key)
        in_use = any(self._log_path(other) == path for other in self._running)
        if not in_use and path.exists() and path.stat().st_size == 0:
            path.unlink(missing_ok=True)


def _scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder whose path is short enough for a Unix socket in a folder below it."""
    base = tempfile.gettempdir()
    return tempfile.TemporaryDirectory(prefix="cluster-exp-run-", dir=base if len(base) <= _LONGEST_BASE else "/tmp")


@dataclass
class LocalWorkerLauncher:
    """Workers as processes of this machine, each in a process group of its own."""

    log_dir: Path
    _workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict, repr=False)
    _scratch: tempfile.TemporaryDirectory[str] = field(default_factory=_scratch_folder, repr=False)

    def start(self, index: int, node: NodeSpec, master: str) -> None:
        """Starts the worker of a node; it leaves when this process dies."""
        argv = [sys.executable, "-m", "cluster_exp.runtime.worker_main"]
        argv += ["--master", master, "--node", node.name, "--gpus", str(node.num_gpu)]
        argv += ["--gpu-type", node.gpu_type, "--log-dir", str(self.log_dir)]
        argv += ["--scratch", self._scratch.name, "--parent", str(os.getpid())]
        with append_private(self.log_dir / f"worker-{file_name(node.name)}.log") as log:
            self._workers[node.name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **package_path()},
                process_group=0,
            )

    def gone(self) -> str | None:
        """Which worker ended, with its exit code and the end of its log."""
        for name, process in self._workers.items():
            code = process.poll()
            if code is not None:
                path = self.log_dir / f"worker-{file_name(name)}.log"
                tail = path.read_text(errors="replace").splitlines()[-1:] if path.exists() else []
                return f"the worker of node {name} ended with code {code}: {' '.join(tail) or 'no output'}"
        return None

    def kill(self) -> None:
        """Sends SIGKILL to the workers; the kernel does the same to their trainers."""
        for process in self._workers.values():
            if process.poll() is None:
                process.kill()

    async def stop(self, grace_s: float) -> None:
        """Waits for the workers to leave; then SIGTERM, then SIGKILL, each with the same grace."""
        for number in (0, signal.SIGTERM, signal.SIGKILL):
            for process in self._workers.values():
                if number and process.poll() is None:
                    process.send_signal(number)
            if await self._all_left(grace_s):
                break
        self._scratch.cleanup()

    async def _all_left(self, within_s: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while any(process.poll() is None for process in self._workers.values()):
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(0.02)
        return True
