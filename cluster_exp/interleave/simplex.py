"""Matchings of a few classes by the simplex method with odd-set cuts (`class_matching` says why that is exact).

Plain Python, compiled where there was a C compiler at installation (`simplex.pxd`). Only compiled it is faster than a
library's solver, and only then it is used.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_CLASSES = 80  # the tableau is dense
_MOST_CUTS = 120
_WHOLE = 1e-6  # a number this close to an integer is one
_CUT_BY = 1e-7  # least violation of an odd-set constraint that is worth a cut
_NOTHING = 1e-11  # a reduced cost, or an entry of the tableau, this small is 0
_GAP = 1e-8  # what a solution may lack of its bound, relatively


def compiled() -> bool:
    """Whether this module was compiled."""
    return not __file__.endswith(".py")


class Programme:
    """Maximise the weight of pairs of classes, each of which has so many nodes."""

    def __init__(self, first: Ints, second: Ints, weight: Floats, counts: Ints) -> None:
        """Pairs are given by their two classes.

        Args:
            first: a class by pair.
            second: the other, which may be the same.
            weight: weight by pair.
            counts: nodes by class.
        """
        self.pairs, self.classes, self.cuts = len(first), len(counts), 0
        self.first, self.second, self.weight, self.counts = first, second, weight, counts
        rows = self.classes + _MOST_CUTS
        self.width = self.pairs + rows + 1
        self.table = np.empty((rows + 1) * self.width)
        self.basis = np.empty(rows, np.int64)
        self.solution = np.empty(self.pairs)
        self.inside = np.empty(_MOST_CUTS * self.pairs, np.uint8)
        self.cut_bound = np.empty(_MOST_CUTS, np.int64)
        self.leader = np.empty(self.classes, np.int64)

    def solve(self, numbers: Ints) -> bool:
        """Writes how often each pair is used in a matching of the largest weight.

        Returns:
            False when it gives up: no cut is found, or rounding got in the way.
        """
        while True:
            if not self._optimise():
                return False
            fractional = 0
            for pair in range(self.pairs):
                numbers[pair] = int(self.solution[pair] + 0.5)
                if abs(self.solution[pair] - numbers[pair]) > _WHOLE:
                    fractional += 1
            if fractional == 0:
                return self._holds(numbers)
            if not (self._cut(True) or self._cut(False)):
                return False

    def _fill(self) -> None:
        rows, width = self.classes + self.cuts, self.width
        for i in range((rows + 1) * width):
            self.table[i] = 0.0
        for pair in range(self.pairs):
            self.table[self.first[pair] * width + pair] += 1.0
            self.table[self.second[pair] * width + pair] += 1.0
            self.table[rows * width + pair] = -self.weight[pair]
            for cut in range(self.cuts):
                if self.inside[cut * self.pairs + pair]:
                    self.table[(self.classes + cut) * width + pair] = 1.0
        for row in range(rows):
            self.basis[row] = self.pairs + row
            self.table[row * width + self.pairs + row] = 1.0
            bound = self.counts[row] if row < self.classes else self.cut_bound[row - self.classes]
            self.table[row * width + width - 1] = bound

    def _optimise(self) -> bool:
        """The simplex method from the empty matching on; False when it does not end."""
        self._fill()
        rows = self.classes + self.cuts
        limit = 50 * (rows + self.pairs)
        for step in range(limit):
            column = self._entering(rows, step > limit // 2)
            if column < 0:
                break
            row = self._leaving(rows, column)
            if row < 0:
                return False
            self._pivot(rows, row, column)
        else:
            return False
        for pair in range(self.pairs):
            self.solution[pair] = 0.0
        for row in range(rows):
            if self.basis[row] < self.pairs:
                self.solution[self.basis[row]] = self.table[row * self.width + self.width - 1]
        return True

    def _entering(self, rows: int, careful: bool) -> int:
        """The column that gains most; `careful`: the first that gains (Bland's rule, which cannot go in circles)."""
        at = rows * self.width
        best = -_NOTHING
        chosen = -1
        for column in range(self.pairs + rows):
            if self.table[at + column] < best:
                chosen = column
                if careful:
                    break
                best = self.table[at + column]
        return chosen

    def _leaving(self, rows: int, column: int) -> int:
        chosen = -1
        least = 0.0
        for row in range(rows):
            entry = self.table[row * self.width + column]
            if entry > _NOTHING:
                ratio = self.table[row * self.width + self.width - 1] / entry
                if chosen < 0 or ratio < least or (ratio == least and self.basis[row] < self.basis[chosen]):
                    chosen = row
                    least = ratio
        return chosen

    def _pivot(self, rows: int, row: int, column: int) -> None:
        width, at = self.width, row * self.width
        used = self.pairs + rows
        scale = 1.0 / self.table[at + column]
        for k in range(used):
            self.table[at + k] *= scale
        self.table[at + width - 1] *= scale
        for other in range(rows + 1):
            factor = self.table[other * width + column]
            if other == row or factor == 0.0:
                continue
            for k in range(used):
                self.table[other * width + k] -= factor * self.table[at + k]
            self.table[other * width + width - 1] -= factor * self.table[at + width - 1]
            self.table[other * width + column] = 0.0
        self.basis[row] = column

    def _holds(self, numbers: Ints) -> bool:
        """Whether the whole numbers use no node twice, and weigh what the dual solution allows at most."""
        rows = self.classes + self.cuts
        dual = rows * self.width + self.pairs
        gain = 0.0
        bound = 0.0
        for kind in range(self.classes):
            left = self.counts[kind]
            for pair in range(self.pairs):
                if self.first[pair] == kind:
                    left -= numbers[pair]
                if self.second[pair] == kind:
                    left -= numbers[pair]
            if left < 0:
                return False
            bound += self.table[dual + kind] * self.counts[kind]
        for cut in range(self.cuts):
            bound += self.table[dual + self.classes + cut] * self.cut_bound[cut]
        for pair in range(self.pairs):
            gain += self.weight[pair] * numbers[pair]
            price = self.table[dual + self.first[pair]] + self.table[dual + self.second[pair]]
            for cut in range(self.cuts):
                if self.inside[cut * self.pairs + pair]:
                    price += self.table[dual + self.classes + cut]
            if price < self.weight[pair] - _GAP * abs(self.weight[pair]) - _GAP:
                return False
        return bool(abs(bound - gain) <= _GAP * bound + _GAP)

    def _cut(self, fractional: bool) -> bool:
        """Adds the odd-set constraints that are violated, of the sets that (fractional) pairs in use connect."""
        self._connect(fractional)
        found = False
        for kind in range(self.classes):
            if self.leader[kind] != kind:
                continue
            total = 0
            for other in range(kind, self.classes):
                if self.leader[other] == kind:
                    total += self.counts[other]
            if total % 2 == 0:
                continue
            load = 0.0
            for pair in range(self.pairs):
                if self.leader[self.first[pair]] == kind and self.leader[self.second[pair]] == kind:
                    load += self.solution[pair]
            if load > total // 2 + _CUT_BY:
                if self.cuts == _MOST_CUTS:
                    return False
                for pair in range(self.pairs):
                    within = self.leader[self.first[pair]] == kind and self.leader[self.second[pair]] == kind
                    self.inside[self.cuts * self.pairs + pair] = within
                self.cut_bound[self.cuts] = total // 2
                self.cuts += 1
                found = True
        return found

    def _connect(self, fractional: bool) -> None:
        """Gives each class the first of the classes that it is connected with; -1 when it is with none."""
        for kind in range(self.classes):
            self.leader[kind] = -1
        changed = True
        while changed:
            changed = False
            for pair in range(self.pairs):
                value = self.solution[pair]
                if value <= _WHOLE or (fractional and abs(value - int(value + 0.5)) <= _WHOLE):
                    continue
                a, b = self.first[pair], self.second[pair]
                one, other = self.leader[a], self.leader[b]
                lowest = min(a if one < 0 else one, b if other < 0 else other)
                if one != lowest:
                    self.leader[a] = lowest
                    changed = True
                if other != lowest:
                    self.leader[b] = lowest
                    changed = True
