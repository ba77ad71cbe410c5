"""A training that is saved and goes on in a new process ends with the same bits as one that never stopped."""

import dataclasses
import threading
from pathlib import Path

import pytest
import torch

from tests.workloads.kit import (
    DEADLINE_S,
    LANGUAGE,
    RL,
    VISION,
    Thread,
    difference,
    options,
    program,
    train_elsewhere,
    train_here,
)
from workloads import checkpoint
from workloads.command import main
from workloads.errors import WorkloadError

STOP, END = 4, 9  # vision's 24 images are an epoch of 6 iterations: the stop and the end lie in different ones


@pytest.mark.parametrize("name", [*VISION, *LANGUAGE, *RL])
def test_the_whole_state_is_the_same_bit_by_bit(name: str, images: Path, text: Path, tmp_path: Path) -> None:
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    chosen = options(name, images, text)
    train_here(name, *chosen, "--iterations", str(END), "--checkpoint-dir", whole)
    train_here(name, *chosen, "--iterations", str(STOP), "--checkpoint-dir", parts)
    saved = checkpoint.load(checkpoint.path_of(parts, 0))
    assert train_elsewhere(name, *chosen, "--iterations", str(END), "--checkpoint-dir", parts).wait(DEADLINE_S) == 0

    ours, theirs = (checkpoint.load(checkpoint.path_of(folder, 0)) for folder in (whole, parts))
    assert (saved["iterations"], ours["iterations"]) == (STOP, END)
    assert difference(ours, theirs) == []
    assert difference(saved["model"], ours["model"]), "training changed no weight"
    assert difference(saved["optimizer"], ours["optimizer"])


def train_in_ranks(name: str, arguments: list[str]) -> dict[int, object]:
    """What the script's `main` gave, or raised, on each of two ranks; each is a thread."""
    together, shared, codes = threading.Barrier(2), {}, {}

    def run(rank: int) -> None:
        try:
            codes[rank] = main(program(name), arguments, Thread(rank, together, shared))
        except threading.BrokenBarrierError as error:
            codes[rank] = type(error)
        if codes[rank] != 0:
            together.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    return codes


@pytest.mark.parametrize("name", ["resnet18", "a2c"])
def test_every_rank_resumes_from_its_own_state(
    name: str, images: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts, save = tmp_path / "whole", tmp_path / "parts", checkpoint.save

    def save_twice(state, path: Path) -> None:
        save(state, path)
        if state["iterations"] == 2:
            save(state, parts / path.name)

    monkeypatch.setattr(checkpoint, "save", save_twice)
    chosen = [*options(name, images, text), "--iterations", "6", "--checkpoint-every", "2"]
    for folder in whole, parts:
        assert train_in_ranks(name, [*chosen, "--checkpoint-dir", str(folder)]) == {0: 0, 1: 0}
    ours, theirs = (
        [{**checkpoint.load(checkpoint.path_of(folder, rank)), "random": None} for rank in range(2)]
        for folder in (whole, parts)
    )  # "random" is torch's generator, which threads share, and which no model here draws from
    assert [state["iterations"] for state in ours] == [6, 6]
    assert difference(ours, theirs) == []


def test_ranks_with_unequal_checkpoints_do_not_train(
    images: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [*options("a2c", images, text), "--checkpoint-dir", str(tmp_path), "--iterations"]
    assert train_in_ranks("a2c", [*chosen, "2"]) == {0: 0, 1: 0}
    checkpoint.path_of(tmp_path, 1).unlink()
    assert train_in_ranks("a2c", [*chosen, "4"])[1] == 2
    assert "a2c: checkpoint: of rank 1: 0 iterations done, and 2 of rank 0\n" in capsys.readouterr().err
    assert checkpoint.load(checkpoint.path_of(tmp_path, 0))["iterations"] == 2


@pytest.mark.parametrize("name", ["vgg16", "a2c"])
def test_another_seed_gives_other_weights(name: str, images: Path, text: Path, tmp_path: Path) -> None:
    chosen = [*options(name, images, text), "--iterations", "1"]
    for seed in ("0", "1"):
        train_here(name, *chosen, "--seed", seed, "--checkpoint-dir", str(tmp_path / seed))
    one, other = (checkpoint.load(checkpoint.path_of(tmp_path / seed, 0)) for seed in ("0", "1"))
    assert difference(one["model"], other["model"])


def test_a_checkpoint_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path) -> None:
    path = checkpoint.path_of(tmp_path, 0)
    checkpoint.save({"format": 1, "value": torch.ones(3)}, path)
    with pytest.raises(AttributeError):
        checkpoint.save({"format": 1, "value": lambda: None}, path)
    assert checkpoint.load(path)["value"].tolist() == [1, 1, 1]


@dataclasses.dataclass
class Stranger:
    """No part of any state."""


@pytest.mark.parametrize("content", ["truncated", "text", "empty", "code", "other"])
def test_a_file_that_is_no_checkpoint_is_named(content: str, tmp_path: Path) -> None:
    path = checkpoint.path_of(tmp_path, 0)
    assert checkpoint.load(path) is None
    checkpoint.save({"format": 1, "value": torch.ones(1000)}, path)
    match content:
        case "truncated":
            path.write_bytes(path.read_bytes()[:2000])
        case "text":
            path.write_text("weights")
        case "empty":
            path.write_bytes(b"")
        case "code":
            checkpoint.save({"format": 1, "value": Stranger()}, path)
        case "other":
            torch.save([1, 2], path)
    with pytest.raises(WorkloadError, match=r"rank-0.pt: [^\n]+$"):
        checkpoint.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--batch-size", "2"], "checkpoint: made with batch_size 4, this run has 2"),
        (["--seed", "3"], "checkpoint: made with seed 0, this run has 3"),
        (["--size", "small"], "checkpoint: made with batch_size 4, this run has 16"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    change: list[str], message: str, images: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [*options("resnet18", images, text), "--iterations", "1", "--checkpoint-dir", str(tmp_path)]
    train_here("resnet18", *chosen)
    assert main(program("resnet18"), [*chosen, *change]) == 2
    assert capsys.readouterr().err == f"resnet18: {message}\n"


def test_a_checkpoint_is_left_on_the_way(images: Path, text: Path, tmp_path: Path, monkeypatch) -> None:
    written = []
    monkeypatch.setattr(checkpoint, "save", lambda state, path: written.append((state["iterations"], path.name)))
    chosen = [*options("a2c", images, text), "--checkpoint-dir", str(tmp_path), "--checkpoint-every", "2"]
    train_here("a2c", *chosen, "--iterations", "5")
    assert written == [(2, "rank-0.pt"), (4, "rank-0.pt"), (5, "rank-0.pt")]
