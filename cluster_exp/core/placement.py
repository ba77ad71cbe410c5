"""Placement: on which nodes and GPUs the groups of a plan go.

A named strategy is a fit (how many GPUs of which nodes a group gets) and whether groups stay where they run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cluster_exp.core.placer import Placer
from cluster_exp.core.pool import BEST, COUNT, FIRST, Bytes, Ints, Pool
from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.columns import BoolColumn, IntColumn
from cluster_exp.domain.plan import Misfit


@dataclass(frozen=True, slots=True)
class Placement:
    """A named strategy; the fits are those of `core.pool`."""

    name: str
    description: str
    fit: int
    admit: int | None = None  # decides who runs, if not `fit`; then who runs stays and others wait for a place

    @property
    def admission(self) -> int:
        """The fit by which a plan's groups are chosen."""
        return self.fit if self.admit is None else self.admit


PLACEMENTS = {
    placement.name: placement
    for placement in (
        Placement("consolidated", "fullest node with room; larger on whole nodes", BEST),
        Placement("yarn", "first node with room, as published; larger on whole nodes", FIRST),
        Placement("count", "any free GPUs, nodes do not matter", COUNT),
        Placement("quota", "who runs is counted in GPUs; then as consolidated", BEST, admit=COUNT),
    )
}


def any_order_fits(placement: Placement, sizes: Collection[int], widths: Collection[int]) -> bool:
    """Whether groups that fit on the empty cluster in one order are known to do so in every order.

    They are where GPUs are counted. Else each width has to divide the next wider one and the nodes that are no
    smaller; groups wider than a node need nodes that are all alike, of which they fill whole ones.

    Args:
        placement: the strategy.
        sizes: GPUs of each node.
        widths: GPUs that groups may want.
    """
    if placement.admission == COUNT or not sizes or not widths:
        return True
    ascending = sorted(set(widths))
    if any(wider % width for width, wider in pairwise(ascending)):
        return False
    if ascending[-1] <= min(sizes):
        return all(size % ascending[-1] == 0 for size in sizes)
    size = min(sizes)
    return size == max(sizes) and all(size % width == 0 or width % size == 0 for width in ascending)


class ClusterTrial:
    """An imagined, at first empty, cluster (`domain.models.Trial`)."""

    def __init__(self, pool: Pool, fit: int) -> None:
        """Takes over a pool whose GPUs are all free."""
        self._pool = pool
        self._fit = fit

    @property
    def free_gpus(self) -> int:
        """GPUs not taken yet."""
        return self._pool.free_gpus

    def take(self, num_gpu: int) -> bool:
        """Places a group that needs `num_gpu` GPUs, or returns False and changes nothing."""
        return self._pool.take(num_gpu, self._fit)

    def take_many(self, num_gpu: IntColumn) -> BoolColumn:
        """The same for groups one after another; those that find no room are passed over."""
        taken = np.zeros(num_gpu.size, np.uint8)
        self._pool.take_many(np.ascontiguousarray(num_gpu, dtype=np.int64), self._fit, taken)
        return taken.view(np.bool_)


class Layout:
    """The nodes that are up, with their GPUs numbered through."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        """Takes the GPUs of each node, by node id."""
        self.node_ids = sorted(sizes)
        counts = [sizes[node] for node in self.node_ids]
        starts = [0, *np.cumsum(np.array(counts, dtype=np.int64)).tolist()]
        self._start = dict(zip(self.node_ids, starts, strict=False))
        self._sizes = sizes
        self._node = np.repeat(np.array(self.node_ids, dtype=np.int64), counts).tolist()
        self._gpu = [gpu for count in counts for gpu in range(count)]
        self.num_gpus = starts[-1]
        self._pool = Pool(counts)

    def pool(self) -> Pool:
        """All GPUs, free."""
        return self._pool.fresh()

    def numbers(self, allotment: Allotment) -> list[int]:
        """Numbers of an allotment's GPUs, ascending; empty when one of them is not there."""
        numbers = []
        for share in allotment.shares:
            start, size = self._start.get(share.node), self._sizes.get(share.node, 0)
            if start is None or not share.gpus or share.gpus[-1] >= size:
                return []
            numbers += [start + gpu for gpu in share.gpus]
        return numbers

    def allotment(self, numbers: Sequence[int]) -> Allotment:
        """Whole GPUs by their numbers, which ascend."""
        shares: list[NodeShare] = []
        node = -1
        gpus: list[int] = []
        for number in numbers:
            if self._node[number] != node:
                if gpus:
                    shares.append(NodeShare(node, tuple(gpus)))
                node, gpus = self._node[number], []
            gpus.append(self._gpu[number])
        shares.append(NodeShare(node, tuple(gpus)))
        return Allotment(tuple(shares))


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of the groups of a plan."""

    state: Bytes  # by group: WAITS, STAYS or PLACED
    gpus: Ints  # numbers of the GPUs of those that do not wait
    at: Ints  # those of group i are at[i] .. at[i + 1] - 1 of `gpus`

    def numbers(self, group: int) -> list[int]:
        """Numbers of the GPUs of a group that does not wait."""
        numbers: list[int] = self.gpus[self.at[group] : self.at[group + 1]].tolist()
        return numbers


def place(
    pool: Pool,
    wanted: Ints,
    place_of: Ints,
    place_on: Ints,
    place_size: Ints,
    placement: Placement,
    misfit: Misfit,
    pinned: bool,
) -> Placed:
    """Gives each group of a plan its GPUs, or lets it wait.

    Groups are admitted in the order of the plan on an empty cluster (`pinned`: beside the running ones, which stay
    where they are). Then they are placed so that as many as possible stay where they run: first all that run stay;
    if someone then finds no room, anew by width, descending, each at its present place if that is still free; if
    even that fails, in the plan's order, which is known to fit.

    Args:
        pool: all GPUs free; it is used up.
        wanted: GPUs by group, in the order of the plan.
        place_of: number of the place where (most of) the group runs now, or -1.
        place_on: by GPU, number of the place that it belongs to now, or -1.
        place_size: GPUs by place.
        placement: the strategy.
        misfit: what follows a group that does not fit.
        pinned: whether running groups may not be moved or stopped.
    """
    at = np.zeros(wanted.size + 1, np.int64)
    np.cumsum(wanted, out=at[1:])
    placed = Placed(np.zeros(wanted.size, np.uint8), np.empty(int(at[-1]), np.int64), at)
    by_size = np.argsort(-wanted, kind="stable")
    placer = Placer(pool, wanted, place_of, place_on, place_size, at, by_size, placed.state, placed.gpus)
    stop = misfit is Misfit.STOP
    if pinned:
        placer.pinned(placement.fit, stop)
        return placed
    placer.admit(placement.admission, stop)
    if placement.admit is not None:
        placer.keep_admitted(placement.fit)
    elif not (placer.keep_then_fit(placement.fit) or placer.largest_first(placement.fit)):
        placer.bind(placement.fit)
    return placed
