"""The workload of the vision models, and their options."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from workloads.command import Program
from workloads.order import DataOrder, Sample
from workloads.vision.images import ImageFolder, augmented
from workloads.vision.resnet import ResNet18
from workloads.vision.shufflenet import ShuffleNetV2
from workloads.vision.vgg import DEPTHS, Vgg
from workloads.workload import Place, Workload

PIXELS = {"full": 224, "small": 128, "tiny": 64}
FULL_CLASSES = 1000  # the full size keeps ImageNet's outputs, however many classes the data have
_RATED_SAMPLES = 256  # for other numbers the learning rate is scaled (Goyal et al., 2017, section 2.1)
_MOMENTUM = 0.9

_VGG = {"small": ((16, 32, 64, 128, 128), 1024), "tiny": ((4, 8, 16, 16, 16), 64)}
_RESNET = {"small": (16, 32, 64, 128), "tiny": (8, 8, 16, 16)}
_SHUFFLENET = {"small": (24, 48, 96, 192, 1024), "tiny": (8, 16, 32, 64, 128)}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a vision program differs in from the others."""

    batch_size: int  # of the full size
    learning_rate: float  # at _RATED_SAMPLES an iteration
    weight_decay: float


SETTINGS = {
    "vgg16": Settings(16, 0.01, 5e-4),
    "vgg19": Settings(16, 0.01, 5e-4),
    "resnet18": Settings(128, 0.1, 1e-4),
    "shufflenet_v2_x1_0": Settings(128, 0.125, 4e-5),
}


def network(name: str, size: str, num_classes: int) -> nn.Module:
    """A model by its program's name; KeyError for any other."""
    if name == "resnet18":
        return ResNet18(num_classes) if size == "full" else ResNet18(num_classes, _RESNET[size])
    if name == "shufflenet_v2_x1_0":
        return ShuffleNetV2(num_classes) if size == "full" else ShuffleNetV2(num_classes, _SHUFFLENET[size])
    if size == "full":
        return Vgg(DEPTHS[name], num_classes)
    return Vgg(DEPTHS[name], num_classes, PIXELS[size], *_VGG[size])


class Encoded(NamedTuple):
    """An image as it lies on disk, and which visit to it this is."""

    sample: Sample
    content: bytes


class Labelled(NamedTuple):
    """Decoded images and what they show."""

    images: torch.Tensor  # (batch, 3, pixels, pixels)
    labels: torch.Tensor  # (batch,)


class Classification(Workload[list[Encoded], Labelled]):
    """Learns the classes of an ImageFolder."""

    def __init__(
        self,
        model: nn.Module,
        images: ImageFolder,
        order: DataOrder,
        pixels: int,
        learning_rate: float,
        weight_decay: float,
        device: torch.device,
    ) -> None:
        self.model = model.to(device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=learning_rate, momentum=_MOMENTUM, weight_decay=weight_decay
        )
        self._images = images
        self._order = order
        self._pixels = pixels
        self._device = device

    def read(self) -> list[Encoded]:
        """The files of the next batch."""
        return [Encoded(sample, self._images.path(sample.number).read_bytes()) for sample in self._order.take()]

    def prepare(self, raw: list[Encoded]) -> Labelled:
        """Decodes and augments them."""
        images = [
            augmented(
                encoded.content,
                self._pixels,
                self._order.generator(encoded.sample),
                name=str(self._images.path(encoded.sample.number)),
            )
            for encoded in raw
        ]
        labels = [self._images.label(encoded.sample.number) for encoded in raw]
        return Labelled(torch.from_numpy(np.stack(images)), torch.tensor(labels))

    def loss(self, batch: Labelled) -> torch.Tensor:
        """Cross entropy, a mean over the batch."""
        logits = self.model(batch.images.to(self._device))
        return functional.cross_entropy(logits, batch.labels.to(self._device))

    def state_dict(self) -> dict[str, Any]:
        """The position in the data; augmentation depends on nothing else."""
        return {"order": self._order.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to a saved position. Raises WorkloadError when the data set is another."""
        self._order.load_state_dict(state["order"])


def vision_program(name: str, about: str) -> Program:
    """The script of a vision model."""
    settings = SETTINGS[name]

    def build(args: argparse.Namespace, place: Place) -> Classification:
        images = ImageFolder(args.data)
        order = DataOrder(len(images), args.batch_size, args.seed, place.rank, place.world)
        num_classes = len(images.classes)
        if args.size == "full":
            num_classes = max(num_classes, FULL_CLASSES)
        model = network(name, args.size, num_classes)
        rate = settings.learning_rate * args.batch_size * place.world / _RATED_SAMPLES
        return Classification(model, images, order, PIXELS[args.size], rate, settings.weight_decay, place.device)

    sizes = {"full": settings.batch_size, "small": 16, "tiny": 4}
    return Program(name, about, sizes, _add_options, build)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        required=True,
        metavar="DIR",
        help="a folder with a folder of images for each class, as ImageNet's train",
    )
