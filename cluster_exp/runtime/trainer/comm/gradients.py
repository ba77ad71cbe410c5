"""Gradients of a torch model: collected during the backward pass, exchanged when the caller says so."""

from collections.abc import Iterable

import torch

from cluster_exp.runtime.trainer.comm.base import Communicator
from cluster_exp.runtime.trainer.comm.fused import grouped


def broadcast_state(module: torch.nn.Module, comm: Communicator, root: int = 0) -> None:
    """Gives every rank the parameters and buffers of rank `root`. Raises CommunicationError."""
    comm.broadcast([*module.parameters(), *module.buffers()], root)


class GradientExchange:
    """The mean of a model's gradients over all ranks.

    From then on the gradients lie side by side in one flat buffer per type and device: a hook puts each there as soon
    as the backward pass has it, and `parameter.grad` is its place in the buffer. Nothing is sent before `exchange()`.
    Make it when the model is on its device, before the first backward pass.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], comm: Communicator) -> None:
        """All ranks give the same parameters in the same order; those that need no gradient are left out."""
        self._comm = comm
        self._parameters = [parameter for parameter in dict.fromkeys(parameters) if parameter.requires_grad]
        self._places: dict[torch.nn.Parameter, torch.Tensor] = {}
        self._buffers: list[torch.Tensor] = []
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        if comm.size > 1:
            self._lay_out()
            hooked = (parameter.register_post_accumulate_grad_hook(self._collect) for parameter in self._parameters)
            self._hooks = list(hooked)

    def exchange(self) -> None:
        """Replaces every gradient by its mean over all ranks; belongs into the turn on the network.

        A parameter without a gradient here counts as one with zeros: another rank may have one.

        Raises:
            CommunicationError: another rank is gone.
            ValueError: a gradient is not dense.
        """
        if self._comm.size == 1:
            return
        for parameter in self._parameters:
            self._collect(parameter)
        self._comm.allreduce(self._buffers)

    def close(self) -> None:
        """Takes the hooks off; the gradients stay where they are."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _lay_out(self) -> None:
        for group in grouped(self._parameters):
            members = [self._parameters[index] for index in group]
            sizes = [member.numel() for member in members]
            buffer = torch.zeros(sum(sizes), dtype=members[0].dtype, device=members[0].device)
            self._buffers.append(buffer)
            for member, place in zip(members, buffer.split(sizes), strict=True):
                self._places[member] = place.view(member.shape)

    def _collect(self, parameter: torch.nn.Parameter) -> None:
        place, gradient = self._places[parameter], parameter.grad
        if gradient is None:
            with torch.no_grad():
                place.zero_()
        elif gradient.layout is not torch.strided:
            raise ValueError(f"a gradient has layout {gradient.layout}; allowed: torch.strided (dense)")
        elif gradient.data_ptr() == place.data_ptr():
            return
        else:
            with torch.no_grad():
                place.copy_(gradient)
        parameter.grad = place
