"""A sweep's directory: what it was made from, which runs of it are done, and that one sweep at a time uses it."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Any

from cluster_exp import __version__
from cluster_exp.domain.errors import InputError
from cluster_exp.results.run_directory import JOBS_FILE, JOURNAL_FILE, RUN_FILE, RunStatus, check_free, read_run
from cluster_exp.sweep.spec import SweepSpec

SPEC_FILE, TABLE_FILE, LOCK_FILE = "sweep.json", "sweep.csv", ".lock"
_FORMAT_VERSION = 1
_RUN_FILES = (JOBS_FILE, JOURNAL_FILE, "run.tmp", RUN_FILE)


@contextmanager
def opened(directory: Path, spec: SweepSpec, *, checkpoint: bool) -> Iterator[None]:
    """Holds the directory for a sweep, which is new or, with `checkpoint`, may be the one that lies there.

    Raises:
        InputError: it holds something else, a sweep although `checkpoint` is not asked for, the sweep of another
            file or with other inputs (the message names the first difference), or one that is still at work.
        OSError: it cannot be written to.
    """
    made_from = _made_from(spec)
    _check(directory, made_from, checkpoint=checkpoint)
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / LOCK_FILE, "a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # its runs join in
        except BlockingIOError:
            raise _error(directory, "is in use by a sweep that is still at work") from None
        _check(directory, made_from, checkpoint=checkpoint)
        if not (directory / SPEC_FILE).exists():
            write_whole(directory / SPEC_FILE, json.dumps(made_from, indent=2) + "\n")
        yield


@contextmanager
def stay_in(directory: Path) -> Iterator[None]:
    """Keeps other sweeps out of the directory while a run of this one is at work in it, its parent killed or not."""
    with open(directory / LOCK_FILE, "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that it is there whole or not at all, also after a crash. Raises OSError."""
    draft = path.with_name(f"{path.name}.tmp")
    try:
        with open(draft, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def status_of(directory: Path) -> RunStatus | None:
    """How far a run came; None when there is none, or too little of it to tell."""
    try:
        return RunStatus(read_run(directory).get("status"))
    except (InputError, ValueError):
        return None


def is_done(directory: Path) -> bool:
    """Whether a run need not be done again."""
    return status_of(directory) is RunStatus.FINISHED and (directory / JOBS_FILE).exists()


def remove_run(directory: Path) -> None:
    """Removes what a run that is not done left.

    Raises:
        InputError: something else lies there too.
        OSError: it cannot be removed.
    """
    if not directory.exists():
        return
    for path in sorted(directory.iterdir()):
        if path.name not in _RUN_FILES:
            raise _error(directory, f"holds {path.name!r}, which no run writes; move it away")
    for name in _RUN_FILES:
        (directory / name).unlink(missing_ok=True)
    directory.rmdir()


def _made_from(spec: SweepSpec) -> dict[str, Any]:
    digests = {}
    for given, path in spec.files.items():
        try:
            with open(path, "rb") as file:
                digests[given] = file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    return {"format": _FORMAT_VERSION, "cluster_exp": __version__, "spec": spec.words(), "files": digests}


def _check(directory: Path, made_from: Mapping[str, Any], *, checkpoint: bool) -> None:
    path = directory / SPEC_FILE
    if not path.exists():
        check_free(directory)
        if (directory / TABLE_FILE).exists():
            raise _error(directory, f"holds {TABLE_FILE} but no {SPEC_FILE}; name an empty or a new directory")
        return
    difference = _difference(_read(path), made_from)
    if difference:
        raise _error(directory, f"holds another sweep: {difference}; name a new directory")
    if not checkpoint:
        raise _error(
            directory, "holds this sweep already; add --checkpoint to go on with it, or name a new directory"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        made_from = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(made_from[key], dict) for key in ("spec", "files")):
            raise TypeError
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, TypeError, KeyError):
        raise InputError("is damaged, so what this sweep was made from is not known", where=str(path)) from None
    return dict(made_from)


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The first thing in which a sweep differs from the one to be run, in words; empty when nothing does."""
    for key, words in (("format", "its format"), ("cluster_exp", "the version that made it")):
        if there.get(key) != here[key]:
            return f"{words} is {there.get(key)!r}, here {here[key]!r}"
    for key, value in here["spec"].items():
        if there["spec"].get(key) != value:
            return f"{key} was {there['spec'].get(key)!r}, is {value!r}"
    changed = [given for given, digest in here["files"].items() if there["files"].get(given) != digest]
    return f"the file {changed[0]!r} has changed since" if changed else ""


def _error(directory: Path, message: str) -> InputError:
    return InputError(f"{str(directory)!r} {message}", where="--out")
