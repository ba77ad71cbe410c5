"""Measures where a simulation's time goes (`core.watch.Watch`)."""

import time

ENGINE = "engine"


class Stopwatch:
    """Seconds of processor time by part, without those of the parts within it; the engine is what is in no part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {ENGINE: 0.0}
        self._parts = [ENGINE]
        self._since_s = time.process_time()

    def enter(self, part: str) -> None:
        """A part begins."""
        self._count()
        self._parts.append(part)

    def leave(self) -> None:
        """The part that began last ends."""
        self._count()
        self._parts.pop()

    def stop(self) -> dict[str, float]:
        """Seconds by part up to now."""
        self._count()
        return dict(self.seconds)

    def _count(self) -> None:
        now_s, part = time.process_time(), self._parts[-1]
        self.seconds[part] = self.seconds.get(part, 0.0) + now_s - self._since_s
        self._since_s = now_s
