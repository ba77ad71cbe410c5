"""An ordinary PyTorch loop takes part without a change to its body.

    loader = interleave(loader, model, optimizer)
    for epoch in range(epochs):
        for inputs, targets in loader:  # loading: a turn on the CPU (or storage)
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)  # from here to step(): a turn on the GPU
            loss.backward()  # gradients are collected, nothing is sent
            optimizer.step()  # several ranks: a turn on the network for exchange and update

A batch is an iteration. Outside a cluster nothing changes: the loader comes back as it is. The processes of a
`DataLoader(num_workers=...)` take turns as well, one for each batch that they prefetch.
"""

import atexit
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader

from cluster_exp.domain.resources import Resource
from cluster_exp.runtime.trainer.comm.base import Communicator
from cluster_exp.runtime.trainer.comm.connect import connect
from cluster_exp.runtime.trainer.comm.gradients import GradientExchange, broadcast_state
from cluster_exp.runtime.trainer.prefetch import Prefetching
from cluster_exp.runtime.trainer.sdk import Trainer, WorkerLostError

__all__ = ["InterleavedLoader", "interleave"]

Batch = TypeVar("Batch")
_log = logging.getLogger(__name__)


def interleave(
    loader: Iterable[Batch],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    loading: Resource | Sequence[Resource] = Resource.CPU,
    trainer: Trainer | None = None,
    comm: Communicator | None = None,
) -> Iterable[Batch]:
    """The loader to use from now on; the optimizer stays the object that it is.

    With several ranks all start from rank 0's weights, and `step` first replaces the gradients by their means.

    Args:
        loader: gives the batches, usually a `torch.utils.data.DataLoader`.
        model: on its device already.
        optimizer: of the model's parameters.
        loading: what takes longest in getting a batch, Resource.STORAGE or Resource.CPU, or both of them: then a
            batch waits until both are free, and its time counts as that of the first one.
        trainer: default: `Trainer.from_env()`, closed when Python ends.
        comm: default: the other ranks as the launcher says, left when Python ends.

    Raises:
        ValueError: `loading` is something else.
        InputError, BackendMissingError, CommunicationError: as `comm.connect`.
        WorkerLostError: the worker is gone; so do the batches and `step`.
    """
    resources = (loading,) if isinstance(loading, Resource) else tuple(loading)
    if not resources or not {Resource.STORAGE, Resource.CPU}.issuperset(resources):
        raise ValueError(f"loading={loading!r}; allowed: Resource.STORAGE, Resource.CPU, or both")
    if trainer is None:
        trainer = Trainer.from_env()
        atexit.register(trainer.close)
    if comm is None:
        comm = connect()
        atexit.register(comm.shutdown)
    if trainer.identity is None and comm.size == 1:
        return loader
    prefetching: Prefetching | None = None
    if getattr(loader, "num_workers", 0) and trainer.identity is not None:
        if isinstance(loader, DataLoader):
            prefetching = Prefetching(trainer.identity, resources, loader.worker_init_fn)
            loader = prefetching.around(loader)
        else:
            _log.warning("the loader has processes of its own: they read and decode outside of this job's turns")
    if comm.size > 1:
        broadcast_state(model, comm)
    exchange = GradientExchange(model.parameters(), comm)
    return InterleavedLoader(loader, _Stages(trainer, optimizer, exchange, comm.size, resources, prefetching))


class _Stages:
    """Where in an iteration the loop is, as its loader and its optimizer show."""

    def __init__(
        self,
        trainer: Trainer,
        optimizer: torch.optim.Optimizer,
        exchange: GradientExchange,
        ranks: int,
        loading: tuple[Resource, ...],
        prefetching: Prefetching | None,
    ) -> None:
        self.trainer = trainer
        self._loading = loading
        self._prefetching = prefetching
        self._exchange = exchange
        self._ranks = ranks
        self._open: tuple[Resource, ...] = ()  # the stage under way
        self._in_iteration = False
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)

    def begin_loading(self) -> bool:
        """Another batch is wanted; false when the job is done or has to leave."""
        self.end_iteration()  # of a batch after which there was no step
        if not self.trainer.begin_iteration():
            return False
        self._enter(*self._loading)
        return True

    def loaded(self) -> None:
        """The batch is there: all that the loop does from now on is computation."""
        self._leave(None if self._prefetching is None else self._prefetching.fetched_ns())
        self._in_iteration = True
        self._enter(Resource.GPU)

    def end_iteration(self) -> None:
        """The batch is done with, if one is under way."""
        self._leave()
        if self._in_iteration:
            self._in_iteration = False
            self.trainer.end_iteration()

    def break_off(self, persistent: bool) -> None:
        """The loop was left, or there was no further batch: what is under way does not count.

        The loader then waits for its processes to end, so they must not wait for turns; `persistent` ones go on with
        the next epoch, if there is one.
        """
        self._leave()
        self._in_iteration = False
        over = self.trainer.stopped or self.trainer.remaining_iterations <= 0
        if self._prefetching is not None and (over or not persistent):
            with suppress(WorkerLostError):
                self.trainer.dismiss_helpers()

    def _before_step(self, optimizer: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Several ranks: the update follows the exchange in its turn. Else it is computation like the rest."""
        if self._ranks == 1:
            return
        if any(map(callable, (*args, *kwargs.values()))):
            raise ValueError("step() with a closure computes gradients where they should be exchanged; give it none")
        if self._open == (Resource.GPU,):
            self._leave()
            self._enter(Resource.NETWORK)
        self._exchange.exchange()

    def _after_step(self, optimizer: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.end_iteration()

    def _enter(self, *resources: Resource) -> None:
        self.trainer.enter_stage(*resources)
        self._open = resources

    def _leave(self, length_ns: int | None = None) -> None:
        if self._open:
            resources, self._open = self._open, ()
            self.trainer.leave_stage(*resources, length_ns=length_ns)


class InterleavedLoader(Generic[Batch]):
    """A loader whose batches come in turns; it has the other one's length and attributes.

    It gives no more batches when the job has done all its iterations or has to leave (`trainer.stopped`): save what
    is needed to go on, and end.
    """

    def __init__(self, loader: Iterable[Batch], stages: _Stages) -> None:
        self._loader = loader
        self._stages = stages

    @property
    def trainer(self) -> Trainer:
        """Says where to go on and whether the job has to leave."""
        return self._stages.trainer

    def __iter__(self) -> Iterator[Batch]:
        """The batches of an epoch."""
        stages = self._stages
        batches: Iterator[Batch] | None = None
        try:
            while stages.begin_loading():
                if batches is None:
                    batches = iter(self._loader)
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                stages.loaded()
                yield batch
        finally:
            stages.break_off(getattr(self._loader, "persistent_workers", False))

    def __len__(self) -> int:
        """Batches of an epoch. Raises TypeError where the loader has no length."""
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        """The loader's own attribute."""
        return getattr(self._loader, name)
