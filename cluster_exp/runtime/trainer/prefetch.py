"""Processes that prefetch for a trainer take turns too: those of a PyTorch data loader, one turn for each batch.

Such a process connects to the arbiter by itself, as a helper of its rank (`protocol/turn_wire.py`). It is granted
what its job holds, or what nobody needs (`protocol/turn_grants.py`), so the trainer holds the same resources while it
waits for a batch.
"""

import copy
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from torch.utils.data import DataLoader

from cluster_exp.domain.resources import Resource
from cluster_exp.runtime.trainer.connection import Connection
from cluster_exp.runtime.trainer.identity import Identity, greet, stage_row

__all__ = ["Prefetching"]

_UNKNOWN_ITERATION = -1  # a batch is fetched for a later iteration; a stage log says so


class Prefetching:
    """A `worker_init_fn` after which each batch that the process fetches takes a turn.

    The dataset and `collate_fn` stay what they are: the turn is around both.
    """

    def __init__(
        self, identity: Identity, resources: Sequence[Resource], then: Callable[[int], object] | None
    ) -> None:
        """`then` is the loader's own `worker_init_fn`; `resources` are what a turn locks."""
        self._identity = identity
        self._resources = tuple(resources)
        self._then = then
        self._fetched_ns = multiprocessing.get_context("spawn").Value("q", 0)  # works after fork, too
        self._connection: Connection | None = None
        self._log: TextIO | None = None

    def around(self, loader: "DataLoader[Any]") -> "DataLoader[Any]":
        """A loader like this one, whose processes take turns; the given one stays as it is."""
        mine = copy.copy(loader)
        mine.worker_init_fn = self
        return mine

    def fetched_ns(self) -> int:
        """How long batches were fetched since the last call, by all processes together, in nanoseconds."""
        with self._fetched_ns.get_lock():
            fetched_ns, self._fetched_ns.value = self._fetched_ns.value, 0
        return int(fetched_ns)

    def __call__(self, number: int) -> None:
        """Runs in a process of the loader, before it fetches anything. Raises WorkerLostError."""
        from torch.utils.data import _DatasetKind  # not public; there since data loaders have processes

        if self._then is not None:
            self._then(number)
        self._connection = Connection(self._identity.arbiter, self._identity.tls_dir)
        greet(self._connection, self._identity, turns=True, helper=os.getpid())
        if self._identity.stage_log:
            self._log = open(self._identity.stage_log, "a", 1, "utf-8")  # noqa: SIM115 - as long as the process
        create = _DatasetKind.create_fetcher

        def create_with_turns(*args: Any) -> Any:
            fetcher = create(*args)
            fetcher.fetch = self._in_turn(fetcher.fetch)
            return fetcher

        _DatasetKind.create_fetcher = create_with_turns

    def _in_turn(self, fetch: Callable[[Any], Any]) -> Callable[[Any], Any]:
        connection = self._connection
        assert connection is not None

        def fetch_in_turn(indices: Any) -> Any:
            connection.take_turn(self._resources)
            start_ns = time.monotonic_ns()
            try:
                return fetch(indices)
            finally:
                end_ns = time.monotonic_ns()
                connection.give_turn()
                with self._fetched_ns.get_lock():
                    self._fetched_ns.value += end_ns - start_ns
                if self._log is not None:
                    self._log.write(
                        stage_row(self._identity, _UNKNOWN_ITERATION, self._resources, start_ns, end_ns, True)
                    )

        return fetch_in_turn

    def __getstate__(self) -> dict[str, Any]:
        """For loaders that spawn: without what belongs to one process."""
        return {**self.__dict__, "_connection": None, "_log": None}
