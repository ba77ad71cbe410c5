"""Search for the groups that serve the most weight: local moves (docs/weave.md).

Plain Python, compiled where there was a C compiler at installation (`weave_search.pxd`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster_exp.policies.weave_groups import Groups

_WIDTH = 4  # members of a group, at most
_LEAST = 1e-9  # a relative gain that is worth a move


class Search:
    """Moves that make groups worth more."""

    def __init__(self, store: "Groups") -> None:
        """Begins with the groups of a store, and changes them."""
        self.store = store

    def improve(self, rounds: int) -> None:
        """Moves, while they gain: members in, out, replaced, swapped and moved; groups taken out and refilled."""
        for _ in range(rounds):
            before = self.store.total()
            for group in range(self.store.num_groups):
                self._improve_one(group)
            self._improve_pairs()
            self._improve_wide()
            group = 0
            while group < self.store.num_groups:
                if not self._refill(group):
                    group += 1
            self.store.free = self.store.fill(self.store.free)
            self._split_all()
            if self.store.total() <= before * (1 + 1e-6):
                return

    def add_members(self) -> None:
        """Fills free GPUs, and adds waiting jobs to groups where that gains; nobody moves."""
        self.store.free = self.store.fill(self.store.free)
        again = True
        while again:
            again = False
            for group in range(self.store.num_groups):
                if self._add(group):
                    again = True
        self._split_all()

    def _gains(self, new: float, old: float) -> bool:
        return new > old + _LEAST * (1 + abs(old))

    def _add(self, group: int) -> bool:
        """Adds the waiting job that gains most."""
        return self._best_change(group, -1)

    def _best_change(self, group: int, place: int) -> bool:
        """Replaces the job at a place (-1 = none) by the waiting job that gains most, or by nobody."""
        width, old = self.store.width_of[group], self.store.worth[group]
        size = self.store.size(group)
        if place < 0 and size == _WIDTH:
            return False
        best, best_worth = -2, old
        if place >= 0 and size > 1:
            worth = self.store.hand_worth(width, self.store.pick_up(group, place, -1))
            if self._gains(worth, best_worth):
                best, best_worth = -1, worth
        for kind in range(self.store.kinds):
            queue = width * self.store.kinds + kind
            self.store.tops(queue)
            job = self.store.top[queue * _WIDTH]
            if job >= 0:
                worth = self.store.hand_worth(width, self.store.pick_up(group, place, job))
                if self._gains(worth, best_worth):
                    best, best_worth = job, worth
        if best == -2:
            return False
        leaver = self.store.group[group * _WIDTH + place] if place >= 0 else -1
        count = self.store.pick_up(group, place, best)
        worth = self.store.hand_worth(width, count)
        self.store.rewrite(group, count, worth)
        if best >= 0:
            self.store.take(best)
        if leaver >= 0:
            self.store.give_back(leaver)
        return True

    def _improve_one(self, group: int) -> None:
        again, limit = True, 8
        while again and limit > 0:
            limit -= 1
            again = self._best_change(group, -1)
            for place in range(_WIDTH):
                if self.store.group[group * _WIDTH + place] >= 0 and self._best_change(group, place):
                    again = True

    def _improve_pairs(self) -> None:
        """Swaps members of two groups of one width, or moves one over, where that gains."""
        for one in range(self.store.num_groups):
            for other in range(one + 1, self.store.num_groups):
                if self.store.width_of[one] == self.store.width_of[other]:
                    limit = 4
                    while limit > 0 and self._improve_pair(one, other):
                        limit -= 1

    def _improve_pair(self, one: int, other: int) -> bool:
        """The best swap or move between two groups."""
        width, old = self.store.width_of[one], self.store.worth[one] + self.store.worth[other]
        best, best_worth, best_i, best_k = False, old, -1, -1
        for i in range(-1, _WIDTH):
            mine = self.store.group[one * _WIDTH + i] if i >= 0 else -1
            if i >= 0 and mine < 0:
                break
            for k in range(-1, _WIDTH):
                theirs = self.store.group[other * _WIDTH + k] if k >= 0 else -1
                if k >= 0 and theirs < 0:
                    break
                if i < 0 and k < 0:
                    continue
                worth = self._exchanged(one, i, theirs)
                if worth < 0:
                    continue
                also = self._exchanged(other, k, mine)
                if also >= 0 and self._gains(worth + also, best_worth):
                    best, best_worth, best_i, best_k = True, worth + also, i, k
        if not best:
            return False
        mine = self.store.group[one * _WIDTH + best_i] if best_i >= 0 else -1
        theirs = self.store.group[other * _WIDTH + best_k] if best_k >= 0 else -1
        count = self.store.pick_up(one, best_i, theirs)
        self.store.rewrite(one, count, self.store.hand_worth(width, count))
        count = self.store.pick_up(other, best_k, mine)
        self.store.rewrite(other, count, self.store.hand_worth(width, count))
        return True

    def _exchanged(self, group: int, without: int, extra: int) -> float:
        """What a group is worth without one member and with another; -1 when it cannot be, or is nobody."""
        if without < 0 and extra >= 0 and self.store.group[group * _WIDTH + _WIDTH - 1] >= 0:
            return -1.0
        count = self.store.pick_up(group, without, extra)
        if count == 0:
            return -1.0
        return self.store.hand_worth(self.store.width_of[group], count)

    def _refill(self, group: int) -> bool:
        """Takes a group out and fills its GPUs, and the free ones, anew; True when that gained."""
        width, old, first = self.store.width_of[group], self.store.worth[group], self.store.num_groups - 1
        for i in range(_WIDTH):
            self.store.saved[i] = self.store.group[group * _WIDTH + i]
        self.store.close(group)
        free = self.store.free
        left = self.store.fill(free + self.store.widths[width])
        worth = 0.0
        for new in range(first, self.store.num_groups):
            worth += self.store.worth[new]
        if self._gains(worth, old):
            self.store.free = left
            self.store.moves += 1
            return True
        while self.store.num_groups > first:
            self.store.close(self.store.num_groups - 1)
        count = 0
        for i in range(_WIDTH):
            if self.store.saved[i] >= 0:
                self.store.hand[count] = self.store.saved[i]
                count += 1
        self.store.open(width, count, old)
        return False

    def _split_all(self) -> None:
        """Spreads groups over free GPUs, the largest gain first."""
        while True:
            best, best_set, best_gain = -1, 0, 0.0
            for group in range(self.store.num_groups):
                if self.store.widths[self.store.width_of[group]] <= self.store.free:
                    size = self.store.size(group)
                    for part in range(1, 1 << (size - 1)):  # the last member stays
                        gain = (
                            self._part_worth(group, part, 1)
                            + self._part_worth(group, part, 0)
                            - self.store.worth[group]
                        )
                        if gain > best_gain and self._gains(self.store.worth[group] + gain, self.store.worth[group]):
                            best, best_set, best_gain = group, part, gain
            if best < 0:
                return
            width = self.store.width_of[best]
            for i in range(_WIDTH):
                self.store.saved[i] = self.store.group[best * _WIDTH + i]
            count = self._collect(best_set, 0)
            worth = self.store.hand_worth(width, count)
            self.store.rewrite(best, count, worth)
            count = self._collect(best_set, 1)
            worth = self.store.hand_worth(width, count)
            self.store.open(width, count, worth)
            self.store.free -= self.store.widths[width]

    def _part_worth(self, group: int, part: int, inside: int) -> float:
        """What a group's members in a set of places, or those not in it, are worth; -1e300 when they cannot be."""
        for i in range(_WIDTH):
            self.store.saved[i] = self.store.group[group * _WIDTH + i]
        worth = self.store.hand_worth(self.store.width_of[group], self._collect(part, inside))
        return worth if worth >= 0 else -1e300

    def _collect(self, part: int, inside: int) -> int:
        """Takes in hand those saved jobs whose places are in a set, or not."""
        count = 0
        for i in range(_WIDTH):
            if self.store.saved[i] >= 0 and ((part >> i) & 1) == inside:
                self.store.hand[count] = self.store.saved[i]
                count += 1
        return count

    def _improve_wide(self) -> None:
        """Makes room for the best waiting group of each width by closing the groups that are worth least per GPU."""
        for width in range(self.store.num_widths):
            limit = 8
            while limit > 0 and self._make_room(width):
                limit -= 1

    def _make_room(self, width: int) -> bool:
        """Closes narrower groups for one wide group, and fills what is left; True when that gained."""
        if not self.store.known[width]:
            self.store.find_best(width)
        wanted = self.store.widths[width]
        if self.store.best_row[width] < 0:
            return False
        freed, lost, groups = self.store.free, 0.0, 0
        for group in range(self.store.num_groups):
            self.store.chosen[group] = 0
        while freed < wanted:
            worst, worst_density = -1, 0.0
            for group in range(self.store.num_groups):
                gpus = self.store.widths[self.store.width_of[group]]
                if not self.store.chosen[group] and gpus < wanted:
                    density = self.store.worth[group] / gpus
                    if worst < 0 or density < worst_density:
                        worst, worst_density = group, density
            if worst < 0:
                return False
            self.store.chosen[worst] = 1
            freed += self.store.widths[self.store.width_of[worst]]
            lost += self.store.worth[worst]
            groups += 1
        if groups == 0 or not self._gains(self.store.best_worth[width], lost):
            return False
        self.store.open_best(width)
        group = self.store.num_groups - 2
        while group >= 0:
            if self.store.chosen[group]:
                self.store.close(group)
            group -= 1
        self.store.free = self.store.fill(freed - wanted)
        self.store.moves += 1
        return True
