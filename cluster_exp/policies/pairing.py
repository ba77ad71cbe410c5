"""Groups of one GPU count in columns, and how numbers of pairs of kinds become pairs of groups.

Plain Python, compiled where there was a C compiler at installation (`pairing.pxd`).
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
WIDTH = 4  # members that a row has room for (`MAX_GROUP_SIZE`); unused ones are -1


class Pairing:
    """Chooses which groups of two kinds to pair; that is free, as they are interchangeable."""

    def __init__(self, kind: Ints, kinds: int, home: Ints, homes: int, numbers: Ints) -> None:
        """Nothing is paired yet.

        Args:
            kind: a number from 0 on by group.
            kinds: how many of them there are.
            home: by group, a number from 0 on that groups which share GPUs now have in common, or -1.
            homes: how many of them there are.
            numbers: pairs still to be made by both kinds, kinds x kinds, in both orders; used up.
        """
        self.groups, self.kinds = len(kind), kinds
        self.kind, self.home, self.numbers = kind, home, numbers
        self.mate = np.full(self.groups, -1, np.int64)
        self.next_at_home = np.full(self.groups, -1, np.int64)
        self.at_home = np.full(homes, -1, np.int64)
        self.place = np.empty(self.groups, np.int64)  # unpaired groups, kind by kind
        self.low = np.zeros(kinds + 1, np.int64)
        self.high = np.zeros(kinds + 1, np.int64)

    def pair(self, first: Ints, second: Ints) -> int:
        """Pairs groups and writes them down by the larger index; returns how many there are.

        Those whose jobs share GPUs already go first. Of the others each, from the first on, gets the last that it may
        have, as Blossom does among equals.
        """
        self._keep_together()
        self._fill_up()
        pairs = 0
        for group in range(self.groups):
            other = self.mate[group]
            if 0 <= other < group:
                first[pairs] = other
                second[pairs] = group
                pairs += 1
        return pairs

    def _keep_together(self) -> None:
        for group in range(self.groups):
            home = self.home[group]
            if home < 0:
                continue
            before = -1
            other = self.at_home[home]
            while other >= 0 and not self.numbers[self.kind[group] * self.kinds + self.kind[other]]:
                before = other
                other = self.next_at_home[other]
            if other >= 0:
                if before < 0:
                    self.at_home[home] = self.next_at_home[other]
                else:
                    self.next_at_home[before] = self.next_at_home[other]
                self._join(other, group)
            elif before < 0:
                self.at_home[home] = group
            else:
                self.next_at_home[before] = group

    def _fill_up(self) -> None:
        self._sort_unpaired()
        for group in range(self.groups):
            if self.mate[group] >= 0:
                continue
            kind = self.kind[group]
            self.low[kind] += 1
            last = -1
            for other in range(self.kinds):
                if self.numbers[kind * self.kinds + other] and self.low[other] < self.high[other]:
                    candidate = self.place[self.high[other] - 1]
                    if candidate > last:
                        last = candidate
            if last >= 0:
                self.high[self.kind[last]] -= 1
                self._join(group, last)

    def _sort_unpaired(self) -> None:
        for group in range(self.groups):
            if self.mate[group] < 0:
                self.low[self.kind[group] + 1] += 1
        for kind in range(self.kinds):
            self.low[kind + 1] += self.low[kind]
        for kind in range(self.kinds):
            self.high[kind] = self.low[kind]
        for group in range(self.groups):
            if self.mate[group] < 0:
                kind = self.kind[group]
                self.place[self.high[kind]] = group
                self.high[kind] += 1

    def _join(self, one: int, other: int) -> None:
        self.mate[one] = other
        self.mate[other] = one
        a, b = self.kind[one], self.kind[other]
        self.numbers[a * self.kinds + b] -= 1
        if a != b:
            self.numbers[b * self.kinds + a] -= 1


def merge(pairs: int, first: Ints, second: Ints, members: Ints, profile_class: Ints) -> None:
    """Moves the members of the second group of each pair to the first; members stay sorted by profile class.

    Args:
        pairs: how many of them.
        first: index of a group.
        second: index of the other.
        members: slots, groups x WIDTH in one row, -1 where there is none.
        profile_class: by slot.
    """
    for pair in range(pairs):
        into, source = first[pair] * WIDTH, second[pair] * WIDTH
        size = 0
        while size < WIDTH and members[into + size] >= 0:
            size += 1
        for k in range(WIDTH):
            slot = members[source + k]
            if slot < 0:
                break
            at = size
            while at > 0 and profile_class[members[into + at - 1]] > profile_class[slot]:
                members[into + at] = members[into + at - 1]
                at -= 1
            members[into + at] = slot
            size += 1
