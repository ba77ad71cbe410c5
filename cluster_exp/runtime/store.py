"""A run's state file: one SQLite database in WAL mode that holds what a master needs to be again what it was.

The table `log` holds the rows of `protocol.log` in order, each with a check sum; `meta` holds what the run is. Rows
that only tell progress wait for company: a crash may lose them, because workers say them again.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

from cluster_exp.domain.actions import Action
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.events import Event, Measured, Progressed
from cluster_exp.protocol.controller import sum_of
from cluster_exp.protocol.log import NOTES, Happened, Note, Row
from cluster_exp.results.journal import EVENTS, decode_record, encode_record

FORMAT_VERSION = 1
_APPLICATION_ID = 0x436C4578  # how SQLite's `application_id` names these files
_MOST_WAITING = 1_000  # rows of progress
_LONGEST_WAIT_S = 5.0  # wall time that rows of progress wait
_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE log (n INTEGER PRIMARY KEY, kind TEXT NOT NULL, data BLOB NOT NULL, actions_sum INTEGER, "
    "sum INTEGER NOT NULL, unix_s REAL NOT NULL)",
)


# A damaged name in the file is quoted by SQLite's message, which then cannot be decoded.
_DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError)


class StateError(OSError):
    """The state file does not take what has to be safe; the message is one line."""


class StateFile:
    """A state file that is open (`protocol.log.Log`). Only one process can have it open."""

    def __init__(self, path: Path, connection: sqlite3.Connection, length: int) -> None:
        """Use `create` or `reopen`."""
        self.path = path
        self._connection = connection
        self._length = length  # rows, those that wait included
        self._waiting: list[tuple[int, str, bytes, int | None, int, float]] = []
        self._urgent = False
        self._committed_s = time.monotonic()

    @staticmethod
    def create(path: Path, meta: Mapping[str, Any]) -> "StateFile":
        """Makes a new file that only its owner can read.

        Raises:
            InputError: there is one already.
            StateError: it cannot be made.
        """
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            raise InputError("exists already; `resume` goes on with it", where=str(path)) from None
        except OSError as error:
            raise StateError(f"state file {path}: {error.strerror}") from error
        with _named(path):
            connection = _connect(path)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            with _transaction(connection):
                for statement in _TABLES:
                    connection.execute(statement)
                connection.executemany(
                    "INSERT INTO meta VALUES (?, ?)", [(key, json.dumps(value)) for key, value in meta.items()]
                )
        return StateFile(path, connection, 0)

    @staticmethod
    def reopen(path: Path) -> "StateFile":
        """Opens the file of a run that ended, or whose master was killed.

        Raises:
            InputError: there is none, another process has it, it is damaged, or of another version.
        """
        if not path.is_file():
            raise InputError("there is no state file", where=str(path))
        try:
            with _kept_if_well(_connect(path)) as connection:
                marks = [
                    connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
                ]
                if marks != [_APPLICATION_ID, FORMAT_VERSION]:
                    raise InputError(_not_ours(*marks), where=str(path))
                verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
                if verdict != "ok":
                    raise sqlite3.DatabaseError(verdict)
                length = connection.execute("SELECT coalesce(max(n), 0) FROM log").fetchone()[0]
        except sqlite3.OperationalError as error:
            busy = "locked" in str(error)
            reason = "is in use: another master runs with it" if busy else f"cannot be opened: {_one_line(error)}"
            raise InputError(reason, where=str(path)) from error
        except _DAMAGE as error:
            raise InputError(f"is damaged: {_one_line(error)}", where=str(path)) from error
        return StateFile(path, connection, length)

    def meta(self) -> dict[str, Any]:
        """What the run is. Raises InputError when it cannot be read or is no JSON."""
        with _read(self.path):
            rows = self._connection.execute("SELECT key, value FROM meta").fetchall()
        try:
            return {key: json.loads(value) for key, value in rows}
        except (TypeError, ValueError, RecursionError):
            raise InputError("is damaged: its description is no JSON", where=str(self.path)) from None

    def set_meta(self, key: str, value: Any) -> None:
        """Writes one value of `meta` at once. Raises StateError."""
        with _named(self.path), _transaction(self._connection):
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))

    def rows(self) -> Iterator[Row]:
        """All rows in order.

        Raises:
            InputError: a row, which is named, is missing or damaged, or the file cannot be read.
        """
        with _read(self.path), closing(self._connection.cursor()) as cursor:
            cursor.execute("SELECT n, kind, data, actions_sum, sum FROM log ORDER BY n")
            for place, (number, kind, data, actions_sum, checksum) in enumerate(cursor, start=1):
                where = f"{self.path}: row {place} of log"
                if number != place or not isinstance(data, bytes) or checksum != _sum(kind, data, actions_sum):
                    raise InputError("is missing or damaged", where=where)
                if kind in EVENTS:
                    yield Happened(decode_record(data, EVENTS[kind], where), actions_sum)
                elif kind in NOTES:
                    yield decode_record(data, NOTES[kind], where)
                else:
                    raise InputError(f"is of an unknown kind {kind!r}", where=where)

    def age_s(self) -> float:
        """Wall seconds since the last row was written, by the system's clock; 0 when that was set back."""
        with _named(self.path):
            written_s = self._connection.execute("SELECT max(unix_s) FROM log").fetchone()[0]
        return 0.0 if written_s is None else max(0.0, time.time() - written_s)

    def record(self, event: Event, actions: Sequence[Action]) -> None:
        """Adds an event with the check sum of its actions."""
        self._add(event, sum_of(actions))
        self._urgent |= bool(actions) or not isinstance(event, Progressed | Measured)

    def note(self, note: Note) -> None:
        """Adds a note."""
        self._add(note, None)
        self._urgent = True

    def commit(self) -> None:
        """Makes all rows safe, if one of them matters or progress has waited for long.

        Raises:
            StateError: the disk does not take them; the file is as it was after the last commit.
        """
        if not self._waiting:
            return
        late = time.monotonic() - self._committed_s > _LONGEST_WAIT_S or len(self._waiting) > _MOST_WAITING
        if self._urgent or late:
            self.flush()

    def flush(self) -> None:
        """Makes all rows safe. Raises StateError."""
        with _named(self.path), _transaction(self._connection):
            self._connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)", self._waiting)
        self._waiting.clear()
        self._urgent = False
        self._committed_s = time.monotonic()

    def close(self) -> None:
        """Closes the file; what was not committed is dropped."""
        self._connection.close()

    def _add(self, record: Event | Note, actions_sum: int | None) -> None:
        self._length += 1
        kind, data = type(record).__name__, encode_record(record)
        self._waiting.append((self._length, kind, data, actions_sum, _sum(kind, data, actions_sum), time.time()))


