"""What a run's state file says of the command that began it, so that `resume` can go on with the same run."""

import argparse
import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster_exp import __version__
from cluster_exp.domain.errors import InputError

_INPUTS = ("trace", "cluster", "profiles", "workloads")  # options that name a file


def origin_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The command's words, where it was given, and check sums of the files that it names."""
    return {
        "version": __version__,
        "run": uuid.uuid4().hex[:12],  # tells it from every other run
        "words": getattr(arguments, "command_line", None),
        "cwd": str(Path.cwd()),
        "inputs": {name: _digest(Path(path)) for name in _INPUTS if (path := getattr(arguments, name, None))},
    }


def check_origin(origin: Mapping[str, Any], arguments: argparse.Namespace) -> None:
    """Raises InputError when a file that the command names is not what it was."""
    for name, digest in origin["inputs"].items():
        path = Path(getattr(arguments, name))
        if _digest(path) != digest:
            raise InputError(f"{str(path)!r} has changed since the run began, or is gone", where=f"--{name}")


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
