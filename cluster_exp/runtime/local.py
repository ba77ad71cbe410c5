"""A whole live run: the master in this process, its workers, and an end that leaves nothing behind."""

import asyncio
import logging
import signal
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cluster_exp.core.recorder import Core, Recorder
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.job import FINAL, JobSpec
from cluster_exp.protocol.messages import DEFAULT_LIMITS, Limits
from cluster_exp.protocol.refusal import Refused
from cluster_exp.protocol.turns import Discipline
from cluster_exp.runtime.checkpoints import open_shared
from cluster_exp.runtime.launchers import LocalWorkerLauncher, WorkerLauncher
from cluster_exp.runtime.master import Master
from cluster_exp.runtime.security.access import Access, Role, check_address
from cluster_exp.runtime.settings import LiveProgress, MasterConfig
from cluster_exp.runtime.store import StateFile

_WORKERS_WITHIN_S = 60.0  # wall time in which all local workers must have registered
_STOP_GRACE_S = 5.0
_WATCH_S = 0.1
_ADDRESS, _LEFT = "address", "workers_left"  # of the state file: where the master listened; whether all was ended
_log = logging.getLogger(__name__)


class LiveError(RuntimeError):
    """A live run could not go on; the message is one line."""


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """A live run."""

    cluster: ClusterSpec
    jobs: tuple[JobSpec, ...]
    time_scale: float  # simulated seconds per second
    log_dir: Path  # made when it is not there
    interval_s: float = 0.0  # simulated seconds between rounds; 0 = plan whenever something changed
    report_interval_s: float | None = None  # wall time between a worker's batches; None = by the number of workers
    bind: str = "127.0.0.1:0"  # where the master listens
    turns: Discipline = Discipline.LOCKSTEP
    stage_logs: bool = False  # trainers write when each stage began and ended, below log_dir
    measures: bool = False  # decisions turn to the stage times that trainers measure
    comm: str = "none"  # how the ranks of a real job exchange gradients: none, horovod or torch
    checkpoint_dir: Path | None = None  # shared by all nodes; made when it is not there; None = no job has a command
    checkpoint_every: int = 0  # iterations; 0 = only when told to leave
    retries: int = 0  # how often a job that fails is started again from its checkpoint
    retry_wait_s: float = 10.0  # wall time before its first retry; each further one waits twice as long
    limits: Limits = DEFAULT_LIMITS
    access: Access | None = None  # TLS and tokens; None = loopback only
    extra_jobs: int = 0  # jobs that must have been submitted, and ended, besides the trace
    state: StateFile | None = None  # what outlives the master; None = nothing does
    resumes: bool = False  # goes on with what `state` holds


@dataclass(frozen=True, slots=True)
class LiveResult:
    """What a live run was like. Times in simulated seconds; NaN where nothing was measured."""

    complete: bool  # every job ended
    reason: str  # why it stopped before
    ended: Mapping[str, int]  # jobs by final status
    start_cost_mean_s: float  # from a launch to the trainer's first iteration
    start_cost_median_s: float
    stop_cost_mean_s: float  # from a preemption to free GPUs
    starts: int


class _NoWorkers:
    """A launcher for workers that people start themselves."""

    def start(self, index: int, node: object, master: str) -> None:
        """Starts nothing."""

    def gone(self) -> str | None:
        """Never: a worker that leaves is the master's affair."""
        return None

    def kill(self) -> None:
        """Ends nothing."""

    async def stop(self, grace_s: float) -> None:
        """Ends nothing."""


def run_local(
    config: LiveConfig,
    core: Core,
    recorder: Recorder,
    on_progress: Callable[[LiveProgress], None] = lambda progress: None,
    on_address: Callable[[str], None] = lambda address: None,
) -> LiveResult:
    """Runs the jobs on workers of this machine and returns when every process of the run is gone.

    Ctrl-C (SIGINT) and SIGTERM stop it early, when all trainers have finished their iteration and left, a second one
    at once; what was recorded stays, and `resumes` goes on with it. `on_address` is told where the master listens.

    Raises:
        InputError: the address to listen on is beyond loopback and there is no `access`, or that lacks a token.
        LiveError: a worker ended by itself, the workers did not come up, or the state cannot be resumed.
        OSError: what has to outlive the master cannot be written.
    """
    config.log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    launcher = LocalWorkerLauncher(config.log_dir)

    def listens(address: str, missing: Sequence[str]) -> None:
        on_address(address)

    return asyncio.run(_run(config, core, recorder, on_progress, listens, launcher, _WORKERS_WITHIN_S))


def run_testbed(
    config: LiveConfig,
    core: Core,
    recorder: Recorder,
    announce: Callable[[Sequence[str]], None],
    on_progress: Callable[[LiveProgress], None] = lambda progress: None,
) -> LiveResult:
    """Runs the jobs on workers that people start with the commands that `announce` is given, one a node.

    A run that is resumed announces only those nodes whose worker is not there.

    Raises:
        InputError: the address to listen on is beyond loopback and there is no `access`, or that lacks a token.
    """
    config.log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)

    def listens(address: str, missing: Sequence[str]) -> None:
        nodes = [node for node in config.cluster.nodes if node.name in missing]
        announce([worker_command(address, node, config.access is not None) for node in nodes])

    return asyncio.run(_run(config, core, recorder, on_progress, listens, _NoWorkers(), None))


