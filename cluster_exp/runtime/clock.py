"""The run's compressed time."""

import time
from collections.abc import Callable


class ScaledClock:
    """Simulated seconds since it was made: wall time times `time_scale`."""

    def __init__(self, time_scale: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Starts at 0. Raises ValueError when `time_scale` is not positive."""
        if not time_scale > 0:
            raise ValueError(f"time_scale must be positive, not {time_scale}")
        self.time_scale = time_scale
        self._monotonic = monotonic
        self._start_s = monotonic()

    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return (self._monotonic() - self._start_s) * self.time_scale

    def restart(self, now_s: float = 0.0) -> None:
        """Makes `now_s`, in simulated seconds, the present."""
        self._start_s = self._monotonic() - now_s / self.time_scale

    def wall_s(self, simulated_s: float) -> float:
        """Wall seconds that a span of simulated seconds takes."""
        return simulated_s / self.time_scale

    def wall_until_s(self, at_s: float) -> float:
        """Wall seconds from now to a simulated time; 0 when it has passed."""
        return max(0.0, self.wall_s(at_s - self.now_s()))
