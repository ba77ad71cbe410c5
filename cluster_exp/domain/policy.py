"""What a scheduling policy is."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from cluster_exp.domain.plan import Plan
from cluster_exp.domain.snapshot import Snapshot


@runtime_checkable
class Policy(Protocol):
    """A pure function from a snapshot (and its own last memory) to a plan.

    It keeps nothing between calls, reads no clock and draws no random numbers: the same arguments give the same
    plan. What it wants to remember goes into `Plan.memory` (JSON values) and comes back at the next call.
    """

    @property
    def name(self) -> str:
        """Name as in the registry."""
        ...

    @property
    def reads(self) -> frozenset[str]:
        """Gated columns that it reads; all others are NaN to it."""
        ...

    @property
    def learns(self) -> bool:
        """Whether it reads `Snapshot.ended`."""
        ...

    @property
    def plans_rates(self) -> bool:
        """Whether members of its groups advance at rates of their own, not in lockstep."""
        ...

    def plan(self, snapshot: Snapshot, memory: Mapping[str, Any]) -> Plan:
        """Decides who runs with whom; `memory` is empty at the first call."""
        ...


class Trait(Enum):
    """What a cost model or the simulator may ask of a policy."""

    SHARES = "shares"  # several jobs can get the same GPUs
    UNWEIGHED = "unweighed"  # shares without comparing how well groups interleave
    WAKES = "wakes"  # asks for plans between events
    COUNTS = "counts"  # decides by numbers of GPUs, not by nodes
    FLOORED = "floored"  # is measured with no group faster than its slowest member alone, unlike published accounting
    FILLS = "fills"  # while every job runs alone, leaves all of them so if they fit in whatever order


def traits_of(policy: Policy) -> frozenset[Trait]:
    """The policy's `traits`; a policy without that attribute has none."""
    traits: frozenset[Trait] = getattr(policy, "traits", frozenset())
    return traits
