"""The simulations of a figure, several at a time, each in a process of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster_exp.domain.actions import Action, JobRecord, RecordEnd
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.events import Event
from cluster_exp.domain.job import JobSpec
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.inputs.restart import default_restart_costs
from cluster_exp.inputs.traces import read_trace
from cluster_exp.parallel.crew import Crew, OnProgress, Outcome, Tell
from cluster_exp.policies.registry import make_policy
from cluster_exp.reproduce.figures import GPUS_PER_NODE, Figure, PolicyUse, TraceUse
from cluster_exp.results.job_table import JobRow
from cluster_exp.results.metrics import JobMetrics, job_metrics
from cluster_exp.sim.simulate import simulate

TRACE_FOLDER = Path("traces", "muri")


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation."""

    figure: Figure
    trace: TraceUse
    policy: PolicyUse
    folder: Path  # the data folder


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


def simulate_run(run: Run, tell: Tell) -> JobMetrics:
    """Simulates one run to its end; `tell` is called now and then with the jobs that ended so far.

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
        lambda _, ended, __: tell(ended),
    )
    tell(len(collected.rows))
    return job_metrics(collected.rows)


def run_all(
    runs: Sequence[Run], sizes: Sequence[int], workers: int, on_ended: OnProgress
) -> list[Outcome[JobMetrics]]:
    """Simulates all runs, at most `workers` at once, the longest first; outcomes in the order of `runs`.

    On an exception, also on KeyboardInterrupt, every process is gone when it leaves.

    Args:
        runs: what to simulate.
        sizes: jobs of each run.
        workers: processes at once, at least 1.
        on_ended: told how many jobs ended since the last call, over all runs.
    """
    with Crew(simulate_run, runs, sizes, workers, on_ended) as crew:
        outcomes = dict(crew)
    return [outcomes[i] for i in range(len(runs))]


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
