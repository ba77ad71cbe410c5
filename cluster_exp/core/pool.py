"""GPUs in flat arrays: which are free, and where a group finds room.

Plain Python, and the same file compiled when a C compiler was there at installation (`pool.pxd` has the types;
docs/decisions/speed.md). Nodes are indices here, and GPUs are numbered through over the nodes, so that the GPUs of
node i are start[i] .. start[i + 1] - 1.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

# Fits: how many GPUs of which nodes a group gets.
BEST = 0  # up to a node's size on the fullest node with room; wider on idle nodes, the rest on the fullest other
FIRST = 1  # the same on the first node with room
COUNT = 2  # any free GPUs, lowest nodes first


def compiled() -> bool:
    """Whether this module was compiled."""
    return not __file__.endswith(".py")


class Pool:
    """The GPUs of the nodes that are up, some of them taken."""

    def __init__(self, sizes: Sequence[int]) -> None:
        """All GPUs free.

        Args:
            sizes: GPUs of each node.
        """
        nodes, size = np.arange(len(sizes), dtype=np.int64), np.array(sizes, dtype=np.int64)
        self.num_nodes = len(sizes)
        self.num_gpus = sum(sizes)
        self.largest = max(sizes, default=0)
        self.size = size
        self.start = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
        self.node_of = np.repeat(nodes, size)
        self.by_size = np.lexsort((nodes, -size)).astype(np.int64)
        self._allocate()
        self.clear()

    def fresh(self) -> "Pool":
        """A pool of the same nodes with all GPUs free."""
        other: Pool = Pool.__new__(Pool)
        other.num_nodes, other.num_gpus, other.largest = self.num_nodes, self.num_gpus, self.largest
        other.size, other.start, other.node_of, other.by_size = self.size, self.start, self.node_of, self.by_size
        other._allocate()
        other.clear()
        return other

    def _allocate(self) -> None:
        self.free = np.empty(self.num_nodes, np.int64)
        self.taken = np.empty(self.num_gpus, np.uint8)
        self.at_level = np.empty((self.largest + 1) * self.num_nodes, np.uint8)
        self.hint = np.empty(self.largest + 1, np.int64)
        self.nodes_at = np.empty(self.largest + 1, np.int64)
        self.refused = np.empty(self.num_gpus + 1, np.uint8)
        self.part_node = np.empty(self.num_nodes + 1, np.int64)
        self.part_size = np.empty(self.num_nodes + 1, np.int64)

    def clear(self) -> None:
        """Frees all GPUs."""
        self.free_gpus = self.num_gpus
        for gpu in range(self.num_gpus):
            self.taken[gpu] = 0
        for wanted in range(self.num_gpus + 1):
            self.refused[wanted] = 0
        for i in range((self.largest + 1) * self.num_nodes):
            self.at_level[i] = 0
        for level in range(self.largest + 1):
            self.hint[level] = self.num_nodes
            self.nodes_at[level] = 0
        for node in range(self.num_nodes - 1, -1, -1):
            self.free[node] = self.size[node]
            self.at_level[self.size[node] * self.num_nodes + node] = 1
            self.hint[self.size[node]] = node
            self.nodes_at[self.size[node]] += 1

    def _set_free(self, node: int, free: int) -> None:
        self.at_level[self.free[node] * self.num_nodes + node] = 0
        self.nodes_at[self.free[node]] -= 1
        self.nodes_at[free] += 1
        self.free_gpus += free - self.free[node]
        self.free[node] = free
        self.at_level[free * self.num_nodes + node] = 1
        if node < self.hint[free]:
            self.hint[free] = node

    def _lowest(self, level: int) -> int:
        """The first node with just so many free GPUs, `num_nodes` when there is none."""
        if self.nodes_at[level] == 0:
            return self.num_nodes
        node = self.hint[level]
        while node < self.num_nodes and not self.at_level[level * self.num_nodes + node]:
            node += 1
        self.hint[level] = node
        return int(node)

    def _roomy(self, wanted: int, fit: int) -> int:
        """The fullest, or the first, node with room, `num_nodes` when there is none."""
        first = self.num_nodes
        for level in range(wanted, self.largest + 1):
            node = self._lowest(level)
            if node < first:
                first = node
                if fit == BEST:
                    break
        return first

    def find(self, wanted: int, fit: int) -> int:
        """Finds free GPUs for a group and takes none.

        Returns:
            The number of parts, which `part_node` and `part_size` list by node; 0 when there is no room.
        """
        if wanted > self.free_gpus:
            return 0
        if fit == COUNT:
            return self._find_any(wanted)
        if wanted > self.largest:
            return self._find_wide(wanted, fit)
        node = self._roomy(wanted, fit)
        if node == self.num_nodes:
            return 0
        self.part_node[0] = node
        self.part_size[0] = wanted
        return 1

    def _find_any(self, wanted: int) -> int:
        parts = 0
        for node in range(self.num_nodes):
            if wanted == 0:
                break
            count = self.free[node] if self.free[node] < wanted else wanted
            if count > 0:
                self.part_node[parts] = node
                self.part_size[parts] = count
                parts += 1
                wanted -= count
        return parts

    def _find_wide(self, wanted: int, fit: int) -> int:
        """Idle nodes, largest and lowest first, and one more for what remains."""
        parts = 0
        for i in range(self.num_nodes):
            if wanted == 0:
                break
            node = self.by_size[i]
            if self.free[node] == self.size[node] and 0 < self.size[node] <= wanted:
                self.part_node[parts] = node
                self.part_size[parts] = self.size[node]
                parts += 1
                wanted -= self.size[node]
        if wanted > 0:
            rest = self._roomy_beside(parts, wanted, fit)
            if rest == self.num_nodes:
                return 0
            self.part_node[parts] = rest
            self.part_size[parts] = wanted
            parts += 1
        self._sort_parts(parts)
        return parts

    def _roomy_beside(self, parts: int, wanted: int, fit: int) -> int:
        """As `_roomy`, but none of the nodes in the first parts."""
        chosen = self.num_nodes
        for node in range(self.num_nodes):
            if self.free[node] < wanted:
                continue
            used = False
            for i in range(parts):
                if self.part_node[i] == node:
                    used = True
                    break
            if used:
                continue
            if chosen == self.num_nodes or (fit == BEST and self.free[node] < self.free[chosen]):
                chosen = node
        return chosen

    def _sort_parts(self, parts: int) -> None:
        for i in range(1, parts):
            node, count = self.part_node[i], self.part_size[i]
            k = i
            while k > 0 and self.part_node[k - 1] > node:
                self.part_node[k] = self.part_node[k - 1]
                self.part_size[k] = self.part_size[k - 1]
                k -= 1
            self.part_node[k] = node
            self.part_size[k] = count

    def take(self, wanted: int, fit: int) -> bool:
        """Finds room for a group and takes it, in counts; what found no room once finds none until `clear`."""
        if wanted > self.free_gpus or self.refused[wanted]:
            return False
        parts = self.find(wanted, fit)
        if parts == 0:
            self.refused[wanted] = 1
            return False
        self.take_counts(parts)
        return True

    def take_many(self, wanted: Ints, fit: int, taken: Bytes) -> None:
        """The same for several groups, in order; `taken` becomes 1 for those that found room."""
        for i in range(len(wanted)):
            if self.free_gpus == 0:
                break
            if self.take(wanted[i], fit):
                taken[i] = 1

    def take_counts(self, parts: int) -> None:
        """Takes what `find` found, without saying which GPUs of a node they are."""
        for i in range(parts):
            node = self.part_node[i]
            self._set_free(node, self.free[node] - self.part_size[i])

    def take_gpus(self, parts: int, gpus: Ints, at: int) -> None:
        """Takes what `find` found, the lowest free GPUs of each node, and writes them to `gpus` from `at` on."""
        for i in range(parts):
            node = self.part_node[i]
            left = self.part_size[i]
            gpu = self.start[node]
            while left > 0:
                if not self.taken[gpu]:
                    self.taken[gpu] = 1
                    gpus[at] = gpu
                    at += 1
                    left -= 1
                gpu += 1
            self._set_free(node, self.free[node] - self.part_size[i])

    def claim(self, first: int, following: Ints, gpus: Ints, at: int) -> bool:
        """Takes the GPUs of a chain that starts at `first` and writes them down, or takes none if one is taken."""
        gpu = first
        while gpu >= 0:
            if self.taken[gpu]:
                return False
            gpu = following[gpu]
        gpu = first
        while gpu >= 0:
            self.taken[gpu] = 1
            node = self.node_of[gpu]
            self._set_free(node, self.free[node] - 1)
            gpus[at] = gpu
            at += 1
            gpu = following[gpu]
        return True

    def has_parts(self, first: int, following: Ints, parts: int) -> bool:
        """Whether a chain has just as many GPUs of the same nodes as `find` found."""
        gpu = first
        for i in range(parts):
            for _ in range(self.part_size[i]):
                if gpu < 0 or self.node_of[gpu] != self.part_node[i]:
                    return False
                gpu = following[gpu]
        return bool(gpu < 0)
