"""Text on disk, cut into pieces that can be read in any order without an index of the file."""

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

from workloads.errors import WorkloadError

BYTES_PER_TOKEN = 5  # of English, roughly; a piece with more tokens is cut, one with fewer is padded
_SUFFIX = ".txt"


class TextFiles:
    """A text file, or the .txt files under a folder, in pieces of one length; what is left of a file is not used."""

    def __init__(self, path: str | Path, piece_bytes: int) -> None:
        """Looks up the sizes.

        Raises:
            WorkloadError: no such file or folder, or not one whole piece in it.
        """
        base = Path(path)
        if not base.exists():
            raise WorkloadError("no such text file or folder of text files", where=str(path))
        files = [base] if base.is_file() else sorted(base.rglob(f"*{_SUFFIX}"))
        self._piece_bytes = piece_bytes
        self._files = [(file, file.stat().st_size // piece_bytes) for file in files]
        self._ends = list(accumulate(pieces for _, pieces in self._files))
        if not self._ends or not self._ends[-1]:
            raise WorkloadError(f"less than {piece_bytes} bytes of text ({_SUFFIX}) in one file", where=str(path))

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, piece: int) -> bytes:
        """A piece; it may begin and end within a character."""
        number = bisect_right(self._ends, piece)
        file, pieces = self._files[number]
        with open(file, "rb") as source:
            source.seek((piece - self._ends[number] + pieces) * self._piece_bytes)
            return source.read(self._piece_bytes)

    def head(self, max_bytes: int) -> list[str]:
        """The lines that the text begins with."""
        lines: list[str] = []
        for file, _ in self._files:
            if max_bytes <= 0:
                break
            with open(file, "rb") as source:
                content = source.read(max_bytes)
            max_bytes -= len(content)
            lines += content.decode("utf-8", errors="ignore").splitlines()
        return lines


def decoded(piece: bytes) -> str:
    """The text of a piece, without what is broken at its ends: part of a character, part of a word."""
    text = piece.decode("utf-8", errors="ignore")
    first, _, rest = text.partition(" ")
    return rest or first
