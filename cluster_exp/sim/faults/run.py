"""A run under faults: it breaks the cluster as the specification says, checks what must hold, and counts."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cluster_exp.core.scheduler import Scheduler
from cluster_exp.domain.actions import Action
from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.events import Event
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.models import SpeedModel
from cluster_exp.protocol.controller import Rules
from cluster_exp.protocol.refusal import RefusalKind, Refused
from cluster_exp.sim.engine import OnProgress
from cluster_exp.sim.faults.master import SimulatedMaster
from cluster_exp.sim.faults.network import Agenda, Network
from cluster_exp.sim.faults.spec import FaultSpec
from cluster_exp.sim.faults.truth import Truth
from cluster_exp.sim.faults.worker import START_S, SimulatedWorker
from cluster_exp.sim.performance import StartCost

_AGAIN_S = 1.0  # a user asks again after so long
_DEADLINE_S = 5.0
_SLOWEST = 5.0
_PATIENCE = 50.0  # a run may take so many times as long as its jobs one after another, before it counts as stuck
_MOST_KILL_POINTS = 12
_PROGRESS_EVERY = 100
OnSafe = Callable[[Event, Sequence[Action]], None]


@dataclass(frozen=True, slots=True)
class FaultReport:
    """What a run met and what became of it."""

    seed: int
    injected: dict[str, int]  # faults by kind
    ended: dict[str, int]  # jobs by final status
    lost: tuple[str, ...]  # acknowledged jobs that did not end
    retried: int  # trainers that broke
    end_s: float  # simulated
    events: int  # of the core


class FaultyRun:
    """One run of jobs on a cluster that breaks."""

    def __init__(
        self,
        spec: FaultSpec,
        cluster: ClusterSpec,
        jobs: Sequence[JobSpec],
        submitted: Sequence[JobSpec],
        make_core: Callable[[], Scheduler],
        speed: SpeedModel,
        retries: int = 3,
        retry_wait_s: float = 0.0,
        interval_s: float = 0.0,
        start_cost: StartCost = lambda job: START_S,
        on_safe: OnSafe = lambda event, actions: None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Nothing has happened yet.

        Args:
            spec: what breaks.
            cluster: the nodes.
            jobs: arrive by themselves.
            submitted: are sent by users, who ask again until they are answered.
            make_core: makes an empty scheduler, for every life of the master.
            speed: how fast groups run.
            retries: how often a job whose trainer breaks is started again.
            retry_wait_s: before the first retry; each further one waits twice as long.
            interval_s: seconds between rounds; 0 = plan whenever something changed.
            start_cost: seconds from a launch to the trainer's first iteration.
            on_safe: told every event that no crash can undo, once and in order.
            on_progress: called now and then with (simulated seconds, jobs ended, events).
        """
        self._on_progress = on_progress
        self._spec = spec
        self._draw = random.Random(spec.seed)
        self._injected: Counter[str] = Counter()
        self._agenda = Agenda()
        self._network = Network(self._agenda, self._draw, spec, self._injected)
        self._truth = Truth(retries)
        names = [job.job_id for job in (*jobs, *submitted)]
        self._truth.looping = frozenset(self._draw.sample(names, min(spec.loops, len(names))))
        self._truth.acknowledge(jobs)
        self._submitted = submitted
        self._unanswered = len(submitted)
        self._tell = on_safe
        self._events = 0
        self._checked = 0  # turns of the master after which the core was checked
        rules = Rules(cluster, spec.lease, 1.0, interval_s, retries, retry_wait_s, measures=True)
        self._master = SimulatedMaster(
            self._agenda, self._network, rules, make_core, jobs, self._safe, self._draw, self._injected
        )
        self._master.come_up()
        self._workers = [self._worker(node, cluster, speed, start_cost) for node in range(len(cluster.nodes))]
        self._master.workers.update(enumerate(self._workers))
        alone_s = sum(speed.alone_s(job.profile) * job.iterations for job in (*jobs, *submitted))
        last_s = max((job.submit_s for job in (*jobs, *submitted)), default=0.0)
        all_jobs = (*jobs, *submitted)
        gpu_s = sum(speed.alone_s(job.profile) * job.iterations * job.num_gpu for job in all_jobs)
        self._horizon_s = max(last_s, gpu_s / cluster.num_gpu) + 20.0  # faults come within it
        self._limit_s = self._horizon_s + _PATIENCE * (alone_s + spec.lease * 10)

    def _worker(self, node: int, cluster: ClusterSpec, speed: SpeedModel, start_cost: StartCost) -> SimulatedWorker:
        return SimulatedWorker(
            node,
            cluster.nodes[node],
            self._agenda,
            self._network,
            self._master.call,
            self._truth,
            speed,
            start_cost,
            self._draw,
            self._injected,
        )

    def run(self) -> FaultReport:
        """Runs until every job ended, and all that still runs after that was stopped.

        Raises:
            InvariantError: something does not hold, or the run is stuck; the message names the seed.
        """
        try:
            self._enter_faults()
            for job in self._submitted:
                self._agenda.after(job.submit_s, partial(self._submit, job))
            while self._unanswered or self._truth.lost():
                self._step()
            self._come_to_rest()
        except InvariantError as error:
            raise InvariantError(f"seed {self._spec.seed}, at {self._agenda.now_s:.3f} s: {error}") from error
        ended = Counter(status.name.lower() for status in self._truth.ended.values())
        return FaultReport(
            self._spec.seed,
            dict(sorted(self._injected.items())),
            dict(sorted(ended.items())),
            tuple(self._truth.lost()),
            sum(self._truth.broken.values()),
            self._agenda.now_s,
            self._events,
        )

    def _step(self) -> None:
        if not self._agenda.step() or self._agenda.now_s > self._limit_s:
            lost = ", ".join(self._truth.lost()[:5])
            raise InvariantError(f"the run is stuck: {lost} never ended")
        core, worked = self._master.core, self._master.worked
        if isinstance(core, Scheduler) and self._master.controller is not None and worked != self._checked:
            self._checked = worked
            core.check()

    def _come_to_rest(self) -> None:
        """Without further faults, no trainer may be left after a while."""
        self._network.spec = self._spec.calm
        until_s = self._agenda.now_s + 20 * self._spec.lease + 100.0
        while any(worker.trainers for worker in self._workers) or self._master.controller is None:
            if self._agenda.now_s > until_s:
                names = sorted(name for worker in self._workers for name in worker.trainers)
                raise InvariantError(f"trainers of {', '.join(names)} run on, although every job ended")
            self._step()

    def _safe(self, event: Event, actions: Sequence[Action]) -> None:
        self._events += 1
        if self._on_progress is not None and self._events % _PROGRESS_EVERY == 0:
            self._on_progress(event.time_s, len(self._truth.ended), self._events)
        self._truth.believe(event, actions)
        self._tell(event, actions)

    # Users

    def _submit(self, job: JobSpec) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, Refused):
                if answer.kind is not RefusalKind.BUSY:
                    raise InvariantError(f"job {job.job_id}, submitted by its one user, is refused: {answer}")
                self._agenda.after(_AGAIN_S, lambda: self._submit(job))
                return
            self._unanswered -= 1
            self._truth.acknowledge((job,))

        def silence() -> None:
            self._agenda.after(_AGAIN_S, lambda: self._submit(job))

        self._master.submit(f"request of {job.job_id}", (job,), answered, silence)

    # Faults

    def _enter_faults(self) -> None:
        spec = self._spec
        for count, what in (
            (spec.masters, self._kill_master),
            (spec.workers, self._kill_worker),
            (spec.cuts, self._cut),
            (spec.slow, self._slow),
            (spec.crashes, lambda: self._break("trainers crashed", SimulatedWorker.crash)),
            (spec.hangs, lambda: self._break("trainers hung", SimulatedWorker.hang)),
            (spec.jumps, self._jump),
        ):
            for _ in range(count):
                self._agenda.after(self._draw.uniform(0.0, self._horizon_s), what)

    def kill_master_at(self, point: int) -> None:
        """Kills the master at a point of its work, counted from now: before a commit, after it, after its orders."""
        self._master.kill_soon(point)

    def _kill_master(self) -> None:
        self._master.kill_soon(self._draw.randrange(_MOST_KILL_POINTS))

    def _kill_worker(self) -> None:
        self._injected["workers killed"] += 1
        self._draw.choice(self._workers).die(self._draw.uniform(0.5, 3 * self._spec.lease))

    def _cut(self) -> None:
        self._injected["networks cut"] += 1
        node = self._draw.randrange(len(self._workers))
        self._network.cut[node] += 1
        self._agenda.after(self._draw.uniform(1.0, 3 * self._spec.lease), lambda: self._mend(node))

    def _mend(self, node: int) -> None:
        self._network.cut[node] -= 1

    def _slow(self) -> None:
        self._injected["nodes slowed"] += 1
        worker = self._draw.choice(self._workers)
        worker.slowness = self._draw.uniform(1.5, _SLOWEST)
        worker.settle_speeds()
        self._agenda.after(self._draw.uniform(5.0, 60.0), lambda: self._recover(worker))

    def _recover(self, worker: SimulatedWorker) -> None:
        worker.slowness = 1.0
        worker.settle_speeds()

    def _break(self, kind: str, how: Callable[[SimulatedWorker], bool]) -> None:
        workers = list(self._workers)
        self._draw.shuffle(workers)
        if any(how(worker) for worker in workers):
            self._injected[kind] += 1

    def _jump(self) -> None:
        self._injected["clock jumps"] += 1
        self._master.jump(self._draw.choice((1.0, self._spec.lease, 100 * self._spec.lease)))


def total(reports: Sequence[FaultReport]) -> FaultReport:
    """Several runs' counts as one's; of the seeds the first."""
    injected: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for report in reports:
        injected.update(report.injected)
        ended.update(report.ended)
    lost = tuple(name for report in reports for name in report.lost)
    return replace(
        reports[0],
        injected=dict(sorted(injected.items())),
        ended=dict(sorted(ended.items())),
        lost=lost,
        retried=sum(report.retried for report in reports),
        end_s=sum(report.end_s for report in reports),
        events=sum(report.events for report in reports),
    )


def fault_summary(name: str, report: FaultReport) -> str:
    """A few lines for people."""
    met = ", ".join(f"{kind} {count}" for kind, count in report.injected.items()) or "none"
    ended = ", ".join(f"{status} {count}" for status, count in report.ended.items())
    return (
        f"{name} under faults, seed {report.seed}: {met}\n"
        f"{name} jobs: {ended}, lost {len(report.lost)}; trainers that broke: {report.retried}"
    )
