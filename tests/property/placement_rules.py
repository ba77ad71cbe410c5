"""The rules of placement written down one by one, in dictionaries and lists: what the arrays are held to."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.plan import Misfit
from tests.unit.placement_kit import Request

Counts = dict[int, int]  # GPUs by node id
Parts = list[tuple[int, int]]  # (node id, GPUs) for one group
Fit = Callable[[Mapping[int, int], Mapping[int, int], int], Parts | None]


def _whole_nodes(free: Mapping[int, int], sizes: Mapping[int, int], num_gpu: int) -> tuple[Parts, int]:
    """Idle nodes for a group wider than a node, largest and lowest first, and how many GPUs remain to be found."""
    parts: Parts = []
    for node in sorted(sizes, key=lambda node: (-sizes[node], node)):
        if free[node] == sizes[node] <= num_gpu:
            parts.append((node, sizes[node]))
            num_gpu -= sizes[node]
            if num_gpu == 0:
                break
    return parts, num_gpu


def _spread_fit(free: Mapping[int, int], sizes: Mapping[int, int], num_gpu: int, best: bool) -> Parts | None:
    parts: Parts = []
    if num_gpu > max(sizes.values(), default=0):
        parts, num_gpu = _whole_nodes(free, sizes, num_gpu)
        if num_gpu == 0:
            return sorted(parts)
    taken = {node for node, _ in parts}
    roomy = [node for node in sizes if node not in taken and free[node] >= num_gpu]
    if not roomy:
        return None
    node = min(roomy, key=lambda node: (free[node], node)) if best else min(roomy)
    return sorted([*parts, (node, num_gpu)])


def consolidated_fit(free: Mapping[int, int], sizes: Mapping[int, int], num_gpu: int) -> Parts | None:
    """Up to a node's size: the fullest node with room. Larger: whole idle nodes, the remainder on one more."""
    return _spread_fit(free, sizes, num_gpu, best=True)


def yarn_fit(free: Mapping[int, int], sizes: Mapping[int, int], num_gpu: int) -> Parts | None:
    """Up to a node's size: the first node with room. Larger: whole idle nodes, the remainder on the first other.

    As in the simulator published with Muri (SIGCOMM'22).
    """
    for node, room in free.items():  # by node id
        if room >= num_gpu:
            return [(node, num_gpu)]
    return _spread_fit(free, sizes, num_gpu, best=False) if num_gpu > max(sizes.values(), default=0) else None


def count_fit(free: Mapping[int, int], sizes: Mapping[int, int], num_gpu: int) -> Parts | None:
    """Any free GPUs, lowest nodes first: nodes do not matter."""
    parts: Parts = []
    for node in sorted(sizes):
        if num_gpu == 0:
            break
        count = min(num_gpu, free[node])
        if count:
            parts.append((node, count))
            num_gpu -= count
    return parts if num_gpu == 0 else None


FITS: dict[str, Fit] = {
    "consolidated": consolidated_fit,
    "yarn": yarn_fit,
    "count": count_fit,
    "quota": consolidated_fit,
}
ADMISSIONS = {**FITS, "quota": count_fit}


class ClusterTrial:
    """An imagined, at first empty, cluster (`domain.models.Trial`)."""

    def __init__(self, sizes: Mapping[int, int], fit: Fit) -> None:
        self._sizes = sizes
        self._free = dict(sizes)
        self._fit = fit
        self._free_gpus = sum(sizes.values())
        self._refused: set[int] = set()  # what found no room finds none later

    @property
    def free_gpus(self) -> int:
        """GPUs not taken yet."""
        return self._free_gpus

    def take(self, num_gpu: int) -> bool:
        """Places a group that needs `num_gpu` GPUs, or returns False and changes nothing."""
        return self.take_parts(num_gpu) is not None

    def take_parts(self, num_gpu: int) -> Parts | None:
        """The same; says where."""
        if num_gpu > self._free_gpus or num_gpu in self._refused:
            return None
        parts = self._fit(self._free, self._sizes, num_gpu)
        if parts is None:
            self._refused.add(num_gpu)
            return None
        for node, count in parts:
            self._free[node] -= count
        self._free_gpus -= num_gpu
        return parts


class GpuPool:
    """GPU ids that are free, by node."""

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self.sizes = sizes
        self.free: Counts = dict(sizes)
        self._ids = {node: list(range(size)) for node, size in sizes.items()}

    def claim(self, allotment: Allotment) -> bool:
        """Takes exactly these GPUs, or returns False and changes nothing if one is taken or its node is gone."""
        for share in allotment.shares:
            ids = self._ids.get(share.node)
            if ids is None or not set(share.gpus) <= set(ids):
                return False
        for share in allotment.shares:
            for gpu in share.gpus:
                self._ids[share.node].remove(gpu)
            self.free[share.node] -= len(share.gpus)
        return True

    def take(self, parts: Parts) -> Allotment:
        """Takes the lowest free ids of each node."""
        shares = []
        for node, count in parts:
            ids = self._ids[node]
            shares.append(NodeShare(node, tuple(ids[:count])))
            del ids[:count]
            self.free[node] -= count
        return Allotment(tuple(shares))


