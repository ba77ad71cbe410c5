"""Jobs, patterns and groups under construction (docs/weave.md).

Plain Python, compiled where there was a C compiler at installation (`weave_groups.pxd`). Jobs are numbered so that
those of one queue (a GPU count and a kind) lie side by side, the heaviest first. A group of jobs of one GPU count is
worth its GPUs times the sum of weight times speed of its members.
"""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_WIDTH = 4  # members of a group, at most


class Groups:
    """Groups under construction, and the jobs that wait."""

    def __init__(
        self,
        gpus: int,
        widths: Ints,
        kinds: int,
        queues: Ints,
        weight: Floats,
        kept: Floats,
        tables: Ints,
        members: Ints,
        speed: Floats,
    ) -> None:
        """All jobs wait, all GPUs are free.

        Args:
            gpus: GPUs of the cluster.
            widths: the GPU counts that occur.
            kinds: most kinds of one GPU count.
            queues: first job of each queue, the queue of width w and kind k being w * kinds + k; and the end.
            weight: by job, not increasing within a queue.
            kept: by job, the share of its group's time that its costs leave.
            tables: first pattern of each width, and the end.
            members: patterns x 4, flat: kinds, ascending, -1 where there is none.
            speed: patterns x 4, flat: relative to alone.
        """
        self.free, self.num_widths, self.kinds = gpus, len(widths), kinds
        self.widths, self.queues, self.weight, self.kept = widths, queues, weight, kept
        self.tables, self.members, self.speed = tables, members, speed
        base = kinds + 1
        packed = members.reshape(-1, _WIDTH) + 1
        keys = ((packed[:, 0] * base + packed[:, 1]) * base + packed[:, 2]) * base + packed[:, 3]
        order = np.arange(len(keys), dtype=np.int64)
        for width in range(self.num_widths):
            rows = slice(tables[width], tables[width + 1])
            order[rows] = tables[width] + np.argsort(keys[rows], kind="stable")
        self.order, self.keys = order, keys[order]  # by width, ascending keys
        jobs = len(weight)
        self.queue_of = np.repeat(np.arange(len(queues) - 1), np.diff(queues))
        self.taken = np.zeros(jobs, np.uint8)
        self.head = queues[: len(queues) - 1].copy()
        self.top = np.full((len(queues) - 1) * _WIDTH, -1, np.int64)
        self.fresh = np.zeros(len(queues) - 1, np.uint8)
        self.best_row = np.full(self.num_widths, -1, np.int64)
        self.best_worth = np.zeros(self.num_widths)
        self.known = np.zeros(self.num_widths, np.uint8)
        self.num_groups = 0
        self.width_of = np.zeros(jobs + 1, np.int64)
        self.group = np.full((jobs + 1) * _WIDTH, -1, np.int64)
        self.worth = np.zeros(jobs + 1)
        self.hand = np.full(2 * _WIDTH, -1, np.int64)
        self.saved = np.full(_WIDTH, -1, np.int64)
        self.chosen = np.zeros(jobs + 1, np.uint8)
        self.moves = 0

    def total(self) -> float:
        """What all groups together are worth."""
        worth = 0.0
        for group in range(self.num_groups):
            worth += self.worth[group]
        return worth

    def size(self, group: int) -> int:
        """Members of a group."""
        count = 0
        while count < _WIDTH and self.group[group * _WIDTH + count] >= 0:
            count += 1
        return count

    def put(self, jobs: Ints) -> bool:
        """Makes a group of some waiting jobs of one width; False when no pattern or no room allows it."""
        width = self.queue_of[jobs[0]] // self.kinds
        if self.widths[width] > self.free:
            return False
        for i in range(len(jobs)):
            self.hand[i] = jobs[i]
        worth = self.hand_worth(width, len(jobs))
        if worth < 0:
            return False
        self.open(width, len(jobs), worth)
        self.free -= self.widths[width]
        return True

    def fill(self, budget: int) -> int:
        """Opens the best groups, by worth per GPU, while any fits into `budget` GPUs; returns the GPUs left."""
        while True:
            best, best_density = -1, 0.0
            for width in range(self.num_widths):
                if self.widths[width] <= budget:
                    if not self.known[width]:
                        self.find_best(width)
                    density = self.best_worth[width] / self.widths[width]
                    if self.best_row[width] >= 0 and density > best_density:
                        best, best_density = width, density
            if best < 0:
                return budget
            self.open_best(best)
            budget -= self.widths[best]

    def tops(self, queue: int) -> None:
        """The four heaviest waiting jobs of a queue."""
        if self.fresh[queue]:
            return
        job, end, found = self.head[queue], self.queues[queue + 1], 0
        while job < end and self.taken[job]:
            job += 1
        self.head[queue] = job
        while job < end and found < _WIDTH:
            if not self.taken[job]:
                self.top[queue * _WIDTH + found] = job
                found += 1
            job += 1
        while found < _WIDTH:
            self.top[queue * _WIDTH + found] = -1
            found += 1
        self.fresh[queue] = 1

    def take(self, job: int) -> None:
        """A job waits no longer."""
        queue = self.queue_of[job]
        self.taken[job] = 1
        self.fresh[queue] = 0
        self.known[queue // self.kinds] = 0

    def give_back(self, job: int) -> None:
        """A job waits again."""
        queue = self.queue_of[job]
        self.taken[job] = 0
        if job < self.head[queue]:
            self.head[queue] = job
        self.fresh[queue] = 0
        self.known[queue // self.kinds] = 0

    def find_best(self, width: int) -> None:
        """The pattern that is worth most with the heaviest waiting jobs of its kinds."""
        first = width * self.kinds
        for kind in range(self.kinds):
            self.tops(first + kind)
        best, best_worth = -1, 0.0
        for row in range(self.tables[width], self.tables[width + 1]):
            worth, kept, last, again, complete = 0.0, 1.0, -1, 0, True
            for place in range(_WIDTH):
                kind = self.members[row * _WIDTH + place]
                if kind < 0:
                    break
                again = again + 1 if kind == last else 0
                last = kind
                job = self.top[(first + kind) * _WIDTH + again]
                if job < 0:
                    complete = False
                    break
                worth += self.weight[job] * self.speed[row * _WIDTH + place]
                kept *= self.kept[job]
            if complete and worth * kept > best_worth:
                best, best_worth = row, worth * kept
        self.best_row[width], self.best_worth[width] = best, best_worth * self.widths[width]
        self.known[width] = 1

    def open_best(self, width: int) -> None:
        """Opens the group that `_find_best` found."""
        row, last, again, count = self.best_row[width], -1, 0, 0
        for place in range(_WIDTH):
            kind = self.members[row * _WIDTH + place]
            if kind < 0:
                break
            again = again + 1 if kind == last else 0
            last = kind
            queue = width * self.kinds + kind
            self.tops(queue)
            self.hand[count] = self.top[queue * _WIDTH + again]
            count += 1
        self.open(width, count, self.best_worth[width])

    def row(self, width: int, key: int) -> int:
        """The pattern of a key, or -1."""
        low, high = self.tables[width], self.tables[width + 1]
        while low < high:
            middle = (low + high) // 2
            if self.keys[middle] < key:
                low = middle + 1
            else:
                high = middle
        if low < self.tables[width + 1] and self.keys[low] == key:
            return int(self.order[low])
        return -1

    def hand_worth(self, width: int, count: int) -> float:
        """Sorts the jobs in hand; what they are worth as a group, or -1 when no pattern has their kinds."""
        hand = self.hand
        for i in range(1, count):
            job, at = hand[i], i
            while at > 0 and hand[at - 1] > job:
                hand[at] = hand[at - 1]
                at -= 1
            hand[at] = job
        first, base, key = width * self.kinds, self.kinds + 1, 0
        for i in range(_WIDTH):
            key = key * base
            if i < count:
                key += self.queue_of[hand[i]] - first + 1
        row = self.row(width, key)
        if row < 0:
            return -1.0
        worth, kept = 0.0, 1.0
        for i in range(count):
            worth += self.weight[hand[i]] * self.speed[row * _WIDTH + i]
            kept *= self.kept[hand[i]]
        return float(worth * kept * self.widths[width])

    def open(self, width: int, count: int, worth: float) -> None:
        """Makes a group of the jobs in hand, which wait."""
        group = self.num_groups
        self.num_groups += 1
        self.width_of[group] = width
        self.worth[group] = worth
        for i in range(_WIDTH):
            self.group[group * _WIDTH + i] = self.hand[i] if i < count else -1
            if i < count:
                self.take(self.hand[i])

    def close(self, group: int) -> None:
        """Takes a group apart; the last one gets its number."""
        for i in range(_WIDTH):
            job = self.group[group * _WIDTH + i]
            if job >= 0:
                self.give_back(job)
        last = self.num_groups - 1
        self.num_groups = last
        self.width_of[group], self.worth[group] = self.width_of[last], self.worth[last]
        for i in range(_WIDTH):
            self.group[group * _WIDTH + i] = self.group[last * _WIDTH + i]

    def rewrite(self, group: int, count: int, worth: float) -> None:
        """Gives a group the jobs in hand; who comes and who goes is the caller's affair."""
        self.worth[group] = worth
        self.moves += 1
        for i in range(_WIDTH):
            self.group[group * _WIDTH + i] = self.hand[i] if i < count else -1

    def pick_up(self, group: int, without: int, extra: int) -> int:
        """Takes a group's jobs in hand, without one place (-1 = none) and with one more job (-1 = none)."""
        count = 0
        for i in range(_WIDTH):
            job = self.group[group * _WIDTH + i]
            if job >= 0 and i != without:
                self.hand[count] = job
                count += 1
        if extra >= 0:
            self.hand[count] = extra
            count += 1
        return count
