"""What the training loop drives."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from workloads.communicator import Communicator

Raw = TypeVar("Raw")  # what comes from disk
Batch = TypeVar("Batch")  # what a forward pass needs, on the CPU


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process of a job stands."""

    rank: int
    world: int
    device: torch.device


class Workload(ABC, Generic[Raw, Batch]):
    """A model, its optimizer, where its data come from, and all that a resumed run needs of the latter.

    An iteration is read, prepare, loss, and the loop's own backward pass, exchange and update, each in the stage that
    its method names.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    clip_norm: float | None = None  # the averaged gradients' norm is cut to this

    def start(self, comm: Communicator) -> None:
        """Called once, before the first iteration of a run that resumes nothing: ranks take rank 0's weights."""
        weights = {name: value.cpu() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(comm.broadcast(weights))

    @abstractmethod
    def read(self) -> Raw:
        """Storage: the next batch as it lies on disk."""

    @abstractmethod
    def prepare(self, raw: Raw) -> Batch:
        """Cpu: decoded, augmented, tokenised or played."""

    @abstractmethod
    def loss(self, batch: Batch) -> torch.Tensor:
        """Gpu: the forward pass, to a scalar that can go backward."""

    def updated(self) -> None:
        """Called after each update of the weights, in the stage of the update."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """All that the next iterations depend on, besides the model, the optimizer and torch's own generators.

        Tensors, numbers, strings, and lists and dicts of them.
        """

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state; the model has been loaded before. Raises WorkloadError when it cannot."""
