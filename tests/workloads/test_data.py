"""Data sets as people have them, and as they are made here."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from workloads import data
from workloads.errors import WorkloadError
from workloads.language.text import TextFiles, decoded
from workloads.order import DataOrder, Sample
from workloads.vision.images import ImageFolder, augmented


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "kind",
    [["images", "--size", "6", "--classes", "3", "--pixels", "40"], ["text", "--size", "3"]],
    ids=["images", "text"],
)
def test_the_same_seed_gives_the_same_files(kind: list[str], tmp_path: Path) -> None:
    for folder, seed in ("a", "1"), ("b", "1"), ("c", "2"):
        assert data.main(["make", *kind, "--out", str(tmp_path / folder), "--seed", seed]) == 0
    assert contents(tmp_path / "a") == contents(tmp_path / "b") != contents(tmp_path / "c")


def test_made_images_are_jpeg_files_in_folders_of_classes(images: Path) -> None:
    files = contents(images)
    assert len(files) == 24
    assert {name.split("/")[0] for name in files} == {f"class-{label:04d}" for label in range(4)}
    pictures = [Image.open(io.BytesIO(content)) for content in files.values()]
    assert {(picture.format, picture.mode, min(picture.size)) for picture in pictures} == {("JPEG", "RGB", 80)}


def test_made_text_has_the_size_asked_for(text: Path) -> None:
    assert 60 * 1024 <= text.stat().st_size < 61 * 1024
    assert set(text.read_text()) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ. \n")


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("keep")
    assert data.main(["make", "text", "--size", "1", "--out", str(tmp_path)]) == 2
    assert "is there already; a new or empty folder is needed" in capsys.readouterr().err
    assert contents(tmp_path) == {"mine": b"keep"}


def test_a_tree_like_imagenets_is_read_as_it_is(images: Path, tmp_path: Path) -> None:
    source = next(images.rglob("*.jpg"))
    for name in "n02/b.JPEG", "n01/a.JPEG", "n02/deeper/c.png", "n02/note.txt", "stray.JPEG":
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tmp_path / name)
    tree = ImageFolder(tmp_path)
    assert tree.classes == ("n01", "n02")
    found = [(str(tree.path(number).relative_to(tmp_path)), tree.label(number)) for number in range(len(tree))]
    assert found == [("n01/a.JPEG", 0), ("n02/b.JPEG", 1), ("n02/deeper/c.png", 1)]


@pytest.mark.parametrize(("made", "message"), [("", "no such folder"), ("empty", "no images")])
def test_a_folder_without_images_is_named(made: str, message: str, tmp_path: Path) -> None:
    if made:
        (tmp_path / "images").mkdir()
    with pytest.raises(WorkloadError, match=f"images: {message}"):
        ImageFolder(tmp_path / "images")


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "CMYK", "RGBA"])
def test_images_of_every_kind_are_augmented_alike(mode: str) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(256, size=(50, 90, 3), dtype=np.uint8)).convert(mode)
    file = io.BytesIO()
    picture.save(file, "TIFF")
    once, again, other = (augmented(file.getvalue(), 32, np.random.default_rng(seed), name="x") for seed in (1, 1, 2))
    assert (once.shape, once.dtype) == ((3, 32, 32), np.float32)
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)


def test_a_plain_image_is_normalised_and_crops_lie_inside() -> None:
    file = io.BytesIO()
    Image.new("RGB", (20, 1000), (124, 116, 104)).save(file, "PNG")  # ImageNet's mean colour
    for seed in range(30):
        values = augmented(file.getvalue(), 16, np.random.default_rng(seed), name="x")
        assert np.abs(values).max() < 0.02


def test_a_file_that_is_no_image_is_named() -> None:
    with pytest.raises(WorkloadError, match=r"cat.jpg: no image that can be decoded"):
        augmented(b"\xff\xd8\xff meow", 32, np.random.default_rng(0), name="cat.jpg")


def test_pieces_of_text_make_up_the_files(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(b"0123456789abc")
    (tmp_path / "a.txt").write_bytes(b"ABCDEFGH")
    (tmp_path / "short.txt").write_bytes(b"x")
    (tmp_path / "note.md").write_bytes(b"not text that was asked for")
    files = TextFiles(tmp_path, 4)
    assert [files.read(piece) for piece in range(len(files))] == [b"ABCD", b"EFGH", b"0123", b"4567", b"89ab"]
    assert files.head(10) == ["ABCDEFGH", "01"]
    alone = TextFiles(tmp_path / "note.md", 4)
    assert (len(alone), alone.read(1)) == (6, b"text")


@pytest.mark.parametrize(("name", "message"), [("none", "no such text"), ("tiny.txt", "less than 100 bytes of text")])
def test_text_that_is_not_there_is_named(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.txt").write_text("few words")
    with pytest.raises(WorkloadError, match=f"{name}: {message}"):
        TextFiles(tmp_path / name, 100)


def test_broken_ends_of_a_piece_are_left_out() -> None:
    assert decoded("é is a letter ö".encode()[1:-1]) == "is a letter "
    assert decoded(b"one") == "one"


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_share_an_epoch_and_visit_nothing_twice(world: int) -> None:
    seen = []
    for rank in range(world):
        order = DataOrder(50, 4, seed=7, rank=rank, world=world)
        while order.epoch == 0:
            batch = order.take()
            assert len(batch) == 4
            seen += batch
    assert len(set(seen)) == len(seen) == 50 // (4 * world) * 4 * world
    assert {sample.epoch for sample in seen} == {0}
    assert {sample.number for sample in seen} <= set(range(50))


def test_the_order_depends_on_what_it_should_and_on_nothing_else() -> None:
    order = DataOrder(100, 5, seed=1)
    first = [order.take() for _ in range(45)]  # into the third epoch
    assert [[sample.number for sample in batch] for batch in first[:1]] == [[48, 8, 16, 81, 6]]
    assert first[44] == DataOrder(100, 5, seed=1).samples(2, 4)
    assert [sample.number for sample in first[0]] != [sample.number for sample in first[20]]
    assert first[0] != DataOrder(100, 5, seed=2).samples(0, 0)
    whole = [sample for batch in first[:4] for sample in batch]
    halves = [DataOrder(100, 5, seed=1, rank=rank, world=2) for rank in range(2)]
    assert sorted(whole) == sorted(sample for half in halves for _ in range(2) for sample in half.take())


def test_draws_for_a_sample_are_its_own() -> None:
    order = DataOrder(10, 1, seed=3)
    draws = {order.generator(Sample(epoch, number)).random() for epoch in range(3) for number in range(10)}
    assert len(draws) == 30
    assert order.generator(Sample(2, 4)).random() == DataOrder(10, 5, 3, 1, 2).generator(Sample(2, 4)).random()


def test_a_position_is_resumed_in_the_same_data_only() -> None:
    order = DataOrder(20, 3, seed=1)
    for _ in range(8):
        order.take()
    resumed = DataOrder(20, 3, seed=1)
    resumed.load_state_dict(order.state_dict())
    assert [resumed.take() for _ in range(9)] == [order.take() for _ in range(9)]
    with pytest.raises(WorkloadError, match="data: 21 samples, but the checkpoint was made with 20"):
        DataOrder(21, 3, seed=1).load_state_dict(order.state_dict())


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(WorkloadError, match="data: 10 samples, fewer than one batch of 4 on each of 3 processes"):
        DataOrder(10, 4, seed=0, rank=0, world=3)
