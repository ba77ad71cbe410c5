"""Patterns: which kinds of jobs can share the same GPUs, how fast each then runs, and what a kind's time is worth."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from scipy.optimize import linprog

from cluster_exp.domain.columns import FloatColumn, IntColumn
from cluster_exp.domain.models import SpeedModel
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import MAX_GROUP_SIZE
from cluster_exp.interleave.fitting import WORTHLESS

MOST_ENUMERATED = 16  # kinds of which every multiset is a pattern
_KEPT = 3  # of more kinds: patterns by kind and size that are extended to larger ones


@dataclass(frozen=True)
class Patterns:
    """Multisets of 1 to 4 kinds. Kinds are indices into the profiles that they were made of."""

    members: IntColumn  # patterns x 4: kinds, ascending; unused places -1, at the end
    speed: FloatColumn  # patterns x 4: iterations alone in the time of one iteration in the group, at most 1
    prices: FloatColumn  # by kind: GPU time per second alone when all kinds are served alike, in (0, 1]


def make_patterns(speed: SpeedModel, profiles: Sequence[StageProfile], largest: int = MAX_GROUP_SIZE) -> Patterns:
    """The patterns of some kinds of jobs.

    Up to `MOST_ENUMERATED` kinds all multisets count. Of more, a pattern of three or four is made of those of one
    less that serve the most: the 3 best of each kind.

    Args:
        speed: how fast groups run.
        profiles: one a kind, at least one.
        largest: members of a pattern.
    """
    kinds = np.arange(len(profiles))
    level = kinds[:, np.newaxis]
    served = np.zeros(kinds.size)
    blocks, speeds = [], []
    for size in range(1, largest + 1):
        if size > 1:
            level = _enumerated(len(profiles), size) if kinds.size <= MOST_ENUMERATED else _extended(level, served)
        relative = _relative(speed, profiles, level)
        can_be = relative.max(axis=1, initial=0.0) > WORTHLESS
        level, relative = level[can_be], relative[can_be]
        served = relative.sum(axis=1)
        blocks.append(np.pad(level, ((0, 0), (0, MAX_GROUP_SIZE - size)), constant_values=-1))
        speeds.append(np.pad(relative, ((0, 0), (0, MAX_GROUP_SIZE - size))))
    members, relative = np.concatenate(blocks), np.concatenate(speeds)
    return Patterns(members, relative, _prices(members, relative, len(profiles)))


def _enumerated(kinds: int, size: int) -> IntColumn:
    return np.array(list(combinations_with_replacement(range(kinds), size)), dtype=np.int64)


def _extended(level: IntColumn, served: FloatColumn) -> IntColumn:
    """Each kind's best patterns with one more kind."""
    kinds = int(level.max(initial=-1)) + 1
    best = np.argsort(-served, kind="stable")
    kept = np.zeros(len(level), dtype=bool)
    for kind in range(kinds):
        of_kind = best[(level[best] == kind).any(axis=1)]
        kept[of_kind[:_KEPT]] = True
    rows = level[kept]
    grown = np.concatenate(
        [np.repeat(rows, kinds, axis=0), np.tile(np.arange(kinds), len(rows))[:, np.newaxis]], axis=1
    )
    return np.unique(np.sort(grown, axis=1), axis=0)


def _relative(speed: SpeedModel, profiles: Sequence[StageProfile], members: IntColumn) -> FloatColumn:
    """Speed of each member relative to alone; of equal members the faster one first."""
    alone_s = np.array([speed.alone_s(profile) for profile in profiles])
    relative: FloatColumn = np.minimum(alone_s[members] / speed.iterations_s(profiles, members), 1.0)
    for place in range(members.shape[1] - 1, 0, -1):  # members of one kind lie side by side
        for i in range(place):
            swap = (members[:, i] == members[:, i + 1]) & (relative[:, i] < relative[:, i + 1])
            relative[swap, i], relative[swap, i + 1] = relative[swap, i + 1], relative[swap, i]
    return relative


def _prices(members: IntColumn, relative: FloatColumn, kinds: int) -> FloatColumn:
    """What a second alone of each kind costs in GPU time, when all kinds get the same and share as well as they can.

    The dual values of: least time of patterns so that each kind is served one second. Where several duals are
    optimal it is the solver's.
    """
    served = np.zeros((kinds, len(members)))
    for place in range(members.shape[1]):
        used = np.flatnonzero(members[:, place] >= 0)
        np.add.at(served, (members[used, place], used), relative[used, place])
    found = linprog(np.ones(len(members)), A_ub=-served, b_ub=-np.ones(kinds), method="highs")
    prices: FloatColumn = np.clip(-found.ineqlin.marginals, 1e-3, 1.0)
    return prices
