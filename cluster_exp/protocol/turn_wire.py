"""What trainers and their worker say to each other: one JSON object a line. No I/O.

A trainer says `hello` first, then `ask` (at a boundary), `take` and `give` (a stage's turn), `progress`, `saved` (a
checkpoint), and at its end `left` (told to stop) or `done`. The worker says `go`, `stop`, `granted`, `look`, or
`refused` before it hangs up.
"""

import json
from dataclasses import dataclass
from typing import Any

from cluster_exp.domain.resources import NUM_RESOURCES

WIRE_VERSION = 1
MAX_LINE_BYTES = 4096
MAX_WORLD = 65_536
_MAX_ITERATIONS = 2**53


class WireError(ValueError):
    """A line that the protocol does not know; the message says what and what is allowed."""


@dataclass(frozen=True, slots=True)
class Line:
    """One parsed line of a trainer."""

    kind: str
    job_id: str = ""
    generation: int = 0
    rank: int = 0
    world: int = 0
    stage: int = 0
    done: int = 0  # iterations done of the whole job
    turns: bool = False  # hello: whether this connection takes turns (else it only reports)
    leave: bool = False  # ask: whether the process wants its job to leave


def encode(kind: str, **fields: Any) -> bytes:
    """A line for the wire."""
    return json.dumps({"t": kind, **fields}, separators=(",", ":")).encode() + b"\n"


GRANTED_LINE = encode("granted")
# The lines that every stage needs, as the SDK writes them: known without parsing.
_FREQUENT = {
    b'{"t":"give"}': Line("give"),
    **{f'{{"t":"take","r":{stage}}}'.encode(): Line("take", stage=stage) for stage in range(NUM_RESOURCES)},
}


def parse_trainer_line(line: bytes) -> Line:
    """A trainer's line. Raises WireError for anything that is not one."""
    frequent = _FREQUENT.get(line)
    if frequent is not None:
        return frequent
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise WireError("not a line of JSON") from None
    if not isinstance(fields, dict):
        raise WireError("not a JSON object")
    kind = fields.get("t")
    match kind:
        case "hello":
            return _hello(fields)
        case "take":
            return Line("take", stage=_number(fields, "r", 0, NUM_RESOURCES - 1))
        case "give":
            return Line("give")
        case "ask":
            done = _number(fields, "done", 0, _MAX_ITERATIONS)
            return Line("ask", done=done, leave=fields.get("leave") is True)
        case "progress" | "saved" | "left" | "done":
            return Line(str(kind), done=_number(fields, "done", 0, _MAX_ITERATIONS))
    raise WireError(f"unknown message {kind!r}; allowed: hello, ask, take, give, progress, saved, left, done")


def _hello(fields: dict[str, Any]) -> Line:
    version = fields.get("v")
    if version != WIRE_VERSION:
        raise WireError(f"protocol version {version!r}, this worker speaks {WIRE_VERSION}")
    job_id = fields.get("job")
    if not isinstance(job_id, str) or not 0 < len(job_id) <= 512:
        raise WireError("job is not a name of 1 to 512 characters")
    return Line(
        "hello",
        job_id=job_id,
        generation=_number(fields, "generation", 1, _MAX_ITERATIONS),
        rank=_number(fields, "rank", 0, MAX_WORLD - 1),
        world=_number(fields, "world", 1, MAX_WORLD),
        done=_number(fields, "done", 0, _MAX_ITERATIONS),
        turns=fields.get("turns") is True,
    )


def _number(fields: dict[str, Any], name: str, low: int, high: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not low <= value <= high:
        raise WireError(f"{name} is {value!r}, allowed: a whole number in {low}..{high}")
    return value
