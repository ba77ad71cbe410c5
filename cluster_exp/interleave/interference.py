"""How much jobs on the same GPUs slow one another down, learnt from what was observed (docs/interference.md).

The slow-down of a member is the time of its iteration over what taking turns alone would give. Its logarithm, above
one half, is the prior's for the group's size, plus what groups of that size show beyond it, plus the mean over the
partners of: how sensitive the member's kind is, how much the partner's kind presses, and what this very pair shows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_exp.domain.resources import MAX_GROUP_SIZE
from cluster_exp.interleave.contention import Contention

Floats = NDArray[np.float64]

_BELOW = 0.5  # slow-downs are taken by the logarithm of what they exceed this by
_RIDGE = 1.0  # observations that the prior counts as, for each kind
_RIDGE_OF_SIZE = 0.1  # for each size of groups
_RIDGE_OF_PAIR = 2.0  # for each pair of kinds
_MOST_PAIRS = 600
_SURE = 3.0  # observations of a cell after which one of them can surprise
_WILD = 0.9  # more than this no single observation counts as surprising
_TYPICAL = 0.08  # residuals beyond this count less (Huber)
_STEPS = 6  # of reweighting
_MOST = 50.0  # observations of a cell that count: older ones are forgotten
_NOISE = 0.3  # standard deviation of one observation, before any are there


def as_seen(slowdown: Floats | float) -> Floats:
    """Slow-downs on the scale on which effects add up."""
    seen: Floats = np.log(np.maximum(slowdown, 1.0) - _BELOW)
    return seen


def as_slowdown(seen: Floats) -> Floats:
    """The inverse; at least 1."""
    slowdown: Floats = np.maximum(np.exp(seen) + _BELOW, 1.0)
    return slowdown


@dataclass(slots=True)
class _Cell:
    """What was observed of one kind in one company."""

    weight: float = 0.0  # observations, as far as they count
    mean: float = 0.0  # of the excess over the prior


@dataclass(frozen=True)
class Effects:
    """What was learnt, as it stands at one moment: the excess over the prior."""

    prior: Contention
    sizes: Floats  # of groups of 1, 2, 3 and 4 members
    pairs: Floats  # kinds x kinds: of a member of the row's kind beside a partner of the column's
    deviation: Floats  # the same: standard deviation of size and pair together, in a group of two

    def slowdowns(self, kinds: NDArray[np.int64]) -> Floats:
        """Slow-down of each member of many groups.

        Args:
            kinds: groups x members; -1 = a kind that nothing is known of.
        """
        size = kinds.shape[1]
        if size == 1:
            return np.ones(kinds.shape)
        known = kinds >= 0
        index = np.where(known, kinds, 0)
        seen = np.full(kinds.shape, float(as_seen(self.prior.factor(size))) + self.sizes[size - 1])
        if self.pairs.size:
            for i in range(size):
                for j in range(size):
                    if i != j:
                        effect = self.pairs[index[:, i], index[:, j]] / (size - 1)
                        seen[:, i] += np.where(known[:, i] & known[:, j], effect, 0.0)
        return as_slowdown(seen)


@dataclass
class Interference:
    """Learns; its state is what `state` says."""

    prior: Contention
    _cells: dict[tuple[int, tuple[int, ...]], _Cell] = field(default_factory=dict)
    observations: int = 0

    def observe(self, kind: int, partners: Sequence[int], slowdown: float) -> None:
        """Takes one observation.

        Args:
            kind: of the member.
            partners: kinds of the others in its group, at least one.
            slowdown: its time per iteration over what turns alone would give.
        """
        excess = float(as_seen(slowdown)) - float(as_seen(self.prior.factor(len(partners) + 1)))
        cell = self._cells.setdefault((kind, tuple(sorted(partners))), _Cell())
        news = excess - cell.mean
        if cell.weight >= _SURE:
            news = min(max(news, -_WILD), _WILD)
        cell.weight = min(cell.weight + 1.0, _MOST)
        cell.mean += news / cell.weight
        self.observations += 1

    def effects(self, kinds: int) -> Effects:
        """What follows for so many kinds: those that were never seen are the prior's."""
        sizes, pairs = np.zeros(MAX_GROUP_SIZE), np.zeros((kinds, kinds))
        if not self._cells:
            return Effects(self.prior, sizes, pairs, np.full((kinds, kinds), _NOISE))
        layout = _Layout.of(kinds, self._cells)
        design = np.array([layout.row(kind, partners) for kind, partners in self._cells])
        weight = np.array([cell.weight for cell in self._cells.values()])
        mean = np.array([cell.mean for cell in self._cells.values()])
        fitted, inverse, spread = _fit(design, weight, mean, layout.ridge)
        sizes[:] = fitted[:MAX_GROUP_SIZE]
        deviation = np.empty((kinds, kinds))
        for a in range(kinds):
            for b in range(kinds):
                at = layout.columns(a, b)
                pairs[a, b] = fitted[at].sum()
                at = [1, *at]
                deviation[a, b] = spread * np.sqrt(max(0.0, float(inverse[np.ix_(at, at)].sum())))
        return Effects(self.prior, sizes, pairs, deviation)

    def state(self) -> dict[str, Any]:
        """Everything that was learnt, as JSON values."""
        cells = [[kind, list(partners), cell.weight, cell.mean] for (kind, partners), cell in self._cells.items()]
        return {"prior": self.prior.name, "observations": self.observations, "cells": cells}

    @classmethod
    def restored(cls, state: Mapping[str, Any], prior: Contention) -> "Interference":
        """What `state` gave. Raises ValueError when it was learnt over another prior."""
        if state["prior"] != prior.name:
            raise ValueError(f"learnt over the prior {state['prior']!r}, this one is {prior.name!r}")
        learnt = cls(prior)
        learnt.observations = int(state["observations"])
        for kind, partners, weight, mean in state["cells"]:
            learnt._cells[int(kind), tuple(partners)] = _Cell(float(weight), float(mean))
        return learnt


