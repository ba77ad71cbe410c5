"""Checks of single fields that arrive over the network."""

import itertools
import math
from collections.abc import Iterable, Sequence, Sized

MAX_NAME = 256  # characters of ids, names and addresses
MAX_REASON = 4096
MAX_ITEMS = 10_000  # entries of a repeated field
MAX_WORDS = 1_000  # of a command
MAX_COUNT = 2**53  # iterations, generations, sequences: exact as a float


class FieldError(ValueError):
    """A field of a message is unusable; the message names it, says what was given and what is allowed."""

    def __init__(self, field: str, given: object, allowed: str) -> None:
        super().__init__(f"{field}: {given!r:.80} given, {allowed} allowed")
        self.field = field
        self._given = given
        self._allowed = allowed

    def inside(self, where: str) -> "FieldError":
        """The same of a message that is the field `where` of another one."""
        return FieldError(f"{where}.{self.field}", self._given, self._allowed)


def name(field: str, value: str, *, empty: bool = False) -> str:
    """A printable name of at most `MAX_NAME` characters. Raises FieldError."""
    if not empty and not value:
        raise FieldError(field, value, "a name")
    if len(value) > MAX_NAME or not value.isprintable():
        raise FieldError(field, value, f"at most {MAX_NAME} printable characters")
    return value


def text(field: str, value: str) -> str:
    """Free text of at most `MAX_REASON` characters. Raises FieldError."""
    if len(value) > MAX_REASON:
        raise FieldError(field, value, f"at most {MAX_REASON} characters")
    return value


def argv(field: str, words: Sequence[str]) -> tuple[str, ...]:
    """A command's words, possibly none; the first names a program. Raises FieldError."""
    few(field, words, most=MAX_WORDS)
    for i, word in enumerate(words):
        if len(word) > MAX_REASON or "\0" in word or not (i or word):
            raise FieldError(f"{field}[{i}]", word, f"at most {MAX_REASON} characters, no NUL, a program first")
    return tuple(words)


def address(field: str, value: str) -> str:
    """A `host:port`. Raises FieldError."""
    host, colon, port = name(field, value).rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        raise FieldError(field, value, "host:port")
    return value


def digits(field: str, value: str, length: int) -> str:
    """So many hexadecimal digits, which are a secret and not shown. Raises FieldError."""
    if len(value) != length or not set(value) <= set("0123456789abcdef"):
        raise FieldError(field, f"<{len(value)} characters>", f"{length} hexadecimal digits")
    return value


def count(field: str, value: int, least: int = 0, most: int = MAX_COUNT) -> int:
    """A whole number within bounds. Raises FieldError."""
    if not least <= value <= most:
        raise FieldError(field, value, f"{least} to {most}")
    return value


def number(field: str, value: float, *, positive: bool = False, most: float = math.inf) -> float:
    """A finite number of at least 0 (or above 0). Raises FieldError."""
    if not math.isfinite(value) or value < 0 or value > most or (positive and value == 0):
        limit = f" up to {most:g}" if math.isfinite(most) else ""
        raise FieldError(field, value, f"a finite number {'above' if positive else 'of at least'} 0{limit}")
    return value


def few(field: str, items: Sized, least: int = 0, most: int = MAX_ITEMS) -> None:
    """A bounded number of entries. Raises FieldError."""
    if not least <= len(items) <= most:
        raise FieldError(f"{field} (entries)", len(items), f"{least} to {most}")


def ascending(field: str, values: Iterable[int]) -> tuple[int, ...]:
    """Distinct numbers in ascending order. Raises FieldError."""
    found = tuple(values)
    if any(after <= before for before, after in itertools.pairwise(found)):
        raise FieldError(field, found, "distinct numbers in ascending order")
    return found
