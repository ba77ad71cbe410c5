"""Images are learnt."""

from pathlib import Path

import numpy as np
import pytest
import torch

from workloads.order import DataOrder
from workloads.vision.images import ImageFolder
from workloads.vision.program import PIXELS, Classification, network


@pytest.mark.parametrize("name", ["resnet18", "shufflenet_v2_x1_0"])
def test_classes_are_learnt(name: str, images: Path) -> None:
    torch.manual_seed(0)
    tree = ImageFolder(images)
    order = DataOrder(len(tree), 12, seed=0)
    work = Classification(network(name, "tiny", 4), tree, order, PIXELS["tiny"], 0.02, 1e-4, torch.device("cpu"))
    losses = []
    for _ in range(60):
        work.optimizer.zero_grad()
        loss = work.loss(work.prepare(work.read()))
        loss.backward()
        work.optimizer.step()
        losses.append(float(loss.detach()))
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])


def test_a_batch_holds_the_images_that_its_labels_name(images: Path) -> None:
    tree = ImageFolder(images)
    work = Classification(
        network("resnet18", "tiny", 4), tree, DataOrder(len(tree), 24, seed=0), 16, 0.1, 0.0, torch.device("cpu")
    )
    raw = work.read()
    batch = work.prepare(raw)
    assert batch.images.shape == (24, 3, 16, 16)
    assert batch.labels.bincount().tolist() == [6, 6, 6, 6]
    for encoded, label in zip(raw, batch.labels.tolist(), strict=True):
        path = tree.path(encoded.sample.number)
        assert path.parent.name == f"class-{label:04d}"
        assert path.read_bytes() == encoded.content
