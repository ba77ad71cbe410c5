"""Cycle time of a group in lockstep, and the orders of turns that it can take."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations

import numpy as np

from cluster_exp.domain.columns import FloatColumn
from cluster_exp.domain.models import Order
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import MAX_GROUP_SIZE, NUM_RESOURCES


@lru_cache(maxsize=MAX_GROUP_SIZE)
def orders(size: int) -> tuple[tuple[int, ...], ...]:
    """The distinct orders of turns of `size` jobs: one offset a job, the first job's being 0.

    Offsets are distinct numbers in 0..3; in slot s a member uses resource (s + offset) mod 4. Rotating all offsets
    by the same number gives the same cycle, so the first job's is fixed: 1, 3, 6 and 6 orders for 1 to 4 jobs.

    Raises:
        ValueError: `size` is not in 1..4.
    """
    if not 1 <= size <= MAX_GROUP_SIZE:
        raise ValueError(f"a group has 1 to {MAX_GROUP_SIZE} jobs, not {size}")
    rest = range(1, NUM_RESOURCES)
    return tuple((0, *others) for others in permutations(rest, size - 1))


def slot_lengths(profiles: Sequence[StageProfile], offsets: Sequence[int]) -> tuple[float, ...]:
    """Length in seconds of each of the cycle's four slots: the longest stage that falls into it."""
    stages = [profile.stages for profile in profiles]
    return tuple(
        max(times[(slot + offset) % NUM_RESOURCES] for times, offset in zip(stages, offsets, strict=True))
        for slot in range(NUM_RESOURCES)
    )


def lockstep_cycle_s(profiles: Sequence[StageProfile], offsets: Sequence[int]) -> float:
    """One period in seconds of jobs that advance in lockstep: the sum of the slots' lengths.

    Muri (SIGCOMM'22), section 4.1. No period is shorter than what a member needs for an iteration alone: its
    idle time cannot be interleaved away (docs/decisions/cycle-time.md).
    """
    return max(sum(slot_lengths(profiles, offsets)), max(profile.iteration_s for profile in profiles))


def lockstep_cycles_s(stages: FloatColumn, iteration_s: FloatColumn, order: Order = Order.BEST) -> FloatColumn:
    """The same for many groups of as many members, each in its best (or worst) order.

    Args:
        stages: stage times in seconds, groups x members x 4.
        iteration_s: seconds per iteration alone, groups x members.
        order: which order each group takes.
    """
    found: FloatColumn | None = None
    for offsets in orders(stages.shape[1]):
        turned = [np.roll(stages[:, member], -offset, axis=1) for member, offset in enumerate(offsets)]
        slots = np.maximum.reduce(turned)
        # Added up in the order of `sum`, so that a group's cycle is the same, bit for bit, however it is computed.
        cycle_s: FloatColumn = np.maximum(
            ((slots[:, 0] + slots[:, 1]) + slots[:, 2]) + slots[:, 3], iteration_s.max(axis=1)
        )
        if found is None:
            found = cycle_s
        else:
            found = np.minimum(found, cycle_s) if order is Order.BEST else np.maximum(found, cycle_s)
    assert found is not None
    return found


def cycles(profiles: Sequence[StageProfile]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """(cycle time in seconds, offsets) for every order of the jobs."""
    for offsets in orders(len(profiles)):
        yield lockstep_cycle_s(profiles, offsets), offsets
