"""The simulations of a figure, several at a time, each in a process of its own."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from cluster_exp.domain.actions import Action, JobRecord, RecordEnd
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.errors import InputError, InvariantError
from cluster_exp.domain.events import Event
from cluster_exp.domain.job import JobSpec
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.inputs.restart import default_restart_costs
from cluster_exp.inputs.traces import read_trace
from cluster_exp.policies.registry import make_policy
from cluster_exp.reproduce.figures import GPUS_PER_NODE, Figure, PolicyUse, TraceUse
from cluster_exp.results.job_table import JobRow
from cluster_exp.results.metrics import JobMetrics, job_metrics
from cluster_exp.sim.simulate import simulate

TRACE_FOLDER = Path("traces", "muri")
_TELL_EVERY_S = 0.2  # between two reports of a process
_LEAVE_WITHIN_S = 5.0  # for a process that was told to stop

OnEnded = Callable[[int], object]  # jobs that ended since the last call, over all runs


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation."""

    figure: Figure
    trace: TraceUse
    policy: PolicyUse
    folder: Path  # the data folder


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    metrics: JobMetrics | None  # None = it failed
    wall_s: float
    error: str = ""


def trace_path(folder: Path, trace: TraceUse) -> Path:
    """Where a trace lies in the data folder."""
    return folder / TRACE_FOLDER / f"{trace.name}.csv"


def jobs_of(folder: Path, trace: TraceUse) -> tuple[JobSpec, ...]:
    """The jobs that a figure uses of a trace. Raises InputError when the file is unusable or none is left."""
    path = trace_path(folder, trace)
    jobs = read_trace(path, default_profiles(), _cluster(trace)).jobs
    if trace.window is not None:
        window = trace.window
        jobs = tuple(job for job in jobs if window.holds(job.submit_s))
    if not jobs:
        raise InputError("no job was submitted in the figure's window", where=str(path))
    return jobs


def simulate_run(run: Run, on_ended: Callable[[int], None]) -> JobMetrics:
    """Simulates one run to its end; `on_ended` is called now and then with the jobs that ended so far.

    Raises:
        InputError: the trace or the policy's spec is unusable.
        InvariantError: the policy's plans contradict the rules.
    """
    costs = default_restart_costs()
    collected = _Collector()
    simulate(
        make_policy(run.policy.spec),
        jobs_of(run.folder, run.trace),
        _cluster(run.trace),
        run.figure.rules(run.policy),
        lambda job: costs.start_s(job.model, job.num_gpu),
        collected,
        lambda _, ended: on_ended(ended),
    )
    return job_metrics(collected.rows)


def run_all(runs: Sequence[Run], sizes: Sequence[int], workers: int, on_ended: OnEnded) -> list[Outcome]:
    """Simulates all runs, at most `workers` at once, the longest first; outcomes in the order of `runs`.

    On an exception, also on KeyboardInterrupt, every process is gone when it leaves.

    Args:
        runs: what to simulate.
        sizes: jobs of each run.
        workers: processes at once, at least 1.
        on_ended: told of progress.
    """
    crew = _Crew(runs, on_ended)
    todo = sorted(range(len(runs)), key=lambda i: sizes[i])
    try:
        while todo or crew.active:
            while todo and len(crew.active) < workers:
                crew.start(todo.pop())
            crew.listen()
    finally:
        crew.stop()
    return [crew.outcomes[i] for i in range(len(runs))]


@dataclass(slots=True)
class _Active:
    index: int
    process: BaseProcess
    inbox: Connection
    started_s: float
    ended: int = 0


class _Crew:
    """The processes at work."""

    def __init__(self, runs: Sequence[Run], on_ended: OnEnded) -> None:
        self._runs = runs
        self._on_ended = on_ended
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        self.active: list[_Active] = []
        self.outcomes: dict[int, Outcome] = {}

    def start(self, index: int) -> None:
        """Starts a run's process."""
        inbox, outbox = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_work, args=(self._runs[index], outbox), daemon=True)
        process.start()
        outbox.close()
        self.active.append(_Active(index, process, inbox, time.monotonic()))

    def listen(self) -> None:
        """Waits until a process says something or is gone."""
        ready = wait([active.inbox for active in self.active])
        for active in [active for active in self.active if active.inbox in ready]:
            try:
                message = active.inbox.recv()
            except EOFError:
                active.process.join()
                message = f"its process died with exit code {active.process.exitcode}"
            if isinstance(message, int):
                self._on_ended(message - active.ended)
                active.ended = message
            else:
                self._finish(active, message)

    def stop(self) -> None:
        """Ends the processes that still work."""
        for active in self.active:
            active.process.terminate()
        for active in self.active:
            active.process.join(_LEAVE_WITHIN_S)
            if active.process.is_alive():
                active.process.kill()
                active.process.join()
            active.inbox.close()
        self.active.clear()

    def _finish(self, active: _Active, result: JobMetrics | str) -> None:
        wall_s = time.monotonic() - active.started_s
        if isinstance(result, JobMetrics):
            self.outcomes[active.index] = Outcome(result, wall_s)
            self._on_ended(result.jobs - active.ended)
        else:
            self.outcomes[active.index] = Outcome(None, wall_s, result)
        active.process.join()
        active.inbox.close()
        self.active.remove(active)


def _work(run: Run, outbox: Connection) -> None:
    """A process: simulates a run and sends jobs ended (int), at last metrics or the words of an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends us
    told_s = 0.0

    def tell(ended: int) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= _TELL_EVERY_S:
            told_s = now_s
            outbox.send(ended)

    try:
        outbox.send(simulate_run(run, tell))
    except (InputError, InvariantError) as error:
        outbox.send(f"{type(error).__name__}: {error}")
    except BrokenPipeError:
        os._exit(1)


@dataclass
class _Collector:
    """Keeps what metrics need of the jobs that ended (`core.recorder.Recorder`)."""

    rows: list[JobRow] = field(default_factory=list)

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Keeps the jobs that ended."""
        self.rows += [_row(action.record) for action in actions if isinstance(action, RecordEnd)]


def _row(record: JobRecord) -> JobRow:
    jct_s = record.end_s - record.submit_s
    return JobRow(
        job_id=record.job_id,
        num_gpu=record.num_gpu,
        submit_s=record.submit_s,
        end_s=record.end_s,
        jct_s=jct_s,
        pending_s=jct_s - record.executed_s,
        status=record.status.name,
    )


def _cluster(trace: TraceUse) -> ClusterSpec:
    return ClusterSpec(tuple(NodeSpec(f"n{i}", GPUS_PER_NODE) for i in range(trace.nodes)))
