"""Makes data sets for the workloads: real JPEG files, real text.

python -m workloads.data make images --out DIR --size N
python -m workloads.data make text --out DIR --size N
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from workloads.command import not_negative, positive
from workloads.errors import WorkloadError

_KIB = 1024
_ASPECTS = (1.0, 4 / 3, 3 / 4)  # width to height of the images
_GRAIN = 24  # brightness levels by which neighbouring pixels differ, as in photographs
_QUALITY = 90
_SHAPES = ("ellipse", "rectangle", "triangle", "cross")
_WORDS = 4000
_FOLLOWERS = 12  # words that may follow a word: what there is to learn
_SYLLABLES = tuple(first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou")


def make_images(out: Path, count: int, classes: int, pixels: int, seed: int) -> None:
    """Writes `count` JPEG files into a folder for each class; the shorter side has `pixels`.

    A class is a shape in a colour, at any place, on any background.
    """
    rng = np.random.default_rng(seed)
    for number in range(count):
        label = number % classes
        folder = out / f"class-{label:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        _picture(label, pixels, rng).save(folder / f"{number:07d}.jpg", quality=_QUALITY)


def _picture(label: int, pixels: int, rng: np.random.Generator) -> Image.Image:
    aspect = float(rng.choice(_ASPECTS))
    width, height = (round(pixels * aspect), pixels) if aspect >= 1 else (pixels, round(pixels / aspect))
    image = Image.new("RGB", (width, height), _colour(rng.random(), 0.3, rng.uniform(0.2, 0.9)))
    draw = ImageDraw.Draw(image)
    radius = pixels * rng.uniform(0.2, 0.4)
    x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
    hue = (label * 0.618034) % 1.0  # golden ratio: any number of classes lies apart
    _draw(draw, _SHAPES[label % len(_SHAPES)], x, y, radius, _colour(hue, 0.9, 0.9))
    grain = rng.integers(-_GRAIN, _GRAIN + 1, size=(height, width, 1))
    return Image.fromarray(np.clip(np.asarray(image, dtype=np.int16) + grain, 0, 255).astype(np.uint8))


def _colour(hue: float, saturation: float, value: float) -> tuple[int, ...]:
    hsv = Image.new("HSV", (1, 1), tuple(int(255 * part) for part in (hue, saturation, value)))
    return tuple(np.asarray(hsv.convert("RGB"))[0, 0].tolist())


def _draw(draw: ImageDraw.ImageDraw, shape: str, x: float, y: float, radius: float, fill: tuple[int, ...]) -> None:
    box = (x - radius, y - radius, x + radius, y + radius)
    match shape:
        case "ellipse":
            draw.ellipse(box, fill=fill)
        case "rectangle":
            draw.rectangle(box, fill=fill)
        case "triangle":
            draw.polygon(((x, y - radius), (x - radius, y + radius), (x + radius, y + radius)), fill=fill)
        case _:
            arm = radius / 3
            draw.rectangle((x - arm, y - radius, x + arm, y + radius), fill=fill)
            draw.rectangle((x - radius, y - arm, x + radius, y + arm), fill=fill)


def make_text(out: Path, size_kib: int, seed: int) -> None:
    """Writes `size_kib` KiB of sentences, and the rest of the last one, into `train.txt`.

    Words of an invented language, frequent and rare ones; each can be followed by a few others only.
    """
    out.mkdir(parents=True, exist_ok=True)
    written = 0
    with open(out / "train.txt", "w", encoding="utf-8") as file:
        for sentence in _sentences(seed):
            if written >= size_kib * _KIB:
                break
            written += file.write(sentence)


def _sentences(seed: int) -> Iterator[str]:
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(_SYLLABLES, size=int(rng.integers(1, 5)))) for _ in range(_WORDS)]
    frequency = 1 / np.arange(1, _WORDS + 1)  # Zipf's law
    followers = rng.choice(_WORDS, size=(_WORDS, _FOLLOWERS), p=frequency / frequency.sum())
    word = 0
    while True:
        sentence = []
        for choice in rng.integers(_FOLLOWERS, size=int(rng.integers(4, 20))):
            word = int(followers[word, choice])
            sentence.append(words[word])
        end = "\n" if rng.random() < 0.1 else " "
        yield f"{' '.join(sentence).capitalize()}.{end}"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done; 2 bad input."""
    args = _parser().parse_args(argv)
    out = Path(args.out)
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise WorkloadError("is there already; a new or empty folder is needed", where=f"--out {out}")
        if args.kind == "images":
            make_images(out, args.size, args.classes, args.pixels, args.seed)
        else:
            make_text(out, args.size, args.seed)
    except (WorkloadError, OSError) as error:
        sys.stderr.write(f"workloads.data: {error}\n")
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    form = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m workloads.data", description="Makes data for the workloads.")
    make = parser.add_subparsers(required=True, metavar="make").add_parser("make", help="write a data set")
    kinds = make.add_subparsers(dest="kind", required=True, metavar="images|text")
    images = kinds.add_parser("images", help="JPEG files, a folder for each class", formatter_class=form)
    text = kinds.add_parser("text", help="a text file, train.txt", formatter_class=form)
    for kind, what in (images, "images to write"), (text, "text to write, in KiB"):
        kind.add_argument("--out", required=True, metavar="DIR", help="a new or empty folder")
        kind.add_argument("--size", type=positive, required=True, metavar="N", help=what)
        kind.add_argument("--seed", type=not_negative, default=0, help="the same seed gives the same data")
    images.add_argument("--classes", type=positive, default=10, help="folders to write")
    images.add_argument("--pixels", type=positive, default=375, help="of the shorter side")
    return parser


if __name__ == "__main__":
    sys.exit(main())
