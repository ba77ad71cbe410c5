"""Learning who slows whom: what is learnt, how sure it is, what is forgotten."""

import json
import random

import numpy as np
import pytest

from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave.contention import MURI22_CONTENTION, NO_CONTENTION
from cluster_exp.interleave.interference import Interference, as_seen, as_slowdown
from cluster_exp.interleave.pairwise import Drawn, Learnt, PairwiseSpeed
from cluster_exp.interleave.speed import LockstepSpeed, RatesSpeed

KINDS = 6
PROFILES = [StageProfile(1.0 + i / 10, 0.1, 0.2, 0.3, 0.1 + i / 20) for i in range(KINDS)]


def true_slowdown(a: int, b: int) -> float:
    return 1.1 + 0.15 * a * b / KINDS


def taught(pairs, times: int = 3, noise: float = 0.0) -> Interference:
    draw, learnt = random.Random(1), Interference(MURI22_CONTENTION)
    for _ in range(times):
        for a, b in pairs:
            learnt.observe(a, (b,), true_slowdown(a, b) * (1 + draw.uniform(-noise, noise)))
    return learnt


def predicted(learnt: Interference, *group: int, kinds: int = KINDS) -> float:
    return float(learnt.effects(kinds).slowdowns(np.array([group]))[0, 0])


ALL = [(a, b) for a in range(KINDS) for b in range(KINDS)]


def test_before_any_observation_the_prior_counts():
    learnt = Interference(MURI22_CONTENTION)
    for size in (1, 2, 3, 4):
        assert predicted(learnt, *range(size)) == pytest.approx(MURI22_CONTENTION.factor(size))


def test_slowdowns_come_back_from_the_scale_on_which_they_add_up():
    slowdowns = np.array([1.0, 1.3, 5.0])
    assert as_slowdown(as_seen(slowdowns)) == pytest.approx(slowdowns)
    assert as_slowdown(as_seen(0.2)) == pytest.approx(1.0)


def test_pairs_that_were_seen_are_known_and_others_are_closer_than_the_prior():
    seen = [pair for pair in ALL if (pair[0] + pair[1]) % 3]
    learnt = taught(seen, times=10)
    for a, b in seen:
        assert predicted(learnt, a, b) == pytest.approx(true_slowdown(a, b), rel=0.04)
    others = [pair for pair in ALL if pair not in seen]
    learnt_error = np.mean([abs(predicted(learnt, a, b) - true_slowdown(a, b)) for a, b in others])
    prior_error = np.mean([abs(MURI22_CONTENTION.factor(2) - true_slowdown(a, b)) for a, b in others])
    assert learnt_error < 0.4 * prior_error


def test_larger_groups_have_an_effect_of_their_own():
    learnt = Interference(MURI22_CONTENTION)
    for _ in range(20):
        for kind in range(3):
            learnt.observe(kind, (0, 1, 2), 2.0)
            learnt.observe(kind, (0,), 1.2)
    assert predicted(learnt, 0, 0, 1, 2) == pytest.approx(2.0, rel=0.05)
    assert predicted(learnt, 1, 0) == pytest.approx(1.2, rel=0.05)


def test_one_wild_observation_hardly_moves_what_is_known():
    learnt = taught(ALL, times=10)
    before = predicted(learnt, 2, 3)
    learnt.observe(2, (3,), 40.0)
    assert predicted(learnt, 2, 3) == pytest.approx(before, rel=0.2)


def test_what_changed_is_learnt_anew():
    learnt = Interference(NO_CONTENTION)
    for _ in range(500):
        learnt.observe(0, (1,), 1.2)
    for _ in range(150):
        learnt.observe(0, (1,), 2.0)
    assert predicted(learnt, 0, 1, kinds=2) > 1.8


def test_it_is_surer_of_what_it_saw_more_often():
    learnt = taught([(0, 1)] * 20 + [(2, 3)], noise=0.1)
    deviation = learnt.effects(KINDS).deviation
    assert deviation[0, 1] < deviation[2, 3] < deviation[4, 5]


def test_its_state_comes_back_from_json():
    learnt = taught(ALL, noise=0.2)
    again = Interference.restored(json.loads(json.dumps(learnt.state())), MURI22_CONTENTION)
    assert again.state() == learnt.state()
    assert (again.effects(KINDS).pairs == learnt.effects(KINDS).pairs).all()
    with pytest.raises(ValueError, match="over the prior 'muri22', this one is 'none'"):
        Interference.restored(learnt.state(), NO_CONTENTION)


@pytest.mark.parametrize("lockstep", [True, False])
def test_where_nothing_was_learnt_the_contention_is_that_of_before(lockstep):
    turns, before = (
        (LockstepSpeed(), LockstepSpeed(MURI22_CONTENTION))
        if lockstep
        else (RatesSpeed(), RatesSpeed(MURI22_CONTENTION))
    )
    speed = PairwiseSpeed(turns, Learnt(Interference(MURI22_CONTENTION).effects(0), {}), lockstep)
    for size in (1, 2, 3, 4):
        ours, theirs = speed.group(PROFILES[:size]), before.group(PROFILES[:size])
        assert ours.cycle_s == pytest.approx(theirs.cycle_s)
        assert ours.iteration_s == pytest.approx(theirs.iteration_s)


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize("slowdowns", ["drawn", "learnt"])
def test_many_groups_are_as_fast_as_each_of_them(lockstep, slowdowns):
    kinds = {profile: i for i, profile in enumerate(PROFILES[:4])}  # the others were never seen
    which = Drawn(3) if slowdowns == "drawn" else Learnt(taught(ALL).effects(KINDS), kinds)
    speed = PairwiseSpeed(LockstepSpeed() if lockstep else RatesSpeed(), which, lockstep)
    draw = random.Random(4)
    for size in (1, 2, 3, 4):
        members = np.array([[draw.randrange(KINDS) for _ in range(size)] for _ in range(20)])
        groups = [[PROFILES[i] for i in row] for row in members.tolist()]
        each = np.array([speed.group(group).iteration_s for group in groups])
        assert speed.iterations_s(PROFILES, members) == pytest.approx(each)
        assert speed.cycles_s(PROFILES, members) == pytest.approx([speed.group(group).cycle_s for group in groups])
        if lockstep:
            assert (each == each[:, :1]).all()


def test_a_drawn_truth_depends_on_seed_and_profiles_only():
    members = np.array([[0, 1], [1, 0], [2, 2]])
    one, same, other = (Drawn(seed).of(PROFILES, members) for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()
    assert (one >= 1.05).all()
    moved = Drawn(1).of(PROFILES[::-1], KINDS - 1 - members)
    assert (one == moved).all()
