"""The gate of the demo: a live run has to come out as its simulation said."""

from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 0.10


@dataclass(frozen=True, slots=True)
class Verdict:
    """Live against simulated for one policy."""

    policy: str
    difference: float  # (live - simulated) / simulated, of the average JCT
    passed: bool


def judge(averages_s: Sequence[tuple[str, float, float]], tolerance: float = TOLERANCE) -> tuple[Verdict, ...]:
    """Compares average JCTs.

    Args:
        averages_s: (policy, live, simulated), seconds; NaN (no job finished) never passes.
        tolerance: largest relative difference that passes.
    """
    verdicts = []
    for policy, live_s, simulated_s in averages_s:
        difference = (live_s - simulated_s) / simulated_s
        verdicts.append(Verdict(policy, difference, abs(difference) <= tolerance))
    return tuple(verdicts)
