"""The journal: every event and action of a run, in order, one JSON object a line.

The first line is a header. Then, for each event, `{"n": N, "event": KIND, "actions": A, "data": {...}}`, followed by
the A actions that it caused, `{"n": N, "action": KIND, "data": {...}}`; N counts the events from 1. Numbers have full
precision, so that a run can be replayed exactly.
"""

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from cluster_exp.domain.actions import Action
from cluster_exp.domain.errors import InputError, cut
from cluster_exp.domain.events import Event, Progressed

FORMAT_VERSION = 1
EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
_ACTIONS: dict[str, type[Action]] = {kind.__name__: kind for kind in get_args(Action)}
_NOT_STATED = ("gpu_memory_mib", "memory_gib", "num_cpu")  # NaN in the records, null in the file
_BUFFER_BYTES = 1 << 16
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class Detail(Enum):
    """How much a journal holds."""

    FULL = "full"
    SUMMARY = "summary"  # without progress
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Entry:
    """An event with the actions that it caused."""

    number: int  # counts the events of the run from 1
    event: Event
    actions: tuple[Action, ...]


class JournalWriter:
    """Writes a journal (`core.recorder.Recorder`)."""

    def __init__(self, path: Path, header: Mapping[str, Any], detail: Detail = Detail.FULL) -> None:
        """Opens the file, which must not exist, and writes the header.

        Raises:
            OSError: the file cannot be made.
        """
        self._detail = detail
        self._number = 0
        self._encoder = msgspec.json.Encoder()
        self._file = None if detail is Detail.NONE else open(path, "xb", buffering=_BUFFER_BYTES)  # noqa: SIM115
        if self._file is not None:
            self._file.write(
                self._encoder.encode_lines([{"format": FORMAT_VERSION, "detail": detail.value, **header}])
            )

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Writes one event and its actions. Raises OSError when the disk does not take them."""
        self._number += 1
        if self._file is None or (self._detail is Detail.SUMMARY and isinstance(event, Progressed)):
            return
        number = self._number
        lines = [{"n": number, "event": type(event).__name__, "actions": len(actions), "data": event}]
        lines += [{"n": number, "action": type(action).__name__, "data": action} for action in actions]
        self._file.write(self._encoder.encode_lines(lines))

    def close(self) -> None:
        """Writes out what is buffered. Raises OSError when the disk does not take it."""
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True, slots=True)
class Journal:
    """A journal that was read."""

    header: Mapping[str, Any]
    entries: tuple[Entry, ...]


def read_journal(path: Path) -> Journal:
    """Reads a whole journal.

    An end that breaks off (the writer was killed) is left out with a warning: half a line, or an event of which
    actions are missing.

    Raises:
        InputError: the file is not there, is no journal of this version, or a line of it is damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if lines[-1]:
        _log.warning("%s:%d: the last line breaks off and is left out", path, len(lines))
    complete = lines[:-1]
    if not complete:
        raise InputError("is empty; a journal starts with a header line", where=str(path))
    header = _parse(complete[0], f"{path}:1")
    if header.get("format") != FORMAT_VERSION:
        raise InputError(
            f"has journal format {cut(header.get('format'))}, this version reads {FORMAT_VERSION}", where=f"{path}:1"
        )
    return Journal(header, tuple(_entries(path, complete[1:])))


def _entries(path: Path, lines: Sequence[bytes]) -> Iterator[Entry]:
    event: Event | None = None
    number = missing = 0
    actions: list[Action] = []
    for line_number, line in enumerate(lines, start=2):
        where = f"{path}:{line_number}"
        fields = _parse(line, where)
        if "event" in fields:
            if missing:
                raise InputError(f"event {number} lacks {missing} of its actions before this line", where=where)
            if event is not None:
                yield Entry(number, event, tuple(actions))
            event, actions = _record(fields, "event", EVENTS, where), []
            number, missing = _count(fields, "n", where), _count(fields, "actions", where)
        elif "action" in fields and missing and fields.get("n") == number:
            actions.append(_record(fields, "action", _ACTIONS, where))
            missing -= 1
        else:
            raise InputError("is neither an event nor the action of the one before it", where=where)
    if missing:
        _log.warning("%s: the last event, %d, lacks %d of its actions and is left out", path, number, missing)
    elif event is not None:
        yield Entry(number, event, tuple(actions))


def encode_record(record: Any) -> bytes:
    """An event, or another record of plain fields, as JSON; numbers have full precision."""
    return msgspec.json.encode(record)


def decode_record(data: bytes, kind: type[_T], where: str) -> _T:
    """The record that `encode_record` wrote. Raises InputError, naming `where`, when it is none of this kind."""
    try:
        return msgspec.convert(_with_nan(json.loads(data)), kind)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise InputError(f"is no {kind.__name__}: {cut(str(error))}", where=where) from None


def _count(fields: Mapping[str, Any], key: str, where: str) -> int:
    value = fields.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{key} is {cut(value)}; allowed: a whole number from 0 on", where=where)
    return value


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is damaged: {error}", where=where) from None
    if not isinstance(fields, dict):
        raise InputError("is no JSON object", where=where)
    return fields


def _record(fields: Mapping[str, Any], key: str, kinds: Mapping[str, Any], where: str) -> Any:
    kind = fields[key]
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"unknown {key} {cut(kind)}; allowed: {', '.join(kinds)}", where=where)
    try:
        return msgspec.convert(_with_nan(fields.get("data")), kinds[kind])
    except (msgspec.ValidationError, UnicodeError) as error:
        raise InputError(f"is no {kind}: {cut(str(error))}", where=where) from None


def _with_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: math.nan if item is None and name in _NOT_STATED else _with_nan(item)
            for name, item in value.items()
        }
    return value
