"""Where jobs run now: nodes that are up, and the places that running groups have on them."""

import numpy as np

from cluster_exp.core.placement import Layout
from cluster_exp.core.pool import Ints
from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.cluster import ClusterSpec, NodeSpec


class Nodes:
    """Nodes that are up."""

    def __init__(self) -> None:
        self._specs: dict[int, NodeSpec] = {}
        self._layout: Layout | None = None
        self._cluster: ClusterSpec | None = None

    def add(self, node: int, spec: NodeSpec) -> None:
        """A node came up."""
        self._specs[node] = spec
        self._forget()

    def remove(self, node: int) -> None:
        """A node is gone."""
        self._specs.pop(node, None)
        self._forget()

    @property
    def sizes(self) -> dict[int, int]:
        """GPUs by node id, ids ascending."""
        return {node: self._specs[node].num_gpu for node in sorted(self._specs)}

    @property
    def ids(self) -> tuple[int, ...]:
        """Node ids, ascending."""
        return tuple(self.layout.node_ids)

    @property
    def cluster(self) -> ClusterSpec:
        """What there is, in the order of the ids."""
        if self._cluster is None:
            self._cluster = ClusterSpec(tuple(self._specs[node] for node in sorted(self._specs)))
        return self._cluster

    @property
    def layout(self) -> Layout:
        """The GPUs, numbered through."""
        if self._layout is None:
            self._layout = Layout(self.sizes)
        return self._layout

    def _forget(self) -> None:
        self._layout = self._cluster = None


class Places:
    """Sets of GPUs that jobs hold, by number; jobs of a group hold the same. Numbers are reused."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._layout: Layout | None = None
        self._number_of: dict[Allotment, int] = {}
        self._allotments: list[Allotment | None] = []
        self._jobs: list[int] = []  # how many hold it
        self._free: list[int] = []
        self._on = np.empty(0, np.int64)
        self._size = np.empty(0, np.int64)

    @property
    def on(self) -> Ints:
        """By GPU, in the present layout: the place that it belongs to, or -1."""
        self._settle()
        return self._on

    @property
    def size(self) -> Ints:
        """GPUs by place."""
        return self._size

    def allotment(self, place: int) -> Allotment:
        """The GPUs of a place that somebody holds."""
        allotment = self._allotments[place]
        assert allotment is not None
        return allotment

    def enter(self, allotment: Allotment) -> int:
        """A job gets these GPUs; returns the number of its place."""
        self._settle()
        place = self._number_of.get(allotment)
        if place is None:
            place = self._number(allotment)
        self._jobs[place] += 1
        return place

    def leave(self, place: int) -> None:
        """A job leaves its GPUs."""
        self._jobs[place] -= 1
        if self._jobs[place]:
            return
        allotment = self.allotment(place)
        if self._layout is self._nodes.layout:
            for gpu in self._layout.numbers(allotment):
                if self._on[gpu] == place:
                    self._on[gpu] = -1
        del self._number_of[allotment]
        self._allotments[place] = None
        self._free.append(place)

    def _number(self, allotment: Allotment) -> int:
        if not self._free:
            self._free = list(range(2 * len(self._jobs) + 15, len(self._jobs) - 1, -1))
            added = len(self._free)
            self._allotments += [None] * added
            self._jobs += [0] * added
            self._size = np.concatenate([self._size, np.zeros(added, np.int64)])
        place = self._free.pop()
        self._number_of[allotment] = place
        self._allotments[place] = allotment
        self._size[place] = allotment.num_gpu
        self._write(place, allotment)
        return place

    def _settle(self) -> None:
        """Numbers the GPUs anew after nodes came or went."""
        layout = self._nodes.layout
        if layout is not self._layout:
            self._layout = layout
            self._on = np.full(layout.num_gpus, -1, np.int64)
            for allotment, place in self._number_of.items():
                self._write(place, allotment)

    def _write(self, place: int, allotment: Allotment) -> None:
        for gpu in self._nodes.layout.numbers(allotment):
            self._on[gpu] = place
