"""Where the groups of one plan go. Compiled or not, like `core.pool`."""

import numpy as np

from cluster_exp.core.pool import Bytes, Ints, Pool

# What became of a group of a plan.
WAITS = 0
STAYS = 1  # keeps the GPUs that it has
PLACED = 2  # gets other ones


class Placer:
    """Places the groups of one plan; see `core.placement.Placement` for the rules.

    A group's present place is a number from 0 on, or -1. The GPUs of a place are chained, ascending. Those that a
    group gets are at `at[group]` .. `at[group + 1] - 1` of `gpus`.
    """

    def __init__(
        self,
        pool: Pool,
        wanted: Ints,
        place_of: Ints,
        place_on: Ints,
        place_size: Ints,
        at: Ints,
        by_size: Ints,
        state: Bytes,
        gpus: Ints,
    ) -> None:
        """Nothing is placed yet.

        Args:
            pool: what there is; it is used up.
            wanted: GPUs by group, in the order of the plan.
            place_of: present place by group.
            place_on: present place by GPU, or -1.
            place_size: GPUs of each place; a place of which GPUs are missing is nobody's.
            at: where in `gpus` each group's GPUs begin; one more element than groups.
            by_size: groups from the widest to the narrowest; of equals, in the order of the plan.
            state: written: what became of each group.
            gpus: written: the GPUs of the groups that do not wait.
        """
        self.pool = pool
        self.groups = len(wanted)
        self.wanted, self.place_of, self.place_size = wanted, place_of, place_size
        self.at, self.by_size, self.state, self.gpus = at, by_size, state, gpus
        self.admitted = np.zeros(self.groups, np.uint8)
        self.first = np.full(len(place_size), -1, np.int64)
        self.following = np.empty(pool.num_gpus, np.int64)
        self.found = np.zeros(len(place_size), np.int64)
        self._chain(place_on)

    def _chain(self, place_on: Ints) -> None:
        for gpu in range(self.pool.num_gpus - 1, -1, -1):
            place = place_on[gpu]
            if place >= 0:
                self.following[gpu] = self.first[place]
                self.first[place] = gpu
                self.found[place] += 1

    def _present(self, group: int) -> int:
        """The first GPU of the group's present place, -1 when it has none that it could keep."""
        place = self.place_of[group]
        if place < 0 or self.found[place] != self.place_size[place] or self.found[place] != self.wanted[group]:
            return -1
        return int(self.first[place])

    def pinned(self, fit: int, stop: bool) -> None:
        """Who runs stays; the others take what is left, in the order of the plan."""
        for group in range(self.groups):
            self.admitted[group] = 1
            self.state[group] = WAITS
        self._rest(fit, stop)

    def admit(self, fit: int, stop: bool) -> None:
        """Chooses the groups that fit on the empty cluster, in the order of the plan."""
        pool = self.pool
        pool.clear()
        for group in range(self.groups):
            self.admitted[group] = 0
            self.state[group] = WAITS
        for group in range(self.groups):
            if pool.take(self.wanted[group], fit):
                self.admitted[group] = 1
            elif stop or pool.free_gpus == 0:
                break

    def keep_admitted(self, fit: int) -> None:
        """Who of the admitted runs stays; the others take what is left, in the order of the plan, or wait."""
        self._rest(fit, False)

    def _rest(self, fit: int, stop: bool) -> None:
        pool = self.pool
        pool.clear()
        for group in range(self.groups):
            if self.admitted[group] and self._claim(group):
                self.state[group] = STAYS
        for group in range(self.groups):
            if not self.admitted[group] or self.state[group] != WAITS:
                continue
            if self._take(group, fit):
                self.state[group] = PLACED
            elif stop:
                break

    def keep_then_fit(self, fit: int) -> bool:
        """All the admitted that run stay; the others take what is left, widest first. False: one finds no room."""
        self._forget()
        for i in range(self.groups):
            group = self.by_size[i]
            if self.admitted[group] and self._claim(group):
                self.state[group] = STAYS
        return self._settle(0, self.groups, fit)

    def largest_first(self, fit: int) -> bool:
        """Width by width: whose place is free stays, the others take what is left. False: one finds no room."""
        self._forget()
        begin = 0
        while begin < self.groups:
            end = begin
            width = self.wanted[self.by_size[begin]]
            while end < self.groups and self.wanted[self.by_size[end]] == width:
                group = self.by_size[end]
                if self.admitted[group] and self._claim(group):
                    self.state[group] = STAYS
                end += 1
            if not self._settle(begin, end, fit):
                return False
            begin = end
        return True

    def bind(self, fit: int) -> None:
        """Each of the admitted goes to the nodes on which it was admitted; who runs on just these keeps its GPUs."""
        pool = self.pool
        for turn in range(2):
            if turn == 0:
                self._forget()
            trial = pool.fresh()
            for group in range(self.groups):
                if not self.admitted[group]:
                    continue
                parts = trial.find(self.wanted[group], fit)
                trial.take_counts(parts)
                if turn == 0:
                    first = self._present(group)
                    if first >= 0 and trial.has_parts(first, self.following, parts) and self._claim(group):
                        self.state[group] = STAYS
                elif self.state[group] == WAITS:
                    for i in range(parts):
                        pool.part_node[i] = trial.part_node[i]
                        pool.part_size[i] = trial.part_size[i]
                    pool.take_gpus(parts, self.gpus, self.at[group])
                    self.state[group] = PLACED

    def _forget(self) -> None:
        self.pool.clear()
        for group in range(self.groups):
            self.state[group] = WAITS

    def _claim(self, group: int) -> bool:
        first = self._present(group)
        return first >= 0 and self.pool.claim(first, self.following, self.gpus, self.at[group])

    def _take(self, group: int, fit: int) -> bool:
        parts = self.pool.find(self.wanted[group], fit)
        if parts == 0:
            return False
        self.pool.take_gpus(parts, self.gpus, self.at[group])
        return True

    def _settle(self, begin: int, end: int, fit: int) -> bool:
        for i in range(begin, end):
            group = self.by_size[i]
            if self.admitted[group] and self.state[group] == WAITS:
                if not self._take(group, fit):
                    return False
                self.state[group] = PLACED
        return True
