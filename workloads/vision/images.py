"""Images on disk: a tree with a folder for each class, as ImageNet is kept; read, decoded and augmented."""

import io
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from workloads.errors import WorkloadError

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
_MEAN = np.array((0.485, 0.456, 0.406), dtype=np.float32)  # of ImageNet's red, green and blue, from 0 to 1
_DEVIATION = np.array((0.229, 0.224, 0.225), dtype=np.float32)
_AREA = (0.08, 1.0)  # share of the image that a crop covers
_ASPECT = (3 / 4, 4 / 3)  # width to height of a crop
_TRIES = 10  # at a crop that lies inside


class ImageFolder:
    """The images of a tree, in the order of their paths; a folder's place among the sorted folders is its label."""

    def __init__(self, root: str | Path) -> None:
        """Lists the tree.

        Raises:
            WorkloadError: no such folder, or no images in folders in it.
        """
        base = Path(root)
        if not base.is_dir():
            raise WorkloadError(
                "no such folder; a folder with a folder of images for each class is needed", where=str(root)
            )
        self.classes = tuple(sorted(path.name for path in base.iterdir() if path.is_dir()))
        self._files = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((base / name).rglob("*"))
            if path.suffix.lower() in SUFFIXES
        ]
        if not self._files:
            allowed = ", ".join(SUFFIXES)
            raise WorkloadError(f"no images ({allowed}) in folders of classes in it", where=str(root))

    def __len__(self) -> int:
        return len(self._files)

    def path(self, index: int) -> Path:
        """Where an image lies."""
        return self._files[index][0]

    def label(self, index: int) -> int:
        """Which class it shows."""
        return self._files[index][1]


def augmented(encoded: bytes, pixels: int, rng: np.random.Generator, *, name: str) -> npt.NDArray[np.float32]:
    """Decodes an image, cuts a piece out of it, scales that and mirrors it half of the time.

    The piece covers a random share of the image in a random shape (Szegedy et al., 2015, section 6).

    Returns:
        (3, pixels, pixels), each colour with about zero mean and unit deviation.

    Raises:
        WorkloadError: it is no image; `name` says which.
    """
    try:
        image = Image.open(io.BytesIO(encoded)).convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise WorkloadError("no image that can be decoded", where=name) from error
    piece = image.resize((pixels, pixels), Image.Resampling.BILINEAR, box=_crop(image.width, image.height, rng))
    values = np.asarray(piece, dtype=np.float32) / np.float32(255)
    if rng.random() < 0.5:
        values = values[:, ::-1]
    return np.ascontiguousarray(((values - _MEAN) / _DEVIATION).transpose(2, 0, 1))


def _crop(width: int, height: int, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Left, upper, right and lower side of a random piece; the whole image when none fits."""
    for _ in range(_TRIES):
        area = width * height * rng.uniform(*_AREA)
        aspect = math.exp(rng.uniform(math.log(_ASPECT[0]), math.log(_ASPECT[1])))
        across, down = math.sqrt(area * aspect), math.sqrt(area / aspect)
        if across <= width and down <= height:
            left, upper = rng.uniform(0, width - across), rng.uniform(0, height - down)
            return left, upper, left + across, upper + down
    return 0.0, 0.0, float(width), float(height)
