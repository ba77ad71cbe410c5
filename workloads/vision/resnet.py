"""ResNet-18 (He et al., 2016, table 1, 18-layer), with projections where the shape changes (option B)."""

from collections.abc import Sequence

import torch
from torch import nn

WIDTHS = (64, 128, 256, 512)  # channels of conv2_x to conv5_x
_BLOCKS = 2  # in each of them


class Block(nn.Module):
    """Two 3x3 convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(batch, inputs, h, w) to (batch, outputs, h / stride, w / stride)."""
        return torch.relu(self.residual(features) + self.shortcut(features))


class ResNet18(nn.Module):
    """Takes images of any side from 32 pixels on."""

    def __init__(self, num_classes: int, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        channels = widths[0]
        for number, width in enumerate(widths):
            for position in range(_BLOCKS):
                blocks.append(Block(channels, width, stride=2 if number and not position else 1))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.classify = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 3, side, side) to (batch, classes): logits."""
        return self.classify(self.blocks(self.stem(images)).mean(dim=(2, 3)))