@dataclass(frozen=True)
class _Layout:
    """Columns of the regression: sizes, how sensitive each kind is, how much each presses, pairs that were seen."""

    kinds: int
    pairs: dict[tuple[int, int], int]  # column of a pair

    @classmethod
    def of(cls, kinds: int, cells: Mapping[tuple[int, tuple[int, ...]], _Cell]) -> "_Layout":
        """The columns for some observations; of very many pairs, those seen most."""
        seen: dict[tuple[int, int], float] = {}
        for (kind, partners), cell in cells.items():
            for partner in partners:
                seen[kind, partner] = seen.get((kind, partner), 0.0) + cell.weight
        most = sorted(seen, key=lambda pair: (-seen[pair], pair))[:_MOST_PAIRS]
        first = MAX_GROUP_SIZE + 2 * kinds
        return cls(kinds, {pair: first + i for i, pair in enumerate(most)})

    @property
    def ridge(self) -> Floats:
        """Observations that the prior counts as, by column."""
        return np.concatenate(
            [
                np.full(MAX_GROUP_SIZE, _RIDGE_OF_SIZE),
                np.full(2 * self.kinds, _RIDGE),
                np.full(len(self.pairs), _RIDGE_OF_PAIR),
            ]
        )

    def columns(self, kind: int, partner: int) -> list[int]:
        """Those of a member beside one partner."""
        pair = self.pairs.get((kind, partner))
        shared = [MAX_GROUP_SIZE + kind, MAX_GROUP_SIZE + self.kinds + partner]
        return shared if pair is None else [*shared, pair]

    def row(self, kind: int, partners: Sequence[int]) -> Floats:
        """A member's row: each partner counts for its part of the company."""
        row = np.zeros(MAX_GROUP_SIZE + 2 * self.kinds + len(self.pairs))
        row[len(partners)] = 1.0
        for partner in partners:
            row[self.columns(kind, partner)] += 1.0 / len(partners)
        return row


def _fit(design: Floats, weight: Floats, mean: Floats, ridge: Floats) -> tuple[Floats, Floats, float]:
    """Effects, the inverse of their precision, and the spread of the residuals: ridge regression, made robust."""
    robust = np.ones(len(mean))
    for _ in range(_STEPS):
        used = design * (weight * robust)[:, np.newaxis]
        precision = used.T @ design + np.diag(ridge)
        fitted: Floats = np.linalg.solve(precision, used.T @ mean).astype(np.float64)
        residual = np.abs(mean - design @ fitted)
        robust = _TYPICAL / np.maximum(residual, _TYPICAL)
    inverse: Floats = np.linalg.inv(precision).astype(np.float64)
    total = float(weight.sum())
    spread = float(np.sqrt(((weight * residual**2).sum() + _NOISE**2) / (total + 1.0)))
    return fitted, inverse, spread
