"""The folder of the jobs' checkpoints, which all nodes share."""

import os
import uuid
from pathlib import Path

from cluster_exp.domain.errors import InputError
from cluster_exp.protocol.messages import CheckpointRules

_MARK = ".cluster-exp-mark"


def open_shared(directory: Path, every: int) -> CheckpointRules:
    """Makes the folder and puts a mark into it by which workers know it again; the mark of another run is replaced.

    Args:
        directory: made when it is not there; only its owner can read it.
        every: iterations between checkpoints on the way; 0 = only when told to leave.

    Raises:
        InputError: it cannot be made or written to.
    """
    mark = uuid.uuid4().hex
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        unfinished = directory / f"{_MARK}.{mark}"
        unfinished.write_text(mark)
        os.replace(unfinished, directory / _MARK)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written to: {error.strerror}", where="--checkpoint-dir") from error
    return CheckpointRules(str(directory.resolve()), mark, every)


def check_shared(rules: CheckpointRules) -> None:
    """Raises InputError when this machine does not see the master's folder under its path."""
    path = Path(rules.directory) / _MARK
    try:
        found = path.read_text()
    except (OSError, UnicodeDecodeError):
        found = ""
    if found != rules.mark:
        seen = "another folder lies there" if found else "no such folder is seen here"
        raise InputError(
            f"--checkpoint-dir {rules.directory}: {seen}; a path that the master and all workers share is needed"
        )
