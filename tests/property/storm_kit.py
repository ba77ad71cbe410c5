"""Hostile bytes, drawn from a seed: what a storm of messages and files is made of."""

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence

CASES = int(os.environ.get("CLUSTER_EXP_STORM", "2000"))  # of each message and each reader
LONGEST_CASE_S = 5.0  # wall time
PIECES = (
    *(b"", b",", b"\n", b"\r", b'"', b"'", b"nan", b"inf", b"-1", b"-0.0", b"0", b"1e308", b"1e999", b"9" * 400),
    *(b"\0", b"\xff", b": ", b"- ", b"{", b"[", b"}", b"]", b"&a ", b"*a", b"\t", b"!!python/name:os.system", b"|"),
    *(b"? ", b"1_0", b"\xef\xbb\xbf", b"\x0b", b"\xe2\x80\xa8", b"../../etc/passwd", b"A" * 5000, b"\x7f", b"true"),
    *(b"18446744073709551616", b"9223372036854775807", b"\xc3\x28", b"\xed\xa0\x80", b"null", b"\\u0000", b"%s%n"),
    *(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x1a\xff\xff\xff\x7f", b"(" * 200, b"[" * 2000, b"{" * 500),
)


def mutated(draw: random.Random, valid: Sequence[bytes]) -> bytes:
    """One of the valid ones with a few spans cut out, doubled or replaced; now and then noise."""
    if draw.random() < 0.05:
        return draw.randbytes(draw.randrange(300))
    data = draw.choice(valid)
    for _ in range(draw.randrange(1, 5)):
        at, width = draw.randrange(len(data) + 1), draw.randrange(13)
        kind = draw.random()
        if kind < 0.6:
            piece = draw.choice(PIECES)
        elif kind < 0.8:
            piece = draw.randbytes(draw.randrange(1, 7))
        else:
            start = draw.randrange(len(data) + 1)
            piece = data[start : start + draw.randrange(60)]
        data = data[:at] + piece + data[at + width :]
    return data


def storm(name: str, valid: Sequence[bytes], cases: int = CASES, first: int = 0) -> Iterator[tuple[str, bytes]]:
    """Cases by name: `NAME:NUMBER` draws the same bytes again."""
    for number in range(first, first + cases):
        yield f"{name}:{number}", mutated(random.Random(f"{name}:{number}"), valid)


def endure(what: Callable[[], object], case: str) -> object:
    """Does it; fails, naming the case, when it takes too long or raises what nobody expects."""
    began_s = time.monotonic()
    try:
        return what()
    except Exception as error:
        raise AssertionError(f"case {case}: {type(error).__name__}: {error}") from error
    finally:
        took_s = time.monotonic() - began_s
        assert took_s < LONGEST_CASE_S, f"case {case} took {took_s:.1f} s"
