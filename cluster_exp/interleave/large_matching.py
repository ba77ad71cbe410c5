"""Matchings of many nodes of which no two are alike: not exact, but with a bound on what they may lack."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster_exp.domain.columns import FloatColumn, IntColumn

MOST_NODES = 3_000  # that are matched at once; an assignment of so many takes a few seconds
_GAIN = 1e-12  # a swap that gains less is none

Weights = NDArray[np.float64]  # nodes x nodes, symmetric, nothing below 0


@dataclass(frozen=True, slots=True)
class BoundedMatching:
    """A matching and what no matching exceeds."""

    first: IntColumn  # one end of each pair
    second: IntColumn  # the other, larger than the first
    weight: float
    upper_bound: float

    @property
    def gap(self) -> float:
        """What the weight may lack of the largest, as a part of the bound."""
        return 0.0 if self.upper_bound <= 0 else max(0.0, 1.0 - self.weight / self.upper_bound)


def bounded_matching(weights: Weights) -> BoundedMatching:
    """A matching of nearly the largest weight, not necessarily perfect.

    An optimal assignment of the nodes to one another weighs at least twice what a matching can (each pair of a
    matching is a cycle of two): half of it is the bound. Its longer cycles are taken apart into pairs; what is left
    over is paired in the same way; then pairs swap partners while that gains. More than MOST_NODES nodes are matched
    in parts, and the bound is half of what all nodes would have with the partners that they like best.

    Args:
        weights: weight of each pair; that of a node with itself is ignored.
    """
    weights = weights.copy()
    np.fill_diagonal(weights, 0.0)
    nodes = weights.shape[0]
    if nodes == 0:
        none = np.empty(0, np.int64)
        return BoundedMatching(none, none, 0.0, 0.0)
    mate = np.full(nodes, -1, np.int64)
    bound = 0.0
    for begin in range(0, nodes, MOST_NODES):
        part = np.arange(begin, min(begin + MOST_NODES, nodes))
        inside = weights[np.ix_(part, part)]
        found, bound = _matched(inside)
        mate[part[found >= 0]] = part[found[found >= 0]]
    if nodes > MOST_NODES:
        bound = float(weights.max(axis=1).sum()) / 2
    first = np.flatnonzero(mate > np.arange(nodes))
    second = mate[first]
    return BoundedMatching(first, second, float(weights[first, second].sum()), bound)


def _matched(weights: Weights) -> tuple[IntColumn, float]:
    """The partner of each node, -1 for none, and the bound."""
    from scipy.optimize import linear_sum_assignment  # takes a while to import, and is seldom needed

    nodes = weights.shape[0]
    mate = np.full(nodes, -1, np.int64)
    bound = 0.0
    left = np.arange(nodes)
    while left.size > 1:
        inside = weights[np.ix_(left, left)]
        rows, columns = linear_sum_assignment(inside, maximize=True)
        if left.size == nodes:
            bound = float(inside[rows, columns].sum()) / 2
        if not _take_apart(columns, inside, left, mate):
            break
        left = left[mate[left] < 0]
    _swap(weights, mate)
    return mate, bound


def _take_apart(follows: IntColumn, weights: Weights, names: IntColumn, mate: IntColumn) -> bool:
    """Pairs the nodes along the cycles of an assignment; False when that pairs nobody."""
    done = np.zeros(follows.size, dtype=bool)
    paired = False
    for start in range(follows.size):
        cycle = []
        node = start
        while not done[node]:
            done[node] = True
            cycle.append(node)
            node = int(follows[node])
        for one, other in _pairs_of(np.array(cycle, dtype=np.int64), weights):
            mate[names[one]], mate[names[other]] = names[other], names[one]
            paired = True
    return paired


def _pairs_of(cycle: IntColumn, weights: Weights) -> list[tuple[int, int]]:
    """The heaviest pairs of neighbours in a cycle that share no node."""
    length = cycle.size
    if length < 2:
        return []
    edges = weights[cycle, np.roll(cycle, -1)]
    # Without the edges from and to one node an odd cycle is a path that has just one perfect matching.
    starts = [0, 1] if length % 2 == 0 else range(length)
    options = [np.arange(start, start + length - 1, 2) % length for start in starts]
    best = max(options, key=lambda option: float(edges[option].sum()))
    return [(int(cycle[i]), int(cycle[(i + 1) % length])) for i in best.tolist() if edges[i] > 0]


def _swap(weights: Weights, mate: IntColumn) -> None:
    """Two pairs swap partners while that gains, the best swaps first."""
    while True:
        first = np.flatnonzero(mate > np.arange(mate.size))
        if first.size < 2:
            return
        second = mate[first]
        present: FloatColumn = weights[first, second]
        straight = weights[np.ix_(first, first)] + weights[np.ix_(second, second)]
        crossed = weights[np.ix_(first, second)] + weights[np.ix_(second, first)]
        gain = np.maximum(straight, crossed) - present[:, np.newaxis] - present
        np.fill_diagonal(gain, 0.0)
        partner = gain.argmax(axis=1)
        best = gain[np.arange(first.size), partner]
        used = np.zeros(first.size, dtype=bool)
        for i in np.argsort(-best, kind="stable").tolist():
            j = int(partner[i])
            if best[i] <= _GAIN:
                break
            if used[i] or used[j]:
                continue
            used[i] = used[j] = True
            a, b, c, d = first[i], second[i], first[j], second[j]
            if straight[i, j] < crossed[i, j]:
                c, d = d, c
            mate[a], mate[c], mate[b], mate[d] = c, a, d, b
        if not used.any():
            return
