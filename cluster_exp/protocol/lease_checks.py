"""When to judge leases. Reads no clock."""

import math

_LEASE_CHECKS = 50  # looks at the leases within one of them


class LeaseChecks:
    """When to judge leases: not at every turn of the loop, and not when it was the master that did not listen."""

    def __init__(self, lease_s: float, longest_turn_s: float) -> None:
        """`longest_turn_s`: wall seconds that a turn of an idle loop lasts."""
        self._lease_s = lease_s
        self._held_up_s = max(lease_s / 2, 2 * longest_turn_s)
        self._listened_s = math.inf
        self._next_s = -math.inf

    def listened(self, now_s: float) -> None:
        """The loop took messages all the time up to now, in wall seconds of the caller's clock."""
        self._listened_s = now_s

    def due(self, now_s: float) -> bool:
        """Whether it is time, in wall seconds of the caller's clock.

        Workers get a whole lease to be heard after a time in which the loop stood still, as a suspended process does.
        """
        if now_s - self._listened_s > self._held_up_s:
            self._next_s = now_s + self._lease_s
        self._listened_s = now_s
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._lease_s / _LEASE_CHECKS
        return True
