"""Watches how fast members of groups really are, and keeps the speed model that follows from it."""

from collections.abc import Mapping
from dataclasses import dataclass

from cluster_exp.core.groups import RunningGroup
from cluster_exp.core.state import JobTable
from cluster_exp.domain.events import Progressed
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.contention import Contention
from cluster_exp.interleave.interference import Interference
from cluster_exp.interleave.pairwise import Learnt, PairwiseSpeed

_LEAST_ITERATIONS = 10.0  # of an observation
_MOST_ITERATIONS = 1000.0  # after so many it is taken, though the group goes on
_NEWS = 8  # observations after which the speed model is made anew, or 5 % of all, if that is more


class Unwatched:
    """Learns nothing."""

    def progressed(self, event: Progressed, jobs: JobTable, groups: Mapping[int, RunningGroup]) -> None:
        """Nothing."""

    def regrouped(self, now_s: float, group: RunningGroup, jobs: JobTable) -> None:
        """Nothing."""

    def left(self, slot: int) -> None:
        """Nothing."""

    def renewed(self) -> SpeedModel | None:
        """Never."""
        return None


UNWATCHED = Unwatched()


@dataclass(slots=True)
class _Window:
    """A stretch of one member's time in one company. Iterations are those that it still has to do."""

    since_s: float
    begun: float
    moving: bool  # it has made progress since its launch: its start is paid
    seen_s: float  # when it was heard of last
    left: float


class InterferenceWatch:
    """Turns progress into observations. Without I/O or clock: the same events give the same speed model."""

    def __init__(self, turns: SpeedModel, prior: Contention, lockstep: bool) -> None:
        """`turns` says how fast groups would be without contention."""
        self._turns = turns
        self._learnt = Interference(prior)
        self._lockstep = lockstep
        self._windows: dict[int, _Window] = {}  # by slot
        self._kinds: dict[StageProfile, int] = {}
        self._known = 0  # observations that the speed model knows of
        self.speed: SpeedModel = self._made()

    @property
    def interference(self) -> Interference:
        """What was learnt."""
        return self._learnt

    def progressed(self, event: Progressed, jobs: JobTable, groups: Mapping[int, RunningGroup]) -> None:
        """Jobs say how many iterations they still have to do; those that hold no GPUs are passed over."""
        group_of = jobs.int_column("group")
        for job_id, left in zip(event.job_ids, event.remaining_iterations, strict=True):
            slot = jobs.slot_of.get(job_id)
            if slot is not None and slot in jobs.holders:
                self._hear(event.time_s, slot, left, groups[int(group_of[slot])], jobs)

    def _hear(self, now_s: float, slot: int, left: float, group: RunningGroup, jobs: JobTable) -> None:
        window = self._windows.get(slot)
        if window is None:
            self._windows[slot] = _Window(now_s, left, False, now_s, left)
        elif not window.moving:
            moved = window.left - left > 0
            self._windows[slot] = _Window(now_s, left, moved, now_s, left)
        elif window.since_s < 0:  # its company changed since it was heard of last
            self._windows[slot] = _Window(now_s, left, True, now_s, left)
        else:
            window.seen_s, window.left = now_s, left
            if window.begun - left >= _MOST_ITERATIONS:
                self._take(slot, window, group, jobs)
                self._windows[slot] = _Window(now_s, left, True, now_s, left)

    def regrouped(self, now_s: float, group: RunningGroup, jobs: JobTable) -> None:
        """A group's members or order are about to change: what was seen until now counts."""
        for slot in group.members:
            window = self._windows.get(slot)
            if window is not None and window.moving:
                if window.since_s >= 0:
                    self._take(slot, window, group, jobs)
                since_s = now_s if window.seen_s == now_s else -1.0
                self._windows[slot] = _Window(since_s, window.left, True, window.seen_s, window.left)

    def left(self, slot: int) -> None:
        """A job left its GPUs."""
        self._windows.pop(slot, None)

    def renewed(self) -> SpeedModel | None:
        """A new speed model, if there is enough news for one."""
        news = self._learnt.observations - self._known
        if news < max(_NEWS, 0.05 * self._known):
            return None
        self.speed = self._made()
        return self.speed

    def _made(self) -> SpeedModel:
        self._known = self._learnt.observations
        effects = self._learnt.effects(len(self._kinds))
        return PairwiseSpeed(self._turns, Learnt(effects, dict(self._kinds)), self._lockstep)

    def _take(self, slot: int, window: _Window, group: RunningGroup, jobs: JobTable) -> None:
        done, took_s = window.begun - window.left, window.seen_s - window.since_s
        if len(group.members) < 2 or done < _LEAST_ITERATIONS or took_s <= 0:
            return
        slots = list(group.members)
        profiles = [jobs.live[one].spec.profile for one in slots]
        kinds = [self._kinds.setdefault(profile, len(self._kinds)) for profile in profiles]
        speed = self._turns.evaluate(profiles, list(group.members.values()))
        place = slots.index(slot)
        slowdown = took_s / done / speed.iteration_s[place]
        self._learnt.observe(kinds[place], [kind for i, kind in enumerate(kinds) if i != place], slowdown)
