"""Processes that outlived the worker that started them: found by a mark in their environment, and ended."""

import hashlib
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# In the environment of every trainer, and so of whatever it starts.
OWNER = "CLUSTER_EXP_OWNER"  # the node's worker, whichever process it is
LIFE = "CLUSTER_EXP_WORKER_LIFE"  # that process
_PROC = Path("/proc")
_LOOK_S = 0.02


def owner_mark(master: str, node: str) -> str:
    """The mark of what a node's worker starts for a master; the same for the worker that comes after it."""
    return hashlib.sha256(f"{master} {node}".encode()).hexdigest()[:32]


def end_marked(marks: Mapping[str, str], but: Mapping[str, str] | None = None, within_s: float = 5.0) -> int:
    """Sends SIGKILL to every process whose environment has these variables; returns how many there were.

    Those that have the variables of `but` as well stay, and those of other users, which cannot be seen. Waits until
    they are gone, `within_s` wall seconds at most.
    """
    found: set[int] = set()
    until_s = time.monotonic() + within_s
    while True:
        left = _marked(marks, but or {})
        if not left or time.monotonic() >= until_s:
            return len(found)
        found.update(left)
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_S)


def _marked(marks: Mapping[str, str], but: Mapping[str, str]) -> list[int]:
    wanted, unwanted = ({f"{name}={value}".encode() for name, value in some.items()} for some in (marks, but))
    own = str(os.getpid())
    pids = []
    for folder in _PROC.iterdir():
        if not folder.name.isdigit() or folder.name == own:
            continue
        with suppress(OSError):  # it is gone, or another user's; a zombie's environment is empty
            found = set((folder / "environ").read_bytes().split(b"\0"))
            if wanted <= found and not (unwanted and unwanted <= found):
                pids.append(int(folder.name))
    return pids