def place(
    requests: Sequence[Request], sizes: Mapping[int, int], name: str, misfit: Misfit, pinned: bool
) -> list[Allotment | None]:
    """As `core.placement.place`, for the placement of this name."""
    fit = FITS[name]
    if pinned:
        return _place_pinned(requests, sizes, fit, misfit)
    admitted = _admit(requests, sizes, ADMISSIONS[name], misfit)
    if name == "quota":
        return _place_admitted(requests, list(admitted), sizes, fit)
    by_size = sorted(admitted, key=lambda i: -requests[i].num_gpu)
    for attempt in (_keep_then_fit, _largest_first):
        allotments = attempt(requests, sizes, fit, by_size)
        if allotments is not None:
            return [allotments.get(i) for i in range(len(requests))]
    return _bind(requests, admitted, sizes)


def _bind(
    requests: Sequence[Request], admitted: Mapping[int, Parts], sizes: Mapping[int, int]
) -> list[Allotment | None]:
    """GPU ids for groups whose nodes are settled: who runs on just these nodes keeps its GPUs."""
    pool = GpuPool(sizes)
    result: list[Allotment | None] = [None] * len(requests)
    for i, parts in admitted.items():
        current = requests[i].current
        if current is not None and current.parts == parts and pool.claim(current):
            result[i] = current
    for i, parts in admitted.items():
        if result[i] is None:
            result[i] = pool.take(parts)
    return result


def _admit(requests: Sequence[Request], sizes: Mapping[int, int], fit: Fit, misfit: Misfit) -> dict[int, Parts]:
    """Indices of the groups that fit, in order, and where they would go on the empty cluster."""
    trial = ClusterTrial(sizes, fit)
    admitted = {}
    for i, request in enumerate(requests):
        parts = trial.take_parts(request.num_gpu)
        if parts is not None:
            admitted[i] = parts
        elif misfit is Misfit.STOP or trial.free_gpus == 0:
            break
    return admitted


def _place_pinned(
    requests: Sequence[Request], sizes: Mapping[int, int], fit: Fit, misfit: Misfit
) -> list[Allotment | None]:
    pool = GpuPool(sizes)
    result: list[Allotment | None] = [None] * len(requests)
    for i, request in enumerate(requests):
        if request.current is not None and pool.claim(request.current):
            result[i] = request.current
    for i, request in enumerate(requests):
        if result[i] is None:
            parts = fit(pool.free, sizes, request.num_gpu)
            if parts is not None:
                result[i] = pool.take(parts)
            elif misfit is Misfit.STOP:
                break
    return result


def _place_admitted(
    requests: Sequence[Request], admitted: Sequence[int], sizes: Mapping[int, int], fit: Fit
) -> list[Allotment | None]:
    """Who of the admitted runs stays; the others start where there is room, or wait."""
    result: list[Allotment | None] = [None] * len(requests)
    chosen = [requests[i] for i in admitted]
    for i, allotment in zip(admitted, _place_pinned(chosen, sizes, fit, Misfit.SKIP), strict=True):
        result[i] = allotment
    return result


def _keep_then_fit(
    requests: Sequence[Request], sizes: Mapping[int, int], fit: Fit, by_size: Sequence[int]
) -> dict[int, Allotment] | None:
    """Everyone who runs stays; the others take what is left, largest first. None when one finds no room."""
    pool = GpuPool(sizes)
    result = _stay(requests, pool, by_size)
    return result if _settle(requests, pool, fit, by_size, result) else None


def _largest_first(
    requests: Sequence[Request], sizes: Mapping[int, int], fit: Fit, by_size: Sequence[int]
) -> dict[int, Allotment] | None:
    """Size by size, descending: whose place is still free stays, the others take what is left."""
    pool = GpuPool(sizes)
    result: dict[int, Allotment] = {}
    for _, same_size in groupby(by_size, key=lambda i: requests[i].num_gpu):
        members = list(same_size)
        result |= _stay(requests, pool, members)
        if not _settle(requests, pool, fit, members, result):
            return None
    return result


def _stay(requests: Sequence[Request], pool: GpuPool, indices: Sequence[int]) -> dict[int, Allotment]:
    result: dict[int, Allotment] = {}
    for i in indices:
        current = requests[i].current
        if current is not None and pool.claim(current):
            result[i] = current
    return result


def _settle(
    requests: Sequence[Request], pool: GpuPool, fit: Fit, indices: Sequence[int], result: dict[int, Allotment]
) -> bool:
    for i in indices:
        if i not in result:
            parts = fit(pool.free, pool.sizes, requests[i].num_gpu)
            if parts is None:
                return False
            result[i] = pool.take(parts)
    return True
