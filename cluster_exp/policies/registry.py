"""All policies by name: one row each."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass

from cluster_exp.domain.errors import InputError
from cluster_exp.domain.policy import Policy
from cluster_exp.policies import muri, queue


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy's entry."""

    name: str
    description: str  # one line
    make: Callable[[], Policy]


POLICIES: dict[str, PolicyRow] = {
    row.name: row
    for row in (
        PolicyRow("fifo", "first in, first out; no preemption", queue.fifo),
        PolicyRow("sjf", "shortest stated duration first; no preemption", queue.sjf),
        PolicyRow("srtf", "shortest remaining time first", queue.srtf),
        PolicyRow("srsf", "shortest remaining time x GPUs first", queue.srsf),
        PolicyRow("muri-s", "interleaves jobs of one GPU count, shortest remaining service first", muri.muri_s),
    )
}


def policy_names() -> tuple[str, ...]:
    """Names of all policies, in the order of the registry."""
    return tuple(POLICIES)


def describe(name: str) -> str:
    """One line on a policy. Raises InputError for an unknown name."""
    return _row(name).description


def make_policy(name: str) -> Policy:
    """A policy by name. Raises InputError for an unknown name, with the nearest one."""
    return _row(name).make()


def _row(name: str) -> PolicyRow:
    if name in POLICIES:
        return POLICIES[name]
    near = difflib.get_close_matches(name, POLICIES, n=1, cutoff=0.0)
    raise InputError(
        f"unknown policy {name!r}; nearest is {near[0]!r}; allowed: {', '.join(POLICIES)}", where="--policy"
    )
