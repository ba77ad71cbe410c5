"""Interleaving efficiency: how well a group keeps the four resources busy."""

from collections.abc import Sequence

from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import NUM_RESOURCES


def efficiency(profiles: Sequence[StageProfile], cycle_s: float) -> float:
    """Mean share of a cycle for which a resource is busy.

    gamma = 1 - (1/k) sum over resources r of (T - sum over jobs of t(r)) / T, Muri (SIGCOMM'22), equation 3, which
    is the sum of all stage times over k T. It exceeds 1 only where stages overlap within a job.

    Raises:
        ValueError: `cycle_s` is not positive.
    """
    if not cycle_s > 0:
        raise ValueError(f"a cycle lasts longer than 0 s, not {cycle_s}")
    return sum(profile.busy_s for profile in profiles) / (NUM_RESOURCES * cycle_s)
