"""Reading text and numbers that people wrote, with errors that name the place."""

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cluster_exp.domain.errors import InputError

_SHOWN_CHARACTERS = 60
_SHOWN_CHOICES = 12
_MAX_DIGITS = 18
_CHUNK = 1 << 20


def read_text(path: Path, max_bytes: int) -> str:
    """The file's text without a byte order mark.

    Raises:
        InputError: no such file, not a file, too large, not UTF-8 or with NUL bytes; the last two name line
            and byte (from 1) in it.
    """
    try:
        with path.open("rb") as file:
            data = _read(file, max_bytes + 1)
    except FileNotFoundError:
        raise InputError("no such file", where=str(path)) from None
    except IsADirectoryError:
        raise InputError("is a directory; a file is needed", where=str(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be read: {reason}", where=shown(str(path))[1:-1]) from None
    if len(data) > max_bytes:
        raise InputError(f"is larger than {max_bytes:,} bytes, the most that is read", where=str(path))
    if (at := data.find(b"\0")) >= 0:
        raise InputError("NUL byte; a text file (UTF-8) is needed", where=_byte_place(path, data, at))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = error.start + (3 if data.startswith(b"\xef\xbb\xbf") else 0)
        message = f"byte 0x{data[at]:02x} is not UTF-8; a text file in UTF-8 is needed"
        raise InputError(message, where=_byte_place(path, data, at)) from None


def _read(file: BinaryIO, most: int) -> bytes:
    """At most so many bytes; asking for them at once would take that much memory, however short the file is."""
    pieces: list[bytes] = []
    while most > 0 and (piece := file.read(min(most, _CHUNK))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def _byte_place(path: Path, data: bytes, at: int) -> str:
    line = data.count(b"\n", 0, at) + 1
    column = at - (data.rfind(b"\n", 0, at) + 1) + 1
    return f"{path}:{line}:{column}"


def shown(value: str) -> str:
    """The value in quotes, on one line, cut when it is long."""
    if len(value) > _SHOWN_CHARACTERS:
        value = value[: _SHOWN_CHARACTERS - 3] + "..."
    return ascii(value) if not value.isprintable() else repr(value)


def nearest(given: str, known: Iterable[str]) -> str:
    """An advice in words: the known name nearest to the given one, if any is near, and the known names."""
    names = sorted(shown(name)[1:-1] for name in known)
    near = difflib.get_close_matches(given[:_SHOWN_CHARACTERS], names, n=1)
    more = f" and {len(names) - _SHOWN_CHOICES} more" if len(names) > _SHOWN_CHOICES else ""
    listed = f"known: {', '.join(names[:_SHOWN_CHOICES])}{more}" if names else "none is known"
    return f"did you mean {near[0]}? {listed}" if near else listed


@dataclass(frozen=True, slots=True)
class Span:
    """The numbers that are allowed somewhere."""

    low: float
    high: float
    above: bool = False  # whether `low` itself is excluded
    unit: str = ""

    @property
    def words(self) -> str:
        """The span in words."""
        unit = f" ({self.unit})" if self.unit else ""
        if self.above:
            return f"above {self.low:g}, at most {self.high:g}{unit}"
        return f"from {self.low:g} to {self.high:g}{unit}"

    def holds(self, value: float) -> bool:
        """Whether the value is allowed; NaN is not."""
        return self.low < value <= self.high if self.above else self.low <= value <= self.high


class CellError(ValueError):
    """A value is unusable; the message says what is wrong with it and what is allowed."""


def parse_integer(text: str, span: Span) -> int:
    """A whole number in the span; `8.0` is one. Raises CellError."""
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        value = int(text)
    else:
        number = _parse(text, span, "whole number")
        if math.isfinite(number) and not number.is_integer():
            raise CellError(f"{shown(text)} is not whole; allowed: a whole number {span.words}")
        if not (math.isfinite(number) and span.holds(number)):
            raise CellError(f"{shown(text)} is out of range; allowed: a whole number {span.words}")
        value = int(number)
    if not span.holds(value):
        raise CellError(f"{shown(text)} is out of range; allowed: a whole number {span.words}")
    return value


def parse_number(text: str, span: Span) -> float:
    """A finite number in the span. Raises CellError."""
    value = _parse(text, span, "number")
    if not span.holds(value) or not math.isfinite(value):
        raise CellError(f"{shown(text)} is out of range; allowed: a number {span.words}")
    return value


def _parse(text: str, span: Span, kind: str) -> float:
    try:
        if not text.isascii() or "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        given = shown(text) if text.strip() else "an empty field"
        raise CellError(f"{given} is not a number; allowed: a {kind} {span.words}") from None
