"""Errors that cross module borders."""

_MOST_SHOWN = 80  # characters


def cut(value: object) -> str:
    """What was given, as a message shows it: on one line, and cut when it is long."""
    text = ascii(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


class InputError(ValueError):
    """A user's input is unusable; the message is one line and says where, what was given, what is allowed.

    Attributes:
        where: `file:line:column`, `file:line`, `file`, or an option's name; empty when there is no place.
    """

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where


class InvariantError(RuntimeError):
    """The program contradicts itself: a bug, never a user's mistake."""
