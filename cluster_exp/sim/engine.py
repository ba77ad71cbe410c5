"""The simulator's engine: the core under a virtual clock that jumps from event to event."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cluster_exp.core.recorder import Session
from cluster_exp.domain.actions import Action, Launch, Preempt, RecordEnd, SetTurns, TurnGroup, Wake
from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.columns import FloatColumn
from cluster_exp.domain.errors import InvariantError
from cluster_exp.domain.events import (
    Event,
    JobArrived,
    JobFinished,
    JobPreempted,
    JobStarted,
    PlanDue,
    Progressed,
    WorkerJoined,
)
from cluster_exp.domain.job import JobSpec
from cluster_exp.sim.performance import CostModel
from cluster_exp.sim.running import RunningTable
from cluster_exp.sim.sharing import Neighbours

OnProgress = Callable[[float, int, int], None]  # (simulated seconds, jobs ended so far, events so far)
_PROGRESS_EVERY = 64  # instants between two calls of OnProgress


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a simulation says of itself."""

    end_s: float  # time of the last event
    jobs_ended: int
    instants: int  # distinct times at which something happened
    plans: int
    events: int
    rounds_skipped: int = 0  # in which every job ran alone, and the policy lets them then


class Engine:
    """Drives a session from the first arrival to the last end.

    Args:
        session: the scheduler with its recorder.
        cost: how time becomes progress.
        interval_s: seconds between two plans; 0 = plan at every event.
        on_progress: called now and then.
        fills: whether the policy lets all jobs run on alone that do (`Trait.FILLS`): then such rounds are skipped.
    """

    def __init__(
        self,
        session: Session,
        cost: CostModel,
        interval_s: float = 0.0,
        on_progress: OnProgress | None = None,
        fills: bool = False,
    ) -> None:
        self._session = session
        self._cost = cost
        self._interval_s = interval_s
        self._on_progress = on_progress
        self._fills = fills
        self._now_s = 0.0
        self._running = RunningTable()
        self._neighbours = Neighbours()
        self._groups: dict[int, TurnGroup] = {}
        self._group_of: dict[str, int] = {}
        self._regrouped: dict[int, None] = {}  # groups whose speed is to be computed anew
        self._wake_s = math.inf
        self._next_round_s = 0.0
        self._live = 0
        self._ended = 0
        self._instants = 0
        self._plans = 0
        self._skipped = 0
        self._events = 0

    def run(self, cluster: ClusterSpec, jobs: Sequence[JobSpec]) -> SimulationResult:
        """Runs until every job ended; `jobs` are sorted by submit time.

        Raises:
            InvariantError: jobs wait, nothing runs and nothing is to come.
        """
        for node, spec in enumerate(cluster.nodes):
            self._handle(WorkerJoined(0.0, node, spec))
        arrived = 0
        while arrived < len(jobs) or self._live:
            ends_s = self._cost.ends_s(self._running.columns, self._now_s)
            arrival_s = jobs[arrived].submit_s if arrived < len(jobs) else math.inf
            now_s = self._next_time(arrival_s, ends_s)
            if not math.isfinite(now_s):
                raise InvariantError(f"{self._live} jobs wait at {self._now_s} s, nothing runs, nothing is to come")
            finished = self._finished(ends_s, now_s)
            self._cost.advance(self._running.columns, now_s - self._now_s)
            self._now_s = now_s
            due = self._due()
            if due and self._interval_s and self._fills and arrival_s > now_s and self._alone():
                self._skipped += 1
                due = False
            self._report(finished, due)
            while arrived < len(jobs) and jobs[arrived].submit_s <= now_s:
                self._live += 1
                self._handle(JobArrived(now_s, jobs[arrived]))
                arrived += 1
            if due:
                self._plan()
            self._settle_speeds()
            self._instants += 1
            if self._on_progress and self._instants % _PROGRESS_EVERY == 0:
                self._on_progress(now_s, self._ended, self._events)
        return SimulationResult(self._now_s, self._ended, self._instants, self._plans, self._events, self._skipped)

    def _next_time(self, arrival_s: float, ends_s: FloatColumn) -> float:
        end_s = float(ends_s.min()) if ends_s.size else math.inf
        if abs(arrival_s - end_s) <= self._cost.arrival_tolerance_s < math.inf:
            end_s = arrival_s
        next_s = min(arrival_s, end_s, self._wake_s)
        if self._interval_s and self._live:
            next_s = min(next_s, self._next_round_s)
        return max(next_s, self._now_s)

    def _finished(self, ends_s: FloatColumn, now_s: float) -> list[str]:
        """Ids of the jobs whose predicted end is now, or as good as now."""
        if not ends_s.size:
            return []
        from_s = now_s
        if math.isfinite(self._cost.arrival_tolerance_s):
            from_s = float(ends_s.min())
            if abs(from_s - now_s) > self._cost.arrival_tolerance_s:
                return []
        limit_s = from_s + abs(from_s) * self._cost.end_tolerance
        return [self._running.ids[i] for i in np.flatnonzero(ends_s <= limit_s).tolist()]

    def _report(self, finished: Sequence[str], due: bool) -> None:
        """Tells the core which jobs are done and, before a plan, how far the others are."""
        if due and len(finished) < len(self._running.ids):
            ids, left = self._running.all_ids, self._running.columns.remaining.tolist()
            if finished:
                ended = set(finished)
                ids, left = zip(*((i, n) for i, n in zip(ids, left, strict=True) if i not in ended), strict=True)
            self._handle(Progressed(self._now_s, ids, tuple(left)))
        for job_id in finished:
            generation = self._running.generation(job_id)
            self._remove(job_id)
            self._handle(JobFinished(self._now_s, job_id, generation))

    def _due(self) -> bool:
        """Whether to plan now: always without rounds, else when one begins; they are at multiples of the interval."""
        if not self._interval_s:
            return True
        if self._next_round_s < self._now_s:  # nobody was there to plan for
            self._next_round_s = math.ceil(self._now_s / self._interval_s) * self._interval_s
        if self._now_s < min(self._next_round_s, self._wake_s):
            return False
        if self._now_s >= self._next_round_s:
            self._next_round_s = (math.floor(self._now_s / self._interval_s) + 1) * self._interval_s
        return True

    def _plan(self) -> None:
        self._wake_s = math.inf
        self._plans += 1
        self._handle(PlanDue(self._now_s))

    def _alone(self) -> bool:
        """Whether every live job runs, in a group of its own."""
        return len(self._groups) == len(self._running.ids) == self._live

    def _handle(self, event: Event) -> None:
        self._events += 1
        for action in self._session.handle(event):
            self._carry_out(action)

    def _carry_out(self, action: Action) -> None:
        match action:
            case SetTurns():
                self._regroup(action.group)
            case Launch():
                cost_s = self._cost.start_cost_s(action.job)
                self._running.add(action.job, action.generation, action.remaining_iterations, cost_s)
                self._neighbours.start(action.job.job_id, action.group_id, action.allotment)
                self._handle(JobStarted(self._now_s, action.job.job_id, action.generation))
            case Preempt():
                job = self._running.job(action.job_id)
                left = self._cost.kept_iterations(job, self._running.remaining(action.job_id))
                self._remove(action.job_id)
                self._handle(JobPreempted(self._now_s, action.job_id, action.generation, left))
            case RecordEnd():
                self._ended += 1
                self._live -= 1
            case Wake():
                self._wake_s = action.at_s

    def _regroup(self, group: TurnGroup) -> None:
        self._groups[group.group_id] = group
        self._regrouped[group.group_id] = None
        for member in group.members:
            self._group_of[member.job_id] = group.group_id
        self._neighbours.regroup(group.group_id, [member.job_id for member in group.members])

    def _remove(self, job_id: str) -> None:
        group_id = self._group_of.pop(job_id)
        if len(self._groups[group_id].members) == 1:
            del self._groups[group_id]
        self._running.remove(job_id)
        self._neighbours.leave(job_id)

    def _settle_speeds(self) -> None:
        """Computes the speed of every group that changed, or whose neighbours did, at this instant."""
        for group_id in self._regrouped | self._neighbours.take_touched():
            group = self._groups.get(group_id)
            if group is None:
                continue
            present = [
                member for member in group.members if self._running.generation(member.job_id) == member.generation
            ]
            if not present:
                continue
            jobs = [self._running.job(member.job_id) for member in present]
            profiles = [job.profile for job in jobs]
            speeds = self._cost.speed.evaluate(profiles, [member.offset for member in present]).iteration_s
            for member, iteration_s in zip(present, speeds, strict=True):
                self._running.set_speed(member.job_id, self._beside_s(member.job_id, iteration_s))
            overhead_s = self._cost.shared_cost_s(jobs)
            if overhead_s is not None:
                for member in present:
                    self._running.set_overhead(member.job_id, overhead_s)
        self._regrouped.clear()

    def _beside_s(self, job_id: str, iteration_s: float) -> float:
        """Seconds per iteration beside the jobs of other groups on the same GPUs."""
        others = [self._running.job(other) for other in self._neighbours.of(job_id)]
        return self._cost.beside_s(self._running.job(job_id), iteration_s, others) if others else iteration_s
