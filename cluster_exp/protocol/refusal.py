"""Why a request is turned down."""

from enum import Enum


class RefusalKind(Enum):
    """What the asker can do about it."""

    INVALID = "invalid"  # ask for something else
    PRECONDITION = "precondition"  # the asker's or the run's state does not allow it
    NOT_FOUND = "not found"
    TAKEN = "taken"  # the name is in use
    BUSY = "busy"  # ask again later


class Refused(Exception):
    """A request is turned down; the message is one line."""

    def __init__(self, kind: RefusalKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
