"""Profiles as they were measured, and when decisions turn to them."""

import statistics
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cluster_exp.domain.actions import UseProfile
from cluster_exp.domain.events import JobArrived, Measured
from cluster_exp.domain.job import JobSpec
from cluster_exp.domain.profile import ProfileKey, StageProfile

KEPT_WINDOWS = 15  # the latest ones, of which the median counts
LEAST_WINDOWS = 3  # before a stated profile is doubted; a guess gives way to the first
OVERLAP = 1.01  # stages that sum to more than so many iterations overlap
WORTHWHILE = 0.1  # a difference below this part of an iteration changes nothing

Kind = tuple[ProfileKey, StageProfile | None]


def kind_of(spec: JobSpec) -> Kind:
    """Jobs that share measurements: those of one profile key for which the same times were stated, or none."""
    return spec.profile_key, spec.profile if spec.profiled else None


@dataclass(frozen=True, slots=True)
class Change:
    """Decisions turn from one profile to another."""

    former: StageProfile
    profile: StageProfile
    windows: int  # of which it is made
    peak_mib: float | None  # most GPU memory measured so far
    guessed: bool  # whether the former one was a guess

    def action(self, time_s: float, key: ProfileKey, job_ids: tuple[str, ...]) -> UseProfile:
        """What says so of live jobs."""
        return UseProfile(time_s, key, self.former, self.profile, self.windows, job_ids, self.peak_mib, self.guessed)


@dataclass(slots=True)
class _Windows:
    alone: deque[StageProfile] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS))
    turns: deque[StageProfile] = field(default_factory=lambda: deque(maxlen=KEPT_WINDOWS))
    peak_mib: float | None = None


class MeasuredProfiles:
    """Estimates by kind of job: medians over the latest windows, so that a few odd ones change nothing.

    Stages are best known from iterations that took turns: nothing else was on the resource, and nothing overlapped.
    The iteration alone is known from iterations alone. Where there are none of these, the one in use is stretched by
    what the stages came to be. Where stages are said to overlap, iterations alone do not show how long they are: only
    their sum, which stretches those in use.
    """

    def __init__(self) -> None:
        self._windows: dict[Kind, _Windows] = {}
        self._in_use: dict[Kind, StageProfile] = {}

    def in_use(self, spec: JobSpec) -> StageProfile | None:
        """The measured profile on which decisions about such a job rest; None = its own counts."""
        return self._in_use.get(kind_of(spec)) if self._in_use else None

    def arrived(self, event: JobArrived) -> UseProfile | None:
        """The measured profile on which decisions about an arriving job rest; None = its own counts."""
        spec = event.job
        profile = self.in_use(spec)
        if profile is None:
            return None
        windows = self._windows[kind_of(spec)]
        number = len(windows.alone) + len(windows.turns)
        change = Change(spec.profile, profile, number, windows.peak_mib, not spec.profiled)
        return change.action(event.time_s, spec.profile_key, (spec.job_id,))

    def note(self, spec: JobSpec, event: Measured) -> Change | None:
        """Takes a measurement of a job; what is to be used from now on, or None when nothing changes."""
        kind = kind_of(spec)
        windows = self._windows.setdefault(kind, _Windows())
        (windows.turns if event.turns else windows.alone).append(event.profile)
        if event.peak_gpu_mib is not None:
            windows.peak_mib = max(event.peak_gpu_mib, windows.peak_mib or 0.0)
        former = self._in_use.get(kind)
        guessed = former is None and not spec.profiled
        number = len(windows.alone) + len(windows.turns)
        if number < (1 if guessed else LEAST_WINDOWS):
            return None
        profile = _estimate(windows, former or spec.profile)
        if not guessed and not differs(profile, former or spec.profile):
            return None
        self._in_use[kind] = profile
        return Change(former or spec.profile, profile, number, windows.peak_mib, guessed)


def differs(profile: StageProfile, former: StageProfile) -> bool:
    """Whether the iteration or a stage differs by more than `WORTHWHILE` of the former iteration."""
    pairs = zip((profile.iteration_s, *profile.stages), (former.iteration_s, *former.stages), strict=True)
    return max(abs(new - old) for new, old in pairs) > WORTHWHILE * former.iteration_s


def _estimate(windows: _Windows, former: StageProfile) -> StageProfile:
    turns_known = len(windows.turns) >= LEAST_WINDOWS or not windows.alone
    if windows.alone:
        iteration_s = statistics.median(profile.iteration_s for profile in windows.alone)
    else:
        in_turns_s = statistics.median(profile.iteration_s for profile in windows.turns)
        iteration_s = former.iteration_s * in_turns_s / max(former.iteration_s, former.busy_s)
    if turns_known:
        return StageProfile(iteration_s, *_medians(profile.stages for profile in windows.turns))
    if former.busy_s > OVERLAP * former.iteration_s:
        stretch = iteration_s / former.iteration_s
        return StageProfile(iteration_s, *(stage_s * stretch for stage_s in former.stages))
    return StageProfile(iteration_s, *_medians(profile.stages for profile in windows.alone))


def _medians(rows: Iterable[tuple[float, ...]]) -> list[float]:
    return [statistics.median(column) for column in zip(*rows, strict=True)]
