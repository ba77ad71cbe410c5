"""Where time goes: the core names what it is about to do, and whoever has a clock may measure it."""

from typing import Protocol


class Watch(Protocol):
    """Told when a named part begins and ends; parts may lie within one another."""

    def enter(self, part: str) -> None:
        """A part begins."""
        ...

    def leave(self) -> None:
        """The part that began last ends."""
        ...


class NoWatch:
    """Measures nothing."""

    def enter(self, part: str) -> None:
        """Does nothing."""

    def leave(self) -> None:
        """Does nothing."""


NO_WATCH = NoWatch()
POLICY = "policy, grouping"  # the whole of `plan`
PLACEMENT = "placement"  # and what differs from what runs
CORE = "rest of the core"
RECORD = "journal and job table"
