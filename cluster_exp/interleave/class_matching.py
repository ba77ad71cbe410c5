"""Maximum-weight matching of things of a few classes: its cost depends on the classes, not on how many there are.

Nodes of one class are interchangeable, so a matching is given by how many pairs there are of each pair of classes:
a b-matching. Its linear programme (each class's nodes are used at most once, a pair within a class uses two) can
only be fractional through odd sets. An odd-set constraint (of classes with 2 n + 1 nodes, at most n pairs lie within
them) cuts such a solution off; all of them together describe the integer solutions (Edmonds 1965; Schrijver,
Combinatorial Optimization, section 31.3). So a solution in integers, once found, has the largest weight.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import highspy
import numpy as np
from highspy import _Highs  # type: ignore[attr-defined]  # the stubs leave it out
from numpy.typing import NDArray

from cluster_exp.interleave.matching import Pair, max_weight_matching
from cluster_exp.interleave.simplex import MOST_CLASSES, Programme, compiled

_WHOLE = 1e-6  # a solution of the linear programme this close to an integer is one
_CUT_BY = 1e-7  # least violation of an odd-set constraint that is worth a cut
_TOLERANCE = 1e-10  # of the linear programme
_OPTIONS: tuple[tuple[str, bool | int | float | str], ...] = (
    ("output_flag", False),
    ("presolve", "off"),
    ("threads", 1),
    ("primal_feasibility_tolerance", _TOLERANCE),
    ("dual_feasibility_tolerance", _TOLERANCE),
)


class ClassMatcher:
    """Solves one instance after another; it remembers none."""

    def __init__(self) -> None:
        # The class below highspy.Highs: that one prints a banner and prepares for callbacks, which nobody needs here.
        self._solver = _Highs()
        for option, value in _OPTIONS:
            self._solver.setOptionValue(option, value)

    def match(self, counts: Sequence[int], weights: Mapping[Pair, float]) -> dict[Pair, int]:
        """How many pairs of each two classes a matching of the largest total weight has; what it lacks is left out.

        Not necessarily perfect: a pair is used only while it adds weight.

        Args:
            counts: nodes of each class.
            weights: weight of a pair (a, b) of classes, a <= b; (a, a) pairs two nodes of one class. What is
                missing, or not above 0, is not paired.
        """
        pairs = [
            (a, b)
            for (a, b), weight in weights.items()
            if weight > 0 and (counts[a] > 1 if a == b else counts[a] > 0 and counts[b] > 0)
        ]
        if not pairs:
            return {}
        if compiled() and len(counts) <= MOST_CLASSES:
            numbers = _by_simplex(counts, pairs, weights)
            if numbers is not None:
                return numbers
        programme = _Programme(self._solver, counts, pairs, np.array([weights[pair] for pair in pairs]))
        while True:
            solution = programme.solve()
            whole = np.rint(solution)
            fractional = np.flatnonzero(np.abs(solution - whole) > _WHOLE)
            if not fractional.size:
                return {pairs[k]: int(whole[k]) for k in np.flatnonzero(whole).tolist()}
            if not programme.cut(solution, fractional):
                return _one_by_one(counts, {pair: weights[pair] for pair in pairs})


def _by_simplex(
    counts: Sequence[int], pairs: Sequence[Pair], weights: Mapping[Pair, float]
) -> dict[Pair, int] | None:
    """The same by the project's own solver; None when it gives up."""
    first, second = np.array(pairs, dtype=np.int64).T.copy()
    numbers = np.zeros(len(pairs), np.int64)
    weight = np.array([weights[pair] for pair in pairs])
    if not Programme(first, second, weight, np.array(counts, dtype=np.int64)).solve(numbers):
        return None
    return {pairs[k]: int(numbers[k]) for k in np.flatnonzero(numbers).tolist()}


def _one_by_one(counts: Sequence[int], weights: Mapping[Pair, float]) -> dict[Pair, int]:
    """The same by Blossom on the nodes themselves, where no cut is found."""
    classes = [kind for kind, count in enumerate(counts) for _ in range(count)]
    edges = {
        (i, j): weights[(classes[i], classes[j])]
        for j in range(len(classes))
        for i in range(j)
        if (classes[i], classes[j]) in weights
    }
    return dict(Counter((classes[i], classes[j]) for i, j in max_weight_matching(edges)))


class _Programme:
    """The linear programme of one instance; cuts are added to it."""

    def __init__(
        self, solver: highspy.Highs, counts: Sequence[int], pairs: Sequence[Pair], weights: NDArray[np.float64]
    ) -> None:
        self._counts = counts
        self._pairs = pairs
        self._first, self._second = np.array(pairs).T
        self._solver = solver
        self._solver.passModel(self._model(weights))

    def _model(self, weights: NDArray[np.float64]) -> highspy.HighsLp:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._pairs), len(self._counts)
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_ = weights
        model.col_lower_ = np.zeros(len(self._pairs))
        model.col_upper_ = np.full(len(self._pairs), np.inf)
        model.row_lower_ = np.full(len(self._counts), -np.inf)
        model.row_upper_ = np.array(self._counts, dtype=np.float64)
        within = self._first == self._second
        ends = np.stack([self._first, self._second], axis=1).ravel()
        factors = np.where(np.repeat(within, 2), 2.0, 1.0)
        kept = np.ones(ends.size, dtype=bool)
        kept[1::2] = ~within
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        model.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.where(within, 1, 2))])
        model.a_matrix_.index_ = ends[kept]
        model.a_matrix_.value_ = factors[kept]
        return model

    def solve(self) -> NDArray[np.float64]:
        """Pairs of each two classes, perhaps in fractions."""
        self._solver.run()
        return np.array(self._solver.getSolution().col_value)

    def cut(self, solution: NDArray[np.float64], fractional: NDArray[np.int64]) -> bool:
        """Adds the odd-set constraints that the solution violates, of the sets that it connects."""
        found = False
        for connecting in (fractional, np.flatnonzero(solution > _WHOLE)):
            for members in self._connected(connecting.tolist()):
                total = sum(self._counts[kind] for kind in members)
                if total % 2 == 0:
                    continue
                member = np.zeros(len(self._counts), dtype=bool)
                member[members] = True
                inside = np.flatnonzero(member[self._first] & member[self._second])
                if solution[inside].sum() > total // 2 + _CUT_BY:
                    ones = np.ones(inside.size)
                    self._solver.addRow(-np.inf, float(total // 2), inside.size, inside.astype(np.int32), ones)
                    found = True
            if found:
                break
        return found

    def _connected(self, indices: Iterable[int]) -> list[list[int]]:
        """Sets of classes that the pairs with these indices connect."""
        leader: dict[int, int] = {}
        for k in indices:
            a, b = (_root(leader, kind) for kind in self._pairs[k])
            leader[max(a, b)] = min(a, b)
        sets: dict[int, list[int]] = {}
        for kind in sorted(leader):
            sets.setdefault(_root(leader, kind), []).append(kind)
        return list(sets.values())


def _root(leader: dict[int, int], kind: int) -> int:
    leader.setdefault(kind, kind)
    while leader[kind] != kind:
        kind = leader[kind]
    return kind
