"""A training's state to and from a file."""

import logging
import os
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from workloads.errors import WorkloadError

_log = logging.getLogger(__name__)


def path_of(directory: str | Path, rank: int) -> Path:
    """Where a rank's state lies: each has its own random states, some have their own games."""
    return Path(directory) / f"rank-{rank}.pt"


def former(path: Path) -> Path:
    """Where the state before that of `path` lies: another rank may have died before it wrote the same one."""
    return path.with_name(path.name + ".former")


def save(state: Mapping[str, Any], path: Path) -> None:
    """Writes the state, so that at any moment the file is the old one or the new one, whole; the old one is kept.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".new")
    try:
        with open(unfinished, "wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        unfinished.unlink(missing_ok=True)  # on a full disk its room is needed
        raise
    if path.exists():
        kept = path.with_name(path.name + ".kept")
        kept.unlink(missing_ok=True)
        os.link(path, kept)
        os.replace(kept, former(path))
    os.replace(unfinished, path)
    _sync(path)


def _sync(path: Path) -> None:
    """Makes the names in a file's folder last."""
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def found(folders: Sequence[Path], rank: int) -> dict[int, Path]:
    """A rank's whole checkpoints by iterations; of two with as many, that of the folder named first.

    One that is damaged is passed over with a warning.
    """
    whole: dict[int, Path] = {}
    for folder in folders:
        path = path_of(folder, rank)
        for candidate in (path, former(path)):
            try:
                state = load(candidate)
            except WorkloadError as error:
                _log.warning("passed over: %s", error)
                continue
            if state is not None:
                whole.setdefault(state["iterations"], candidate)
    return whole


def drop(folders: Sequence[Path], rank: int) -> None:
    """Removes a rank's checkpoints from folders, and those folders that are empty then."""
    for folder in folders:
        path = path_of(folder, rank)
        for old in (path, former(path)):
            old.unlink(missing_ok=True)
        with suppress(OSError):  # other ranks' files are there
            folder.rmdir()


def load(path: Path) -> dict[str, Any] | None:
    """A saved state, its tensors on the CPU, or None where no file lies. Runs no code that the file may hold.

    Raises:
        WorkloadError: the file is no checkpoint.
    """
    if not path.exists():
        return None
    try:
        with zipfile.ZipFile(path) as archive:  # PyTorch's format; it does not look at all check sums itself
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"the check sum of {damaged} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0]
        raise WorkloadError(f"no checkpoint that can be read: {reason}", where=str(path)) from error
    if not isinstance(state, dict) or "format" not in state:
        raise WorkloadError("holds something else than a training's state", where=str(path))
    return state
