"""How the processes of one job exchange gradients."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch

T = TypeVar("T")


class Communicator(Protocol):
    """One process's side. Every rank makes the same calls in the same order."""

    @property
    def rank(self) -> int:
        """This process, from 0."""
        ...

    @property
    def size(self) -> int:
        """Processes of the job."""
        ...

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Allreduce: replaces each tensor by its mean over the ranks, in place, and returns when that is done.

        Shapes and dtypes are the same on every rank. Nothing may travel before the call.
        """
        ...

    def broadcast(self, value: T) -> T:
        """Rank 0's value, on every rank; tensors in it lie on the CPU, and all of it can be pickled."""
        ...

    def close(self) -> None:
        """Leaves; no call after it."""
        ...


class SingleProcess:
    """A job of one process: there is nobody to talk to."""

    rank = 0
    size = 1

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """The mean over one rank is what it is."""

    def broadcast(self, value: T) -> T:
        """The value itself."""
        return value

    def close(self) -> None:
        """Nothing is open."""
