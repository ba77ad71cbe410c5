"""Which sample comes when: a function of the seed, the epoch, the rank and the number of ranks, of nothing else."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from workloads.errors import WorkloadError


class Sample(NamedTuple):
    """One visit to one sample. Draws that concern it are seeded with it, so no generator has to be saved."""

    epoch: int
    number: int  # in the data set, from 0


class DataOrder:
    """A position in an endless shuffled sequence of batches.

    An epoch is one permutation of all samples. Rank r of w takes every w-th sample from the r-th on, in batches; what
    does not fill a batch on every rank is left out of that epoch.
    """

    def __init__(self, num_samples: int, batch_size: int, seed: int, rank: int = 0, world: int = 1) -> None:
        """A position at the first batch.

        Raises:
            WorkloadError: there are fewer samples than one batch on every rank needs.
        """
        if num_samples < batch_size * world:
            raise WorkloadError(
                f"{num_samples} samples, fewer than one batch of {batch_size} on each of {world} processes",
                where="data",
            )
        self.seed = seed
        self.epoch = 0
        self.batch = 0
        self._num_samples = num_samples
        self._batch_size = batch_size
        self._rank, self._world = rank, world
        self._shuffled: tuple[int, npt.NDArray[np.int64]] | None = None

    @property
    def batches_per_epoch(self) -> int:
        """Batches that each rank sees in an epoch."""
        return self._num_samples // (self._batch_size * self._world)

    def samples(self, epoch: int, batch: int) -> list[Sample]:
        """This rank's samples of a batch."""
        if self._shuffled is None or self._shuffled[0] != epoch:
            self._shuffled = epoch, np.random.default_rng([self.seed, epoch]).permutation(self._num_samples)
        mine = self._shuffled[1][self._rank :: self._world]
        chosen = mine[batch * self._batch_size : (batch + 1) * self._batch_size]
        return [Sample(epoch, int(number)) for number in chosen]

    def take(self) -> list[Sample]:
        """The samples at the position, which moves on to the next batch."""
        samples = self.samples(self.epoch, self.batch)
        self.batch += 1
        if self.batch == self.batches_per_epoch:
            self.epoch, self.batch = self.epoch + 1, 0
        return samples

    def generator(self, sample: Sample) -> np.random.Generator:
        """Randomness for one visit to one sample: the same on every rank and in every process."""
        return np.random.default_rng([self.seed, sample.epoch, sample.number])

    def state_dict(self) -> dict[str, Any]:
        """The position, and how many samples it is a position in."""
        return {"epoch": self.epoch, "batch": self.batch, "num_samples": self._num_samples}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to a saved position. Raises WorkloadError when the data set had another number of samples."""
        if state["num_samples"] != self._num_samples:
            raise WorkloadError(
                f"{self._num_samples} samples, but the checkpoint was made with {state['num_samples']}", where="data"
            )
        self.epoch, self.batch = state["epoch"], state["batch"]
