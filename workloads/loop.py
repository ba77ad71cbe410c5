"""The training loop, and the one place that touches the trainer SDK."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from cluster_exp.runtime.trainer import Resource, Trainer, WorkerLostError
from cluster_exp.runtime.trainer.comm import CommunicationError, connect
from cluster_exp.runtime.trainer.comm import Communicator as Backend
from cluster_exp.runtime.trainer.launch_folder import LaunchFolder, SupersededError
from workloads.communicator import Communicator
from workloads.errors import WorkloadError
from workloads.workload import Workload

__all__ = [
    "Backend",
    "CommunicationError",
    "LaunchFolder",
    "SupersededError",
    "Trainer",
    "Training",
    "WorkerLostError",
    "connect",
    "train",
]

_FORMAT = 1


class Training:
    """A training under way; its state is all that its later iterations depend on.

    Attributes:
        iterations: done so far, in all launches.
        loss: of the last iteration, on this rank; NaN before the first.
    """

    def __init__(
        self, workload: Workload[Any, Any], comm: Communicator, device: torch.device, run: Mapping[str, Any]
    ) -> None:
        """A training of no iterations; `run` names what must not differ when it is resumed."""
        self.workload = workload
        self.iterations = 0
        self.loss = float("nan")
        self._comm = comm
        self._device = device
        self._run = {**run, "rank": comm.rank, "world": comm.size}

    def start(self) -> None:
        """Begins anew; else `load_state_dict`."""
        self.workload.start(self._comm)

    def iterate(self, trainer: Trainer) -> None:
        """One iteration, stage by stage.

        With one process the update is part of the gpu stage and there is no network stage; with several it follows
        the exchange. Whatever a stage starts on the device ends in it.
        """
        work = self.workload
        with trainer.stage(Resource.STORAGE):
            raw = work.read()
        with trainer.stage(Resource.CPU):
            batch = work.prepare(raw)
        with trainer.stage(Resource.GPU):
            work.optimizer.zero_grad(set_to_none=True)
            loss = work.loss(batch)
            loss.backward()
            self.loss = float(loss.detach())
            if self._comm.size == 1:
                self._update()
            self._synchronise()
        if self._comm.size > 1:
            with trainer.stage(Resource.NETWORK):
                self._comm.average([tensor.grad for tensor in work.model.parameters() if tensor.grad is not None])
                self._update()
                self._synchronise()
        self.iterations += 1

    def state_dict(self) -> dict[str, Any]:
        """Everything, of this rank, between two iterations; tensors may be the live ones."""
        return {
            "format": _FORMAT,
            "run": self._run,
            "iterations": self.iterations,
            "model": self.workload.model.state_dict(),
            "optimizer": self.workload.optimizer.state_dict(),
            "random": self._random_states(),
            "workload": self.workload.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state: on a CPU, with the same number of threads, with the same bits.

        Raises:
            WorkloadError: it is the state of another training.
        """
        self._compare(state)
        self.iterations = state["iterations"]
        try:
            self.workload.model.load_state_dict(state["model"])
        except RuntimeError as error:  # of another shape: other data have other classes
            reason = " ".join(str(error).split())
            raise WorkloadError(f"weights of another model: {reason}", where="checkpoint") from error
        self.workload.optimizer.load_state_dict(state["optimizer"])
        self.workload.load_state_dict(state["workload"])
        torch.set_rng_state(state["random"]["cpu"])
        if self._device.type == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"], self._device)

    def _random_states(self) -> dict[str, torch.Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if self._device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self._device)
        return states

    def _compare(self, state: Mapping[str, Any]) -> None:
        if state.get("format") != _FORMAT:
            raise WorkloadError(f"format {state.get('format')}, and this program reads {_FORMAT}", where="checkpoint")
        for name in sorted(self._run.keys() | state["run"].keys()):
            saved, ours = state["run"].get(name), self._run.get(name)
            if saved != ours:
                raise WorkloadError(f"made with {name} {saved}, this run has {ours}", where="checkpoint")

    def _update(self) -> None:
        work = self.workload
        if work.clip_norm is not None:
            nn.utils.clip_grad_norm_(work.model.parameters(), work.clip_norm)
        work.optimizer.step()
        work.updated()

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def train(
    training: Training, trainer: Trainer, iterations: int, after: Callable[[Training], None] = lambda _: None
) -> None:
    """Trains until `iterations` are done in all, or the job has to leave; in a cluster its launcher says how many.

    `after` is called between iterations.

    Raises:
        WorkloadError: the launcher counts other iterations as done than the training does.
        WorkerLostError: the worker is gone.
    """
    if trainer.identity is not None:
        iterations = trainer.identity.iterations
        if trainer.iterations_done != training.iterations:
            raise WorkloadError(
                f"holds {training.iterations} iterations, the launcher counts {trainer.iterations_done}",
                where="checkpoint",
            )
    while training.iterations < iterations and trainer.begin_iteration():
        training.iterate(trainer)
        trainer.end_iteration()
        after(training)
