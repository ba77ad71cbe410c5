"""Weave: who runs and who shares with whom are one decision (docs/weave.md)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.models import SpeedModel, Trial
from cluster_exp.domain.plan import GroupPlan, Plan
from cluster_exp.domain.policy import Trait
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import MAX_GROUP_SIZE
from cluster_exp.domain.snapshot import Ended, Snapshot
from cluster_exp.interleave.patterns import Patterns, make_patterns
from cluster_exp.policies.lengths import expected_left_s, survival
from cluster_exp.policies.options import FILE, SWITCH, Option, number
from cluster_exp.policies.parts import has_to_be_alone, may_share
from cluster_exp.policies.weave_problem import Problem, weights
from cluster_exp.policies.weave_search import Search

_MOST_PATTERNS = 256  # sets of kinds whose patterns are kept
_HEAD_START = 10.0  # jobs that count as to come, beside those that the rate of arrivals lets expect
_GAPS = 10  # plans over which the time between them is a mean
_FIRST_GAP_S = 300.0
_LEAST_S = 1e-3  # no remaining time, and no time between plans, is shorter
_MOST_COST = 5.0  # of a job, in gaps

Left = Callable[[Snapshot, IntColumn], FloatColumn]


def known_left_s(snapshot: Snapshot, jobs: IntColumn) -> FloatColumn:
    """Remaining time alone, in seconds."""
    return snapshot.remaining_s[jobs]


def learnt_left_s(snapshot: Snapshot, jobs: IntColumn, history: Sequence[Ended]) -> FloatColumn:
    """Remaining time alone that is to be expected, in seconds, after jobs that ended, those that last, a history."""
    served_s = snapshot.served_s[jobs]
    ended_s = np.array([ended.service_s for ended in (*history, *snapshot.ended)])
    return expected_left_s(served_s, *survival(ended_s, served_s))


@dataclass(frozen=True, slots=True)
class Past:
    """What is remembered of earlier plans."""

    now_s: float  # when the last one was made
    gap_s: float  # mean time between plans, the recent ones counting more
    since_s: float  # when the first one was made
    first: int  # jobs that had arrived then
    arrived: int  # jobs that have arrived

    @classmethod
    def of(cls, memory: Mapping[str, Any], snapshot: Snapshot) -> "Past":
        """The past as this plan leaves it."""
        seen = int(snapshot.seq[snapshot.jobs].max(initial=-1)) + 1
        now_s = snapshot.now_s
        if not memory:
            return cls(now_s, _FIRST_GAP_S, now_s, seen, seen)
        gap_s = memory["gap_s"] + (now_s - memory["now_s"] - memory["gap_s"]) / _GAPS
        arrived = max(memory["arrived"], seen)
        return cls(now_s, max(gap_s, _LEAST_S), memory["since_s"], memory["first"], arrived)

    @property
    def rate(self) -> float:
        """Arrivals per second since the first plan."""
        return (self.arrived - self.first) / max(self.now_s - self.since_s, 1.0)

    def memory(self) -> dict[str, Any]:
        """As JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True)
