"""Gradient exchange between the ranks that a worker launched."""

import pickle
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import torch

from workloads.communicator import Communicator, SingleProcess
from workloads.loop import Backend, CommunicationError, connect

__all__ = ["CommunicationError", "LaunchedRanks", "launched"]

T = TypeVar("T")


def launched() -> Communicator:
    """The other ranks as the launcher's environment names them; a single process outside a cluster.

    Raises:
        BackendMissingError: the backend's package is not installed.
        CommunicationError: a rank did not come.
        InputError: the environment contradicts itself.
    """
    backend = connect()
    return SingleProcess() if backend.size == 1 else LaunchedRanks(backend)


class LaunchedRanks:
    """One rank of a job that workers launched."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def rank(self) -> int:
        """This process, from 0."""
        return self._backend.rank

    @property
    def size(self) -> int:
        """Processes of the job."""
        return self._backend.size

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replaces each tensor by its mean over the ranks. Raises CommunicationError when one of them is gone."""
        self._backend.allreduce(tensors)

    def broadcast(self, value: T) -> T:
        """Rank 0's value, on every rank: its length, then its bytes. Raises CommunicationError."""
        content = pickle.dumps(value) if self.rank == 0 else b""
        length = torch.tensor([len(content)], dtype=torch.int64)
        self._backend.broadcast([length])
        data = torch.zeros(int(length), dtype=torch.uint8)
        if self.rank == 0:
            data.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        self._backend.broadcast([data])
        return value if self.rank == 0 else cast(T, _unpickled(data))

    def close(self) -> None:
        """Leaves; no call after it."""
        self._backend.shutdown()


def _unpickled(data: torch.Tensor) -> Any:
    return pickle.loads(data.numpy().tobytes())  # from rank 0 of this very job
