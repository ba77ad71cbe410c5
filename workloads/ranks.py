"""The processes of one job, connected as their launcher says."""

import pickle
from collections.abc import Sequence
from typing import TypeVar

import torch

from cluster_exp.runtime.trainer import comm as backends
from cluster_exp.runtime.trainer.comm import BackendMissingError, CommunicationError, InputError
from workloads.communicator import Communicator, SingleProcess

__all__ = ["BackendMissingError", "CommunicationError", "InputError", "Ranks", "connected"]
T = TypeVar("T")


class Ranks:
    """`workloads.communicator.Communicator` over a backend of the trainer SDK."""

    def __init__(self, backend: backends.Communicator) -> None:
        self._backend = backend
        self.rank, self.size = backend.rank, backend.size

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """See `Communicator`."""
        self._backend.allreduce(tensors)

    def broadcast(self, value: T) -> T:
        """See `Communicator`. The value travels pickled, between processes of one job."""
        data = bytearray(pickle.dumps(value)) if self.rank == 0 else bytearray()
        length = torch.tensor([len(data)])
        self._backend.broadcast([length])
        content = torch.frombuffer(data, dtype=torch.uint8) if self.rank == 0 else None
        if content is None:
            content = torch.empty(int(length), dtype=torch.uint8)
        self._backend.broadcast([content])
        received: T = value if self.rank == 0 else pickle.loads(content.numpy().tobytes())
        return received

    def close(self) -> None:
        """See `Communicator`."""
        self._backend.shutdown()


def connected() -> Communicator:
    """The job's ranks; a single process outside a cluster. Raises as `cluster_exp.runtime.trainer.comm.connect`."""
    backend = backends.connect()
    if backend.size > 1:
        return Ranks(backend)
    backend.shutdown()
    return SingleProcess()