class Weave:
    """Maximises the weight that the groups serve (`weights`).

    Memory: `Past`.
    """

    name: str
    left: Left
    reads: frozenset[str]
    learns: bool
    priced: bool = True  # a job of a kind that is hard to share counts as longer
    rounds: int = 6  # of local search
    largest: int = MAX_GROUP_SIZE
    stay: float = 0.005  # groups that move running jobs have to be worth this much more, relatively
    plans_rates: bool = True
    traits: frozenset[Trait] = frozenset({Trait.SHARES, Trait.FLOORED})
    # Patterns by kinds, of the last speed model: results of pure functions, kept because they are dear. They decide
    # nothing.
    _patterns: dict[tuple[StageProfile, ...], Patterns] = field(default_factory=dict, repr=False, compare=False)
    _speeds: list[SpeedModel] = field(default_factory=list, repr=False, compare=False)

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """Groups by GPU count, descending."""
        past = Past.of(memory, snapshot)
        jobs = snapshot.jobs[snapshot.num_gpu[snapshot.jobs] <= snapshot.cluster.num_gpu]
        trial = snapshot.trial()
        alone = _unmeasured(snapshot, jobs, trial)
        jobs = jobs[may_share(snapshot, jobs)]
        gpus = snapshot.cluster.num_gpu - sum(int(snapshot.num_gpu[group.jobs[0]]) for group in alone)
        jobs = jobs[snapshot.num_gpu[jobs] <= gpus]
        if not jobs.size:
            return Plan(alone, memory=past.memory())
        problem = self._problem(snapshot, jobs, past)
        best = self._best(snapshot, problem, gpus)
        groups = problem.groups(best)
        widths = np.array([snapshot.num_gpu[group[0]] for group in groups], dtype=np.int64)
        order = np.argsort(-widths, kind="stable")
        fits = trial.take_many(widths[order])
        planned = alone + tuple(_planned(snapshot, groups[i]) for i in order[fits].tolist())
        worth = best.store.total()
        return Plan(planned, reason=f"jobs={jobs.size} worth={worth:.6g}", memory=past.memory())

    def _best(self, snapshot: Snapshot, problem: Problem, gpus: int) -> Search:
        """The groups that run now with more in them, unless others are worth enough more."""
        running = problem.running(snapshot, gpus)
        best = _found(problem, gpus, (), self.rounds)
        if not running:
            return best
        changed = _found(problem, gpus, running, self.rounds)
        if changed.store.total() > best.store.total():
            best = changed
        kept = _found(problem, gpus, running, 0)
        return kept if best.store.total() <= kept.store.total() * (1 + self.stay) else best

    def _problem(self, snapshot: Snapshot, jobs: IntColumn, past: Past) -> Problem:
        num_gpu, kind = snapshot.num_gpu[jobs], snapshot.profile_class[jobs]
        left_s = np.maximum(self.left(snapshot, jobs), _LEAST_S)
        tables: dict[int, Patterns] = {}
        price = np.ones(jobs.size)
        for width in np.unique(num_gpu).tolist():
            here = num_gpu == width
            kinds = np.unique(kind[here])
            tables[width] = self._patterns_of(snapshot.speed, snapshot.profiles, kinds)
            if self.priced:
                price[here] = tables[width].prices[np.searchsorted(kinds, kind[here])]
        gpus = snapshot.cluster.num_gpu
        to_come = _HEAD_START + past.rate * float((num_gpu * left_s * price).sum()) / gpus
        there = 1.0 - np.exp(-left_s / past.gap_s)  # how likely it is still there at the next plan
        cost = np.minimum(snapshot.event_cost_s[jobs] / past.gap_s * there, _MOST_COST)
        weight = weights(left_s, num_gpu, price, gpus, to_come)
        return Problem(jobs, num_gpu, kind, weight, np.exp(-cost), tables)

    def _patterns_of(self, speed: SpeedModel, profiles: Sequence[StageProfile], kinds: IntColumn) -> Patterns:
        if not (self._speeds and self._speeds[0] is speed) or len(self._patterns) >= _MOST_PATTERNS:
            self._speeds[:] = [speed]
            self._patterns.clear()
        chosen = tuple(profiles[kind] for kind in kinds.tolist())
        if chosen not in self._patterns:
            self._patterns[chosen] = make_patterns(speed, chosen, self.largest)
        return self._patterns[chosen]


def _unmeasured(snapshot: Snapshot, jobs: IntColumn, trial: Trial) -> tuple[GroupPlan, ...]:
    """Jobs whose profile is a guess, those first that run: first of all, as it takes little to measure them."""
    slots = jobs[has_to_be_alone(snapshot, jobs)]
    if not slots.size:
        return ()
    slots = slots[np.argsort(snapshot.group[slots] < 0, kind="stable")]
    fits = trial.take_many(snapshot.num_gpu[slots])
    return tuple(GroupPlan((slot,), reason="to be measured") for slot in slots[fits].tolist())


def _found(problem: Problem, gpus: int, start: Sequence[IntColumn], rounds: int) -> Search:
    """Groups that grew from some others: with more members and more groups, then changed where that gains."""
    search = problem.search(gpus)
    for group in start:
        search.store.put(group)
    search.add_members()
    search.improve(rounds)
    return search


def _planned(snapshot: Snapshot, slots: IntColumn) -> GroupPlan:
    jobs = tuple(slots.tolist())
    speed = snapshot.speed.group([snapshot.profiles[snapshot.profile_class[slot]] for slot in jobs])
    return GroupPlan(jobs, speed.offsets, f"members={len(jobs)} cycle_s={speed.cycle_s:.6g}")


OPTIONS_S: dict[str, Option] = {
    "prices": SWITCH,
    "search": number(0, "rounds"),
    "group": number(1, "members"),
    "stay": number(0, "of the worth"),
}
OPTIONS_L: dict[str, Option] = {**OPTIONS_S, "history": FILE}


def weave_s(
    name: str = "weave-s",
    prices: bool = True,
    search: float = 6,
    group: float = MAX_GROUP_SIZE,
    stay: float = 0.005,
) -> Weave:
    """The policy `weave-s`: durations known."""
    return Weave(name, known_left_s, _reads("remaining_s"), False, prices, int(search), _largest(group), stay)


def weave_l(
    name: str = "weave-l",
    prices: bool = True,
    search: float = 6,
    group: float = MAX_GROUP_SIZE,
    stay: float = 0.005,
    history: tuple[Ended, ...] = (),
) -> Weave:
    """The policy `weave-l`: durations unknown, learnt from jobs that ended in this run and from a history."""
    left = partial(learnt_left_s, history=history)
    return Weave(name, left, _reads("served_s"), True, prices, int(search), _largest(group), stay)


def _reads(length: str) -> frozenset[str]:
    return frozenset({length, "event_cost_s"})


def _largest(group: float) -> int:
    return min(int(group), MAX_GROUP_SIZE)