def _sum(kind: str, data: bytes, actions_sum: int | None) -> int:
    return crc32(data, crc32(f"{kind} {actions_sum}".encode()))


def _connect(path: Path) -> sqlite3.Connection:
    # A plan is decided, and recorded, in a thread while the loop's thread leaves the file alone.
    connection = sqlite3.connect(path, timeout=0.5, isolation_level=None, check_same_thread=False)
    with _kept_if_well(connection):
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            connection.execute(f"PRAGMA {setting}")
    return connection


@contextmanager
def _kept_if_well(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Closes the connection, and so gives its lock back, if the block fails."""
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into one that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise StateError(f"state file {path}: {_one_line(error)}") from error


@contextmanager
def _read(path: Path) -> Iterator[None]:
    """Turns SQLite's errors in reading into one of the input."""
    try:
        yield
    except _DAMAGE as error:
        raise InputError(f"cannot be read: {_one_line(error)}", where=str(path)) from error


def _one_line(error: Exception) -> str:
    """SQLite names each damaged page on a line of its own; an error here has one line."""
    return " ".join(str(error).split())


def _not_ours(application_id: int, version: int) -> str:
    if application_id != _APPLICATION_ID:
        return "is no state file of this program"
    return f"has state format {version}, this version reads {FORMAT_VERSION}"
