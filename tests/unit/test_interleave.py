import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest

import cluster_exp.interleave.turn_rates as turn_rates
from cluster_exp.domain.models import Order
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.contention import MURI22_CONTENTION
from cluster_exp.interleave.cycle import lockstep_cycle_s, orders, slot_lengths
from cluster_exp.interleave.efficiency import efficiency
from cluster_exp.interleave.speed import LockstepSpeed, RatesSpeed, make_speed


def profile(*stages: float, iteration_s: float | None = None) -> StageProfile:
    return StageProfile(sum(stages) if iteration_s is None else iteration_s, *stages)


# Each is busy on one resource only.
READER, COOK, BRAIN, TALKER = (profile(*(1.0 if r == s else 0.0 for r in range(4))) for s in range(4))


@pytest.mark.parametrize(("size", "count"), [(1, 1), (2, 3), (3, 6), (4, 6)])
def test_distinct_orders_up_to_rotation(size: int, count: int) -> None:
    found = orders(size)
    assert len(found) == count
    rotations = {
        frozenset(tuple((offset + shift) % 4 for offset in offsets) for shift in range(4)) for offsets in found
    }
    assert len(rotations) == count
    everything = {
        frozenset(tuple((offset + shift) % 4 for offset in offsets) for shift in range(4))
        for offsets in itertools.permutations(range(4), size)
    }
    assert rotations == everything


@pytest.mark.parametrize("size", [0, 5])
def test_orders_of_an_impossible_group(size: int) -> None:
    with pytest.raises(ValueError, match="1 to 4 jobs"):
        orders(size)


def test_slots_hold_their_longest_stage() -> None:
    left, right = profile(1, 2, 3, 4), profile(10, 20, 30, 40)
    # Offsets 0 and 2: slot 0 has storage of the left and gpu of the right, slot 1 cpu and network, and so on.
    assert slot_lengths((left, right), (0, 2)) == (30, 40, 10, 20)
    assert lockstep_cycle_s((left, right), (0, 2)) == 100


def test_cycle_is_never_shorter_than_an_iteration_alone() -> None:
    idler = profile(0.1, 0.1, 0.1, 0.1, iteration_s=5.0)
    assert lockstep_cycle_s((idler, READER), (0, 1)) == 5.0


def test_complementary_jobs_share_without_loss() -> None:
    speed = LockstepSpeed()
    four = speed.group((READER, COOK, BRAIN, TALKER))
    assert four.cycle_s == 1.0
    assert efficiency((READER, COOK, BRAIN, TALKER), four.cycle_s) == 1.0
    assert speed.group((READER, COOK, BRAIN, TALKER), Order.WORST).cycle_s > 1.0


def test_equal_jobs_gain_nothing() -> None:
    assert LockstepSpeed().group((BRAIN, BRAIN)).cycle_s == 2.0


def test_efficiency_of_a_job_alone() -> None:
    assert efficiency((profile(1, 1, 2, 0),), 4.0) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="longer than 0"):
        efficiency((BRAIN,), 0.0)


def test_contention_lengthens_the_cycle_of_groups_only() -> None:
    speed = LockstepSpeed(MURI22_CONTENTION)
    assert speed.group((BRAIN,)).cycle_s == 1.0
    assert speed.group((BRAIN, COOK)).cycle_s == pytest.approx(1.33 / 1.015)


def test_at_rates_a_short_job_does_several_iterations_beside_a_long_one() -> None:
    short, long = profile(0, 0.1, 0.1, 0), profile(0, 0.0, 1.0, 0, iteration_s=2.0)
    lockstep = LockstepSpeed().group((short, long))
    rates = RatesSpeed().group((short, long))
    assert lockstep.iteration_s == (2.0, 2.0)
    used_gpu = 0.1 / rates.iteration_s[0] + 1.0 / rates.iteration_s[1]
    assert used_gpu <= 1.0 + 1e-12
    # Of a long iteration's two seconds the GPU is away for one; in the other the short job needs 0.2 s each time.
    assert 0.3 < rates.iteration_s[0] < 0.5
    assert rates.iteration_s[1] == pytest.approx(2.0, rel=0.06)


def test_turns_on_one_resource_go_round() -> None:
    busy = profile(0, 0, 1.0, 0)
    for size in (2, 3, 4):
        assert RatesSpeed().group([busy] * size).iteration_s == pytest.approx((size * 1.0,) * size)
    lazy = profile(0, 0, 0.1, 0, iteration_s=2.0)
    assert RatesSpeed().group([lazy] * 4).iteration_s == pytest.approx((2.0,) * 4)


def test_contention_lengthens_iterations_at_rates() -> None:
    busy = profile(0, 0, 1.0, 0)
    assert RatesSpeed(MURI22_CONTENTION).group([busy] * 2).iteration_s == pytest.approx((2 * 1.33 / 1.015,) * 2)


def test_plain_python_gives_the_rates_that_the_compiled_form_gives() -> None:
    path = Path(turn_rates.__file__).with_name("turn_rates.py")
    spec = importlib.util.spec_from_file_location("plain_turn_rates", path)
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    draw = np.random.default_rng(7)
    stages = draw.uniform(0.0, 1.0, (40, 3, 4)) * (draw.uniform(0, 1, (40, 3, 4)) > 0.2)
    iteration_s = stages.sum(axis=2) * draw.uniform(0.6, 1.6, (40, 3)) + 0.01
    assert (plain.turn_rates(stages, iteration_s) == turn_rates.turn_rates(stages, iteration_s)).all()


def test_unknown_speed_models_are_errors() -> None:
    assert isinstance(make_speed("lockstep", "none"), LockstepSpeed)
    with pytest.raises(KeyError):
        make_speed("hope", "none")
