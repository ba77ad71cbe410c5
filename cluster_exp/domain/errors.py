"""Errors that cross module borders."""


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
