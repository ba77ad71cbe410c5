"""How well a run used its cluster: GPU utilisation and interleaving efficiency."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cluster_exp.domain.actions import Action, Launch, RecordEnd, SetTurns, UseProfile
from cluster_exp.domain.events import Event, JobArrived, JobFinished, JobPreempted, Progressed, WorkerLost
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.efficiency import efficiency

_REMEMBERED = 65_536  # groups whose efficiency is not computed again


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run made of its GPUs."""

    gpu_busy_s: float  # sum over jobs of gpu stage time x iterations done x GPUs
    held_gpu_s: float  # GPU-seconds held by groups
    efficient_gpu_s: float  # the same, each weighted by the group's interleaving efficiency

    @property
    def mean_efficiency(self) -> float:
        """Mean interleaving efficiency of the groups that ran, weighted by GPU-seconds; 0 when none ran."""
        return self.efficient_gpu_s / self.held_gpu_s if self.held_gpu_s else 0.0


@dataclass(slots=True)
class _Share:
    """A group as it stands since `since_s`."""

    jobs: list[str]
    since_s: float
    num_gpu: int
    gamma: float
    nodes: frozenset[int] = frozenset()  # on which its members hold GPUs


class UsageMeter:
    """Integrates usage over a run (`core.recorder.Recorder`).

    A group counts from the announcement of its turns to the next one, or to the end of its last job.
    """

    def __init__(self, speed: SpeedModel) -> None:
        """`speed` tells the cycle time of groups."""
        self._efficiency = lru_cache(_REMEMBERED)(lambda profiles, offsets: _efficiency(speed, profiles, offsets))
        self._specs: dict[str, JobSpec] = {}
        self._remaining: dict[str, float] = {}  # iterations when the job's work was last counted
        self._reported: dict[str, float] = {}  # iterations as last reported, not counted yet
        self._groups: dict[int, _Share] = {}
        self._group_of: dict[str, int] = {}
        self._now_s = 0.0
        self._busy_s = 0.0
        self._held_s = 0.0
        self._efficient_s = 0.0
        self._counts: dict[type, Callable[[Any], None]] = {
            JobArrived: self._arrived,
            Progressed: self._progressed,
            JobFinished: self._finished,
            JobPreempted: self._preempted,
            WorkerLost: self._lost,
            SetTurns: self._announced,
            Launch: self._launched,
            UseProfile: self._measured,
            RecordEnd: self._ended,
        }

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Takes one event and its actions into account."""
        self._now_s = event.time_s
        count = self._counts.get(type(event))
        if count is not None:
            count(event)
        for action in actions:
            count = self._counts.get(type(action))
            if count is not None:
                count(action)

    def usage(self) -> Usage:
        """What was used up to the last event, by groups that still run too."""
        for job_id in list(self._reported):
            self._settle(job_id)
        open_s = [((self._now_s - share.since_s) * share.num_gpu, share.gamma) for share in self._groups.values()]
        held_s = self._held_s + sum(gpu_s for gpu_s, _ in open_s)
        return Usage(self._busy_s, held_s, self._efficient_s + sum(gpu_s * gamma for gpu_s, gamma in open_s))

    def _arrived(self, event: JobArrived) -> None:
        self._specs[event.job.job_id] = event.job
        self._remaining[event.job.job_id] = float(event.job.iterations)

    def _progressed(self, event: Progressed) -> None:
        self._reported.update(zip(event.job_ids, event.remaining_iterations, strict=True))

    def _finished(self, event: JobFinished) -> None:
        self._progress(event.job_id, 0.0)

    def _preempted(self, event: JobPreempted) -> None:
        self._progress(event.job_id, event.remaining_iterations)
        self._leave(event.job_id, event.time_s)

    def _lost(self, event: WorkerLost) -> None:
        for group_id in [group_id for group_id, share in self._groups.items() if event.node in share.nodes]:
            self._close(group_id, event.time_s)

    def _launched(self, action: Launch) -> None:
        self._settle(action.job.job_id)
        self._remaining[action.job.job_id] = action.remaining_iterations
        share = self._groups[action.group_id]
        share.nodes |= {part.node for part in action.allotment.shares}

    def _measured(self, action: UseProfile) -> None:
        """What a job did under a guess counts as measured, too; groups keep their efficiency to the next turns."""
        for job_id in action.job_ids:
            if not action.guessed:
                self._settle(job_id)
            self._specs[job_id] = replace(self._specs[job_id], profile=action.profile)

    def _ended(self, action: RecordEnd) -> None:
        job_id = action.record.job_id
        self._settle(job_id)
        self._leave(job_id, action.time_s)
        self._specs.pop(job_id, None)
        self._remaining.pop(job_id, None)

    def _settle(self, job_id: str) -> None:
        """Counts what a job is known to have done."""
        if job_id in self._reported:
            self._progress(job_id, self._reported[job_id])

    def _progress(self, job_id: str, remaining: float) -> None:
        self._reported.pop(job_id, None)
        spec = self._specs.get(job_id)
        if spec is None:
            return
        done = self._remaining[job_id] - remaining
        self._remaining[job_id] = remaining
        self._busy_s += done * spec.profile.gpu_s * spec.num_gpu

    def _announced(self, action: SetTurns) -> None:
        group = action.group
        nodes = self._groups[group.group_id].nodes if group.group_id in self._groups else frozenset()
        self._close(group.group_id, action.time_s)
        jobs = [member.job_id for member in group.members]
        for job_id in jobs:
            former = self._group_of.get(job_id)
            if former is not None and former != group.group_id:
                self._leave(job_id, action.time_s)
            self._group_of[job_id] = group.group_id
        offsets = [member.offset for member in group.members]
        share = self._groups[group.group_id] = self._share(jobs, offsets, action.time_s)
        share.nodes = nodes

    def _share(self, jobs: list[str], offsets: Sequence[int], now_s: float) -> _Share:
        specs = [self._specs[job_id] for job_id in jobs]
        gamma = self._efficiency(tuple(spec.profile for spec in specs), tuple(offsets))
        return _Share(jobs, now_s, max(spec.num_gpu for spec in specs), gamma)

    def _leave(self, job_id: str, now_s: float) -> None:
        """A job left its group; those who stay are announced anew, and a group of nobody ends here."""
        group_id = self._group_of.pop(job_id, None)
        share = self._groups.get(group_id) if group_id is not None else None
        if group_id is not None and share is not None and job_id in share.jobs:
            self._close(group_id, now_s)
            share.jobs.remove(job_id)
            if share.jobs:
                self._groups[group_id] = share
                share.since_s = now_s

    def _close(self, group_id: int, now_s: float) -> None:
        share = self._groups.pop(group_id, None)
        if share is not None:
            gpu_s = (now_s - share.since_s) * share.num_gpu
            self._held_s += gpu_s
            self._efficient_s += gpu_s * share.gamma


def _efficiency(speed: SpeedModel, profiles: Sequence[StageProfile], offsets: Sequence[int]) -> float:
    return efficiency(profiles, speed.evaluate(profiles, offsets).cycle_s)
