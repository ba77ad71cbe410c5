"""What the backends with torch tensors share: tensors travel in one flat buffer per type and device."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from cluster_exp.runtime.trainer.comm.base import CommunicationError


def grouped(tensors: Sequence[torch.Tensor]) -> list[list[int]]:
    """Indices of the tensors by type and device; groups and members keep the order given."""
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(index)
    return list(groups.values())


def through_flat_buffers(tensors: Sequence[torch.Tensor], exchange: Callable[[torch.Tensor], None]) -> None:
    """Calls `exchange` with a one-dimensional buffer per type and device, and brings what it left back.

    Raises:
        ValueError: a tensor is not dense.
    """
    for index, tensor in enumerate(tensors):
        if tensor.layout is not torch.strided:
            raise ValueError(f"tensor {index} has layout {tensor.layout}; allowed: torch.strided (dense)")
    with torch.no_grad():
        for group in grouped(tensors):
            members = [tensors[index].detach() for index in group]
            if not any(member.numel() for member in members):
                continue
            if len(members) == 1 and members[0].is_contiguous():
                exchange(members[0].view(-1))
                continue
            flat = torch.cat([member.reshape(-1) for member in members])
            exchange(flat)
            parts = flat.split([member.numel() for member in members])
            for member, part in zip(members, parts, strict=True):
                member.copy_(part.view(member.shape))


class FusedCommunicator(ABC):
    """The calls of a `Communicator` by two operations on flat buffers, which a backend gives."""

    backend: str  # for messages

    def __init__(self, rank: int, size: int, local_rank: int) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = local_rank

    @abstractmethod
    def _sum(self, flat: torch.Tensor) -> None:
        """Replaces a buffer by its sum over all ranks, always in the same order of additions."""

    @abstractmethod
    def _copy_from(self, flat: torch.Tensor, root: int) -> None:
        """Replaces a buffer of bytes by that of rank `root`."""

    def allreduce(self, tensors: Sequence[torch.Tensor]) -> None:
        """See `Communicator`."""
        for index, tensor in enumerate(tensors):
            if not tensor.dtype.is_floating_point:
                raise ValueError(f"tensor {index} is of {tensor.dtype}; a mean needs a floating-point type")
        with self._failing_as("allreduce"):
            through_flat_buffers(tensors, self._mean)
            self._wait_for_devices(tensors)

    def broadcast(self, tensors: Sequence[torch.Tensor], root: int = 0) -> None:
        """See `Communicator`."""
        if not 0 <= root < self.size:
            raise ValueError(f"no rank {root} to broadcast from; this job has {self.size}")
        with self._failing_as("broadcast"):
            through_flat_buffers(tensors, lambda flat: self._copy_from(flat.view(torch.uint8), root))
            self._wait_for_devices(tensors)

    def barrier(self) -> None:
        """See `Communicator`."""
        with self._failing_as("barrier"):
            self._sum(torch.zeros(1))

    def _mean(self, flat: torch.Tensor) -> None:
        self._sum(flat)
        flat.div_(self.size)

    @contextmanager
    def _failing_as(self, what: str) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError) as error:
            place = f"rank {self.rank} of {self.size}"
            raise CommunicationError(f"{place}: {what} over {self.backend} failed: {first_words(error)}") from error

    @staticmethod
    def _wait_for_devices(tensors: Sequence[torch.Tensor]) -> None:
        for device in dict.fromkeys(tensor.device for tensor in tensors):
            if device.type == "cuda":
                torch.cuda.synchronize(device)


def first_words(error: BaseException) -> str:
    """The first two sentences of an error's first line, without the source file that Gloo puts before it."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ". ".join(re.sub(r"^\[\S+:\d+\] ", "", line).split(". ")[:2]).rstrip(".")