def worker_command(master: str, node: NodeSpec, secured: bool = False) -> str:
    """The command that starts a node's worker; what is written large is for its keeper to fill in."""
    command = f"cluster-exp worker --master {master} --node {node.name} --gpus {node.num_gpu}"
    return f"{command} --host {node.host} --tls DIR --token-file FILE" if secured else command


async def _run(
    config: LiveConfig,
    core: Core,
    recorder: Recorder,
    on_progress: Callable[[LiveProgress], None],
    listens: Callable[[str, Sequence[str]], None],
    launcher: WorkerLauncher,
    within_s: float | None,
) -> LiveResult:
    bind = _bind(config)
    check_address("--bind", bind, config.access)
    if config.access is not None:
        config.access.token(Role.ADMIN)
    settings = MasterConfig(
        config.cluster,
        config.time_scale,
        config.interval_s,
        bind,
        config.report_interval_s,
        turns=config.turns,
        stage_logs=config.stage_logs,
        measures=config.measures,
        comm=config.comm,
        checkpoints=open_shared(config.checkpoint_dir, config.checkpoint_every) if config.checkpoint_dir else None,
        retries=config.retries,
        retry_wait_s=config.retry_wait_s,
        limits=config.limits,
        access=config.access,
    )
    master = Master(settings, core, recorder, on_progress, config.state)
    troubles: list[str] = []
    reasons: list[str] = []
    complete = False
    with _signals(lambda reason: _interrupt(master, launcher, reasons, reason)):
        watch: asyncio.Task[None] | None = None
        try:
            if config.state is not None and config.resumes:
                _resume(master, config.state, config.time_scale, launcher)
            address = await master.start()
            if config.state is not None:
                config.state.set_meta(_ADDRESS, address)
                config.state.set_meta(_LEFT, False)
            listens(address, master.roster.missing)
            for index, node in enumerate(config.cluster.nodes):
                launcher.start(index, node, address)
            watch = asyncio.create_task(_watch(master, launcher, troubles, within_s))
            complete = await master.run(config.jobs, config.extra_jobs)
        finally:
            if watch is not None:
                watch.cancel()
            if config.state is not None:
                with suppress(OSError):  # they leave anyway, and are lost by their leases
                    config.state.set_meta(_LEFT, True)
            await master.close("the run is over")
            await launcher.stop(_STOP_GRACE_S)
    if troubles:
        raise LiveError(troubles[0])
    return _result(master, complete, reasons[0] if reasons else "")


def _bind(config: LiveConfig) -> str:
    """Where to listen: a resumed master where its workers look for it."""
    if config.state is None or not config.resumes:
        return config.bind
    return str(config.state.meta().get(_ADDRESS, config.bind))


def _resume(master: Master, state: StateFile, time_scale: float, launcher: WorkerLauncher) -> None:
    """Goes on with a state file. Time stood still if the run brings its own workers, which ended with it.

    Raises:
        LiveError: the file's events do not lead to what they led to then.
    """
    own = not isinstance(launcher, _NoWorkers)
    gap_s = 0.0 if own else state.age_s() * time_scale
    try:
        events = master.resume(state.rows(), gap_s, workers_left=own or bool(state.meta().get(_LEFT)))
    except (InvariantError, Refused) as error:
        raise LiveError(f"{state.path} cannot be resumed: {error}") from error
    workers = len(master.roster.members)
    _log.warning("resumed: %d events, %d jobs live, %d workers known", events, master.board.num_live, workers)


async def _watch(master: Master, launcher: WorkerLauncher, troubles: list[str], within_s: float | None) -> None:
    """Stops the master when a worker that this run started is gone, or does not come up."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s if within_s is not None else None
    while True:
        gone = launcher.gone()
        if gone is None and deadline is not None and master.roster.missing and not master.running:
            late = loop.time() > deadline
            gone = f"no worker registered for {', '.join(master.roster.missing)}" if late else None
        if gone is not None:
            troubles.append(gone)
            master.stop(gone)
            return
        await asyncio.sleep(_WATCH_S)


def _interrupt(master: Master, launcher: WorkerLauncher, reasons: list[str], reason: str) -> None:
    reasons.append(reason)
    master.stop(reason, drain=len(reasons) == 1)
    if len(reasons) > 1:
        launcher.kill()
    elif master.running:
        _log.warning("%s: trainers finish their iteration and leave; a second signal ends them at once", reason)


@contextmanager
def _signals(on_signal: Callable[[str], None]) -> Iterator[None]:
    """Handles SIGINT and SIGTERM while the block runs, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, on_signal, f"stopped by {number.name}")
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _result(master: Master, complete: bool, reason: str) -> LiveResult:
    board = master.board
    starts = board.start_costs_s
    nothing = float("nan")
    return LiveResult(
        complete=complete,
        reason=reason,
        ended={status.name.lower(): board.counts[status] for status in sorted(FINAL) if board.counts[status]},
        start_cost_mean_s=statistics.fmean(starts) if starts else nothing,
        start_cost_median_s=statistics.median(starts) if starts else nothing,
        stop_cost_mean_s=statistics.fmean(board.stop_costs_s) if board.stop_costs_s else nothing,
        starts=len(starts),
    )
