"""What every process of the benchmark needs: its limits, its memory, and that it leaves with its parent."""

import ctypes
import os
import resource
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1


class LimitError(RuntimeError):
    """The system does not allow what the benchmark needs; the message is one line."""


def raise_open_files(needed: int) -> None:
    """Allows this process `needed` open files. Raises LimitError when the hard limit cannot be raised to that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    allowed = hard if hard == resource.RLIM_INFINITY else max(hard, needed)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, allowed))
    except (ValueError, OSError):
        raise LimitError(
            f"{needed} open files a process are needed, {hard} are allowed (ulimit -Hn); "
            "raise the hard limit, or use more --hosts or fewer --workers"
        ) from None


def leave_with_parent(parent_pid: int) -> None:
    """From now on this process gets SIGKILL when its parent dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        raise SystemExit(1)


def peak_memory_mib() -> float:
    """Largest resident set of this process so far, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float("nan")
