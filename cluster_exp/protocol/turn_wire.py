"""What trainers and their worker say to each other: one JSON object a line. No I/O.

A trainer says `hello` first, then `ask` (at a boundary), `take` and `give` (a stage's turn), `progress`, `saved` (a
checkpoint), and at its end `left` (told to stop) or `done`. The worker says `go`, `stop`, `granted`, `look`, or
`refused` before it hangs up. A process that prefetches for a trainer says `hello` with a number of its own
(`helper`), then only `take` and `give`, until the trainer says `dismiss`.
"""

import itertools
import json
import math
from dataclasses import dataclass
from typing import Any

from cluster_exp.domain.measure import StageWindow
from cluster_exp.domain.resources import NUM_RESOURCES
from cluster_exp.protocol.turn_token import DIGITS

WIRE_VERSION = 2
MAX_LINE_BYTES = 4096
MAX_WORLD = 65_536
_MAX_ITERATIONS = 2**53
_MAX_HELPER = 2**31  # they number themselves by process id


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
    helper: int = 0  # hello: number of a process that prefetches; 0 = the trainer itself
    resources: tuple[int, ...] = ()  # take: what the turn locks
    done: int = 0  # iterations done of the whole job
    turns: bool = False  # hello: whether this connection takes turns (else it only reports)
    leave: bool = False  # ask: whether the process wants its job to leave
    token: str = ""  # hello: of the launch, on connections between nodes
    window: StageWindow | None = None  # progress: what the process measured


def encode(kind: str, **fields: Any) -> bytes:
    """A line for the wire."""
    return json.dumps({"t": kind, **fields}, separators=(",", ":")).encode() + b"\n"


GRANTED_LINE = encode("granted")
_KINDS = "hello, ask, take, give, dismiss, progress, saved, left, done"
# The lines that every stage needs, as the SDK writes them: known without parsing.
_FREQUENT = {
    b'{"t":"give"}': Line("give"),
    **{
        encode("take", r=resources)[:-1]: Line("take", resources=resources)
        for count in range(1, NUM_RESOURCES + 1)
        for resources in itertools.combinations(range(NUM_RESOURCES), count)
    },
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
            return Line("take", resources=_resources(fields.get("r")))
        case "give" | "dismiss":
            return Line(str(kind))
        case "ask":
            done = _number(fields, "done", 0, _MAX_ITERATIONS)
            return Line("ask", done=done, leave=fields.get("leave") is True)
        case "progress" | "saved" | "left" | "done":
            done = _number(fields, "done", 0, _MAX_ITERATIONS)
            return Line(str(kind), done=done, window=_window(fields.get("window")) if kind == "progress" else None)
    raise WireError(f"unknown message {kind!r}; allowed: {_KINDS}")


def _hello(fields: dict[str, Any]) -> Line:
    version = fields.get("v")
    if version != WIRE_VERSION:
        raise WireError(f"protocol version {version!r}, this worker speaks {WIRE_VERSION}")
    job_id = fields.get("job")
    if not isinstance(job_id, str) or not 0 < len(job_id) <= 512 or not job_id.isprintable():
        raise WireError("job is not a name of 1 to 512 printable characters")
    token = fields.get("token", "")
    if not isinstance(token, str) or len(token) > DIGITS:
        raise WireError(f"token is not a text of at most {DIGITS} characters")
    return Line(
        "hello",
        job_id=job_id,
        generation=_number(fields, "generation", 1, _MAX_ITERATIONS),
        rank=_number(fields, "rank", 0, MAX_WORLD - 1),
        world=_number(fields, "world", 1, MAX_WORLD),
        helper=_number(fields, "helper", 0, _MAX_HELPER) if "helper" in fields else 0,
        done=_number(fields, "done", 0, _MAX_ITERATIONS),
        turns=fields.get("turns") is True,
        token=token,
    )


def _number(fields: dict[str, Any], name: str, low: int, high: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not low <= value <= high:
        raise WireError(f"{name} is {value!r}, allowed: a whole number in {low}..{high}")
    return value


def _resources(value: Any) -> tuple[int, ...]:
    known = isinstance(value, list) and 0 < len(value) <= NUM_RESOURCES
    if not known or not all(type(each) is int and 0 <= each < NUM_RESOURCES for each in value):
        raise WireError(f"r is {value!r:.80}, allowed: a list of whole numbers in 0..{NUM_RESOURCES - 1}")
    return tuple(sorted(set(value)))


def _window(fields: Any) -> StageWindow | None:
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise WireError(f"window is {fields!r:.80}, allowed: a JSON object")
    stages = fields.get("stages")
    if not isinstance(stages, list) or len(stages) != NUM_RESOURCES:
        raise WireError(f"stages is {stages!r:.80}, allowed: {NUM_RESOURCES} numbers of seconds")
    storage_s, cpu_s, gpu_s, network_s = (_amount("stages", value) for value in stages)
    iterations = _number(fields, "n", 1, _MAX_ITERATIONS)
    return StageWindow(
        iterations,
        _amount("s", fields.get("s")),
        _number(fields, "sampled", 1, iterations),
        (storage_s, cpu_s, gpu_s, network_s),
        fields.get("turns") is True,
        None if fields.get("mib") is None else _amount("mib", fields["mib"]),
    )


def _amount(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise WireError(f"{name} is {value!r:.80}, allowed: a finite number from 0 on")
    return float(value)
