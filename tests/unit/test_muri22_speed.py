"""The published simulator's time per iteration of a group, on cases worked out by hand."""

import itertools

import numpy as np
import pytest

from cluster_exp.domain.models import Order
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.contention import MURI22_CHUNKS_CONTENTION, MURI22_CONTENTION
from cluster_exp.interleave.muri22 import Muri22Speed, pipeline_periods_s


def profile(load: float, compute: float, exchange: float) -> StageProfile:
    return StageProfile(load + compute + exchange, load / 4, load * 3 / 4, compute, exchange)


LOADER, BRAIN = profile(1, 0, 0), profile(0, 1, 0)


def random_profiles(seed: int, size: int) -> tuple[StageProfile, ...]:
    return tuple(profile(*row) for row in np.random.default_rng(seed).uniform(0.0, 1.0, (size, 3)).tolist())


def test_alone_an_iteration_takes_what_the_trace_says_and_a_little_more() -> None:
    speed = Muri22Speed()
    assert speed.alone_s(StageProfile(0.521, 0, 0, 0.3, 0)) == 521 * 1.015 / 1000
    assert speed.group((LOADER,)).iteration_s == (1.015,)


def test_a_pipeline_of_two_depends_on_who_starts() -> None:
    """Steps of (LOADER, BRAIN): ends 0 0 1 1 2 2, so 2 s; of (BRAIN, LOADER): 0 0 0 1 1 1, so 1 s."""
    times = np.array([[(1, 0, 0), (0, 1, 0)], [(0, 1, 0), (1, 0, 0)]], dtype=float)
    assert pipeline_periods_s(times).tolist() == [2, 1]


def test_the_best_and_the_worst_order_of_two() -> None:
    factor = 1.33 / 1.015
    speed = Muri22Speed()
    assert speed.group((LOADER, BRAIN)).cycle_s == pytest.approx(factor)
    assert speed.group((LOADER, BRAIN), Order.WORST).cycle_s == pytest.approx(2 * factor)


def test_two_can_load_opposite_to_each_other() -> None:
    """Each loads 1 s and computes 1 s: max(1, 1) + max(1, 1), an order that no pipeline of two gives."""
    both = (profile(1, 1, 0), profile(1, 1, 0))
    chosen = Muri22Speed().group(both)
    assert chosen.cycle_s == pytest.approx(2 * 1.33 / 1.015)
    assert Muri22Speed().evaluate(both, chosen.offsets) == chosen


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("size", [2, 3, 4])
def test_offsets_give_the_chosen_order_back(size: int, order: Order) -> None:
    for seed in range(20):
        profiles = random_profiles(seed, size)
        chosen = Muri22Speed().group(profiles, order)
        assert len(set(chosen.offsets)) == size
        assert Muri22Speed().evaluate(profiles, chosen.offsets) == chosen


@pytest.mark.parametrize("size", [2, 3, 4])
def test_no_order_beats_the_best_and_none_is_behind_the_worst(size: int) -> None:
    profiles = random_profiles(7, size)
    speed = Muri22Speed()
    best, worst = (speed.group(profiles, order).cycle_s for order in (Order.BEST, Order.WORST))
    for offsets in itertools.permutations(range(4), size):
        if {-offset % 4 for offset in offsets} == set(range(size)):
            assert best <= speed.evaluate(profiles, offsets).cycle_s <= worst


def test_members_in_any_sequence_are_equally_fast() -> None:
    profiles = random_profiles(3, 4)
    cycles_s = {round(Muri22Speed().group(p).cycle_s, 12) for p in itertools.permutations(profiles)}
    assert len(cycles_s) == 1


def test_three_contend_more_than_four_as_published() -> None:
    assert MURI22_CONTENTION.factor(3) > MURI22_CONTENTION.factor(4) > MURI22_CHUNKS_CONTENTION.factor(4)
