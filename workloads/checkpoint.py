"""A training's state to and from a file."""

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from workloads.errors import WorkloadError


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
    with open(unfinished, "wb") as file:
        torch.save(dict(state), file)
        file.flush()
        os.fsync(file.fileno())
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


def load_at(path: Path, iterations: int) -> dict[str, Any]:
    """The state of so many iterations: the last one that was saved, or the one before it, which then is the last.

    Raises:
        WorkloadError: there is none, or a file is no checkpoint.
    """
    state = load(path)
    if state is not None and state["iterations"] == iterations:
        return state
    held = "no checkpoint" if state is None else f"one of {state['iterations']}"
    state = load(former(path))
    if state is None or state["iterations"] != iterations:
        raise WorkloadError(f"holds {held}, and the launcher counts {iterations} iterations", where=str(path))
    os.replace(former(path), path)
    _sync(path)
    return state


def load(path: Path) -> dict[str, Any] | None:
    """A saved state, its tensors on the CPU, or None where no file lies. Runs no code that the file may hold.

    Raises:
        WorkloadError: the file is no checkpoint.
    """
    if not path.exists():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise WorkloadError(f"no checkpoint that can be read: {reason}", where=str(path)) from error
    if not isinstance(state, dict) or "format" not in state:
        raise WorkloadError("holds something else than a training's state", where=str(path))
    return state
