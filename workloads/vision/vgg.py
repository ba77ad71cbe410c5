"""VGG (Simonyan and Zisserman, 2015, table 1, columns D and E): 3x3 convolutions only, then three linear layers."""

from collections.abc import Sequence

import torch
from torch import nn

DEPTHS = {"vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}  # convolutions before each pooling
WIDTHS = (64, 128, 256, 512, 512)  # channels of them
HIDDEN = 4096  # units of the linear layers
_LAST_DEVIATION = 0.01  # of the last layer's first weights: all classes begin about as likely
_REDUCTION = 32  # five poolings halve the sides


class Vgg(nn.Module):
    """Takes images of `pixels` x `pixels`; sides that 32 does not divide lose the rest."""

    def __init__(
        self,
        depths: Sequence[int],
        num_classes: int,
        pixels: int = 224,
        widths: Sequence[int] = WIDTHS,
        hidden: int = HIDDEN,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for depth, width in zip(depths, widths, strict=True):
            for _ in range(depth):
                layers += [nn.Conv2d(channels, width, kernel_size=3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.convolutions = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * (pixels // _REDUCTION) ** 2, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, num_classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.head[-1].weight, std=_LAST_DEVIATION)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 3, pixels, pixels) to (batch, classes): logits."""
        return self.head(self.convolutions(images))
