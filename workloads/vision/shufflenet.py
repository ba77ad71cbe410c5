"""ShuffleNet V2 (Ma et al., 2018, figure 3 (c) and (d), table 5)."""

from collections.abc import Sequence

import torch
from torch import nn

WIDTHS = (24, 116, 232, 464, 1024)  # channels of conv1, stages 2 to 4, conv5; the 1x column
_REPEATS = (4, 8, 4)  # units of stages 2 to 4


def _pointwise(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def _depthwise(channels: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(channels, channels, 3, stride, padding=1, groups=channels, bias=False)
    return [convolution, nn.BatchNorm2d(channels)]


class Unit(nn.Module):
    """Works on one half of the channels and passes the other half on; with a stride both halves see all channels."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.splits = stride == 1
        seen = inputs // 2 if self.splits else inputs
        self.worked = nn.Sequential(*_pointwise(seen, half), *_depthwise(half, stride), *_pointwise(half, half))
        self.passed: nn.Module = nn.Identity()
        if not self.splits:
            self.passed = nn.Sequential(*_depthwise(inputs, stride), *_pointwise(inputs, half))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(batch, inputs, h, w) to (batch, outputs, h / stride, w / stride), the two halves' channels in turn."""
        left, right = features.chunk(2, dim=1) if self.splits else (features, features)
        halves = torch.stack((self.passed(left), self.worked(right)), dim=2)
        return halves.flatten(1, 2)


class ShuffleNetV2(nn.Module):
    """Takes images of any side from 32 pixels on."""

    def __init__(self, num_classes: int, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        first, *stages, last = widths
        layers: list[nn.Module] = [
            nn.Conv2d(3, first, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(first),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        channels = first
        for width, repeats in zip(stages, _REPEATS, strict=True):
            for position in range(repeats):
                layers.append(Unit(channels, width, stride=1 if position else 2))
                channels = width
        self.features = nn.Sequential(*layers, *_pointwise(channels, last))
        self.classify = nn.Linear(last, num_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 3, side, side) to (batch, classes): logits."""
        return self.classify(self.features(images).mean(dim=(2, 3)))
