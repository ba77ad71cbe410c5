"""Files that only their owner can read: what jobs print may hold secrets."""

import os
from pathlib import Path
from typing import BinaryIO


def append_private(path: Path) -> BinaryIO:
    """Opens a file to append to, readable by nobody else, whatever the umask and its former mode."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "ab")
