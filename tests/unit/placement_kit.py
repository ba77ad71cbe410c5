"""Placement by objects: groups with the allotments that they have, as the tests write them down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cluster_exp.core import placement as arrays
from cluster_exp.core.placement import Layout, Placement
from cluster_exp.core.placer import STAYS, WAITS
from cluster_exp.domain.allotment import Allotment
from cluster_exp.domain.plan import Misfit


@dataclass(frozen=True)
class Request:
    """One group that wants GPUs."""

    num_gpu: int
    current: Allotment | None = None


def place(
    requests: Sequence[Request], sizes: Mapping[int, int], placement: Placement, misfit: Misfit, pinned: bool
) -> list[Allotment | None]:
    """What each group gets; None = it waits."""
    layout = Layout(sizes)
    places = list(dict.fromkeys(request.current for request in requests if request.current is not None))
    on = np.full(layout.num_gpus, -1, np.int64)
    for number, allotment in enumerate(places):
        on[layout.numbers(allotment)] = number
    present = [-1 if request.current is None else places.index(request.current) for request in requests]
    placed = arrays.place(
        layout.pool(),
        np.array([request.num_gpu for request in requests], dtype=np.int64),
        np.array(present, dtype=np.int64),
        on,
        np.array([allotment.num_gpu for allotment in places], dtype=np.int64),
        placement,
        misfit,
        pinned,
    )
    for i, request in enumerate(requests):
        if placed.state[i] == STAYS:
            assert request.current is not None
            assert layout.allotment(placed.numbers(i)) == request.current
    return [None if placed.state[i] == WAITS else layout.allotment(placed.numbers(i)) for i in range(len(requests))]
