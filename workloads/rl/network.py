"""The network of both agents (Mnih et al., 2015, methods, model architecture), and its copy that plays."""

import copy

import torch
from torch import nn

from workloads.rl.atari import SIDE, STACK

_LAYERS = ((8, 4), (4, 2), (3, 1))  # kernel and stride of the convolutions
WIDTHS = {"full": (32, 64, 64), "small": (16, 32, 32), "tiny": (4, 8, 8)}  # channels of them
HIDDEN = {"full": 512, "small": 256, "tiny": 32}


class AtariNetwork(nn.Module):
    """Frames to `outputs` numbers."""

    def __init__(self, size: str, outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels, side = STACK, SIDE
        for width, (kernel, stride) in zip(WIDTHS[size], _LAYERS, strict=True):
            layers += [nn.Conv2d(channels, width, kernel, stride), nn.ReLU(inplace=True)]
            channels, side = width, (side - kernel) // stride + 1
        hidden = HIDDEN[size]
        self.layers = nn.Sequential(
            *layers,
            nn.Flatten(),
            nn.Linear(channels * side * side, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, outputs),
        )

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """(batch, STACK, SIDE, SIDE) of bytes to (batch, outputs)."""
        return self.layers(frames.float() / 255)


class Player:
    """The network where games are played: on the CPU. The learner's own, if that is there too, else a copy."""

    def __init__(self, learner: nn.Module, device: torch.device) -> None:
        self._copied = device.type != "cpu"
        self._network = copy.deepcopy(learner).cpu() if self._copied else learner

    def refresh(self, learner: nn.Module) -> None:
        """Takes the learner's weights."""
        if self._copied:
            self._network.load_state_dict(learner.state_dict())

    def __call__(self, frames: torch.Tensor) -> torch.Tensor:
        """The network's outputs, nothing to differentiate."""
        with torch.no_grad():
            return self._network(frames)
