"""Models are what their names say."""

import pytest
import torch

from tests.workloads.kit import VISION
from workloads.language.models import LONGEST, VOCABULARY, bert, gpt2
from workloads.rl.network import AtariNetwork, Player
from workloads.vision.program import PIXELS, network


def parameters(model: torch.nn.Module) -> int:
    return sum(tensor.numel() for tensor in model.parameters())


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("vgg16", 138_357_544),
        ("vgg19", 143_667_240),
        ("resnet18", 11_689_512),
        ("shufflenet_v2_x1_0", 2_278_604),
    ],
)
def test_full_size_vision_models_have_the_known_number_of_parameters(name: str, count: int) -> None:
    with torch.device("meta"):
        assert parameters(network(name, "full", 1000)) == count


@pytest.mark.parametrize(
    ("model", "count"),
    [(gpt2, 124_439_808), (bert, 109_514_298)],  # with the output tied to the input; BERT's with its output layer
)
def test_full_size_language_models_have_the_known_number_of_parameters(model, count: int) -> None:
    with torch.device("meta"):
        assert parameters(model("full")) == count


def test_the_full_size_atari_network_has_the_number_of_its_paper() -> None:
    assert parameters(AtariNetwork("full", 6)) == 1_687_206


@pytest.mark.parametrize("name", VISION)
@pytest.mark.parametrize("size", ["full", "small", "tiny"])
def test_vision_models_take_the_images_of_their_size(name: str, size: str) -> None:
    with torch.device("meta"):
        logits = network(name, size, 1000)(torch.empty(2, 3, PIXELS[size], PIXELS[size]))
    assert logits.shape == (2, 1000)


@pytest.mark.parametrize("name", VISION)
def test_every_weight_of_a_vision_model_learns(name: str) -> None:
    torch.manual_seed(0)
    model = network(name, "tiny", 10)
    model(torch.randn(8, 3, 64, 64)).square().sum().backward()
    assert [key for key, tensor in model.named_parameters() if tensor.grad is None or not tensor.grad.any()] == []


def test_shufflenet_mixes_the_halves() -> None:
    unit = network("shufflenet_v2_x1_0", "tiny", 10).features[5].eval()
    features = torch.arange(16.0)[None, :, None, None].expand(1, 16, 4, 4)
    assert unit(features)[0, ::2, 0, 0].tolist() == list(range(8))  # every other one was passed on


@pytest.mark.parametrize(("name", "model"), [("bert", bert), ("gpt2", gpt2)])
@pytest.mark.parametrize("size", ["small", "tiny"])
def test_language_models_take_the_longest_samples(name: str, model, size: str) -> None:
    length, known = LONGEST[name][size], VOCABULARY[name][size]
    with torch.no_grad():
        logits = model(size)(input_ids=torch.full((1, length), known - 1)).logits
    assert logits.shape == (1, length, known)


def test_a_player_beside_a_learner_on_another_device_is_a_copy_that_can_follow() -> None:
    learner = AtariNetwork("tiny", 3)
    player = Player(learner, torch.device("cuda"))
    frames = torch.randint(256, (2, 4, 84, 84), dtype=torch.uint8)
    before = player(frames)
    with torch.no_grad():
        for tensor in learner.parameters():
            tensor.add_(0.01)
    assert torch.equal(player(frames), before)
    player.refresh(learner)
    assert torch.equal(player(frames), learner(frames))
    assert not torch.equal(player(frames), before)
