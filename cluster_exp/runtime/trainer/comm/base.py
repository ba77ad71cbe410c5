"""What a backend has to do, and how it fails."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cluster_exp.domain.errors import InputError

if TYPE_CHECKING:
    import torch

BACKENDS = ("none", "horovod", "torch")
DEFAULT_TIMEOUT_S = 60.0


class CommunicationError(RuntimeError):
    """An exchange failed: a rank is gone, or the ranks do not ask for the same. This job cannot go on."""


class BackendMissingError(ImportError):
    """A backend was named whose package is not installed or cannot be imported."""


class Communicator(Protocol):
    """One rank's end of the exchange.

    All ranks make the same calls in the same order, with tensors of the same shapes and types in the same order.
    A call returns when the exchange is over, on a GPU too. Each of them raises CommunicationError within the time
    limit when another rank is gone; nothing but `shutdown` can be called after that.
    """

    @property
    def rank(self) -> int:
        """This process among the job's, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many processes the job has."""
        ...

    @property
    def local_rank(self) -> int:
        """This process among those of the job on its node, from 0."""
        ...

    def allreduce(self, tensors: "Sequence[torch.Tensor]") -> None:
        """Replaces each tensor by its mean over all ranks.

        Tensors of one type and device travel together, in one buffer, in the order given. The same tensors give the
        same bits in every run.

        Raises:
            CommunicationError: see above.
            ValueError: a tensor is neither of a floating-point type nor dense.
        """
        ...

    def broadcast(self, tensors: "Sequence[torch.Tensor]", root: int = 0) -> None:
        """Replaces each tensor by that of rank `root`; all types are allowed.

        Raises:
            CommunicationError: see above.
            ValueError: there is no rank `root`, or a tensor is not dense.
        """
        ...

    def barrier(self) -> None:
        """Returns when all ranks have called it. Raises CommunicationError: see above."""
        ...

    def shutdown(self) -> None:
        """Hangs up; waits for a rank that is gone no longer than the time limit. A second call does nothing."""
        ...


def check_backend(name: str, where: str = "--comm") -> str:
    """Returns `name`. Raises InputError when there is no such backend; `where` names the option or variable."""
    if name not in BACKENDS:
        raise InputError(f"unknown backend {name!r}; allowed: {', '.join(BACKENDS)}", where=where)
    return name


class Alone:
    """The backend `none`: a job of one process; every call returns at once."""

    rank = 0
    size = 1
    local_rank = 0

    def allreduce(self, tensors: "Sequence[torch.Tensor]") -> None:
        """The mean over one rank: the tensors stay."""

    def broadcast(self, tensors: "Sequence[torch.Tensor]", root: int = 0) -> None:
        """Raises ValueError when `root` is not 0."""
        if root != 0:
            raise ValueError(f"no rank {root} to broadcast from; this job has 1")

    def barrier(self) -> None:
        """Nobody else is there."""

    def shutdown(self) -> None:
        """Nothing is open."""
