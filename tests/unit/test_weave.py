"""Weave's parts: patterns and prices, the search, lengths that nobody stated, weights."""

import importlib.util
import itertools
import random
from pathlib import Path

import numpy as np
import pytest

import cluster_exp.policies.weave_groups as compiled_groups
from cluster_exp.domain.profile import StageProfile
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.interleave.contention import MURI22_CONTENTION
from cluster_exp.interleave.muri22 import Muri22Speed
from cluster_exp.interleave.patterns import MOST_ENUMERATED, make_patterns
from cluster_exp.interleave.speed import LockstepSpeed, RatesSpeed
from cluster_exp.policies.lengths import expected_left_s, survival
from cluster_exp.policies.weave_problem import Problem, weights

LOADER = StageProfile(1.0, 0.7, 0.1, 0.1, 0.1)
LEARNER = StageProfile(1.0, 0.1, 0.1, 0.7, 0.1)
POLICIES = Path(compiled_groups.__file__).parent


def shipped(num_gpu: int = 1) -> list[StageProfile]:
    table = default_profiles()
    return [table.find(key) for key in table if key.num_gpu == num_gpu]


def drawn(draw: random.Random, number: int) -> list[StageProfile]:
    return [StageProfile(1.0, *(draw.uniform(0.02, 0.4) for _ in range(4))) for _ in range(number)]


@pytest.mark.parametrize(
    "speed", [LockstepSpeed(), LockstepSpeed(MURI22_CONTENTION), RatesSpeed(MURI22_CONTENTION), Muri22Speed()]
)
def test_the_speeds_of_many_groups_are_those_of_each(speed):
    profiles = drawn(random.Random(1), 5)
    for size in (1, 2, 3, 4):
        members = np.array(list(itertools.combinations_with_replacement(range(5), size)))
        many = speed.iterations_s(profiles, members)
        each = [speed.group([profiles[i] for i in row]).iteration_s for row in members.tolist()]
        assert many == pytest.approx(np.array(each), rel=1e-12)


def test_a_floored_period_is_never_below_a_members_own_iteration():
    published, floored = Muri22Speed(), Muri22Speed(floored=True)
    profiles = drawn(random.Random(2), 4)
    shorter = 0
    for pair in itertools.combinations_with_replacement(profiles, 2):
        least = max(floored.alone_s(profile) for profile in pair) * MURI22_CONTENTION.factor(2)
        assert floored.group(pair).cycle_s >= least * (1 - 1e-12)
        assert floored.group(pair).cycle_s == pytest.approx(max(published.group(pair).cycle_s, least))
        shorter += published.group(pair).cycle_s < least
    assert shorter


def test_patterns_are_all_multisets_of_few_kinds_and_prices_cover_them():
    patterns = make_patterns(LockstepSpeed(), [LOADER, LEARNER])
    assert len(patterns.members) == 2 + 3 + 4 + 5
    assert (patterns.speed[patterns.members < 0] == 0).all()
    assert (patterns.speed <= 1).all()
    # No pattern serves more than its members' prices pay for, and the prices are what serving all alike costs.
    paid = [
        sum(patterns.prices[kind] * speed for kind, speed in zip(row, speeds, strict=True) if kind >= 0)
        for row, speeds in zip(patterns.members.tolist(), patterns.speed.tolist(), strict=True)
    ]
    assert max(paid) == pytest.approx(1.0)
    alone = make_patterns(LockstepSpeed(), [LOADER, LEARNER], largest=1)
    assert alone.prices.tolist() == [1.0, 1.0]


def test_of_many_kinds_patterns_are_few_and_hold_every_kind():
    kinds = MOST_ENUMERATED + 20
    patterns = make_patterns(LockstepSpeed(), drawn(random.Random(3), kinds))
    assert len(patterns.members) < 30_000
    assert set(patterns.members[:, 3].tolist()) == {-1, *range(kinds)} | set(patterns.members[:, 3].tolist())
    for size in range(1, 5):
        held = patterns.members[(patterns.members >= 0).sum(axis=1) == size]
        assert set(held.ravel().tolist()) - {-1} == set(range(kinds))
    assert (np.diff(patterns.members[:, :1][patterns.members[:, 1] < 0], axis=0) > 0).all()


def problem(seed: int, jobs: int, speed=None) -> Problem:
    """Random jobs of the shipped profiles of one, two and four GPUs."""
    draw = random.Random(seed)
    tables, num_gpu, kind, left_s, prices = {}, [], [], [], []
    for width in (1, 2, 4):
        tables[width] = make_patterns(speed or LockstepSpeed(MURI22_CONTENTION), shipped(width))
    for _ in range(jobs):
        width = draw.choice([1, 1, 2, 4])
        num_gpu.append(width)
        kind.append(draw.randrange(len(shipped(width))))
        left_s.append(10 ** draw.uniform(1, 5))
        prices.append(tables[width].prices[kind[-1]])
    for width in (1, 2, 4):  # every kind occurs, so that kinds are numbered as in the tables
        for one in range(len(shipped(width))):
            num_gpu.append(width)
            kind.append(one)
            left_s.append(1e5)
            prices.append(tables[width].prices[one])
    columns = [np.array(column) for column in (num_gpu, kind, left_s, prices)]
    worth = weights(columns[2], columns[0], columns[3], 16, 10.0)
    kept = np.array([draw.uniform(0.8, 1.0) for _ in num_gpu])
    return Problem(np.arange(len(num_gpu)), columns[0], columns[1], worth, kept, tables)


def check(search, whole: Problem, gpus: int) -> None:
    """Every group is a pattern and is worth what it says; no job twice; the GPUs are enough."""
    store = search.store
    groups = whole.groups(search)
    jobs = [slot for group in groups for slot in group.tolist()]
    assert len(set(jobs)) == len(jobs)
    used = sum(int(store.widths[store.width_of[group]]) for group in range(store.num_groups))
    assert used + store.free == gpus
    assert store.free >= 0
    before = store.total()
    again = whole.search(gpus)
    members = np.asarray(store.group)[: 4 * store.num_groups].reshape(-1, 4)
    for row in members:
        assert again.store.put(row[row >= 0])
    assert again.store.total() == pytest.approx(before)


@pytest.mark.parametrize("seed", range(12))
def test_every_move_keeps_groups_valid_and_the_search_gains(seed):
    whole, gpus = problem(seed, 60), 16
    greedy = whole.search(gpus)
    greedy.add_members()
    check(greedy, whole, gpus)
    first = greedy.store.total()
    greedy.improve(6)
    check(greedy, whole, gpus)
    assert greedy.store.total() >= first * (1 - 1e-12)
    assert greedy.store.moves or greedy.store.total() == pytest.approx(first)


def test_few_jobs_get_gpus_of_their_own():
    whole = problem(5, 0)
    search = whole.search(1000)
    search.add_members()
    search.improve(6)
    assert all(len(group) == 1 for group in whole.groups(search))


def test_a_small_case_is_solved_as_trying_everything_does():
    tables = {1: make_patterns(LockstepSpeed(), [LOADER, LEARNER])}
    draw = random.Random(8)
    for _ in range(20):
        kind = np.array([0, 1, *(draw.randrange(2) for _ in range(3))])
        worth = np.array([draw.uniform(0.5, 2.0) for _ in kind])
        whole = Problem(np.arange(5), np.ones(5, np.int64), kind, worth, np.ones(5), tables)
        search = whole.search(2)
        search.add_members()
        search.improve(6)
        numbered = np.lexsort((-worth, kind))  # as the search numbers jobs
        best = 0.0
        for places in itertools.product(range(3), repeat=5):  # two GPUs, or waiting
            trial = whole.search(2)
            for gpu in (0, 1):
                jobs = np.array([i for i, job in enumerate(numbered.tolist()) if places[job] == gpu], dtype=np.int64)
                if jobs.size:
                    trial.store.put(jobs)
            best = max(best, trial.store.total())
        assert search.store.total() >= 0.99 * best


def test_plain_python_finds_what_the_compiled_search_finds():
    plain = {}
    for name in ("weave_groups", "weave_search"):
        spec = importlib.util.spec_from_file_location(f"plain_{name}", POLICIES / f"{name}.py")
        plain[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(plain[name])
    whole = problem(3, 40)
    compiled = whole.search(16)
    store = compiled.store
    arrays = (store.weight, store.kept, store.tables, store.members, store.speed)
    slow = plain["weave_search"].Search(
        plain["weave_groups"].Groups(
            16,
            np.asarray(store.widths),
            store.kinds,
            np.asarray(store.queues),
            *(np.asarray(array) for array in arrays),
        )
    )
    for search in (compiled, slow):
        search.add_members()
        search.improve(6)
    assert slow.store.total() == compiled.store.total()
    assert np.asarray(slow.store.group).tolist() == np.asarray(compiled.store.group).tolist()


def test_running_jobs_make_lengths_longer_than_those_that_ended():
    lengths, masses = survival(np.array([1.0, 2.0]), np.array([50.0, 60.0]))
    assert lengths.tolist() == [1.0, 2.0, 120.0]
    assert masses == pytest.approx([0.25, 0.25, 0.5])
    lengths, masses = survival(np.array([]), np.array([]))
    assert (lengths.tolist(), masses.tolist()) == ([2.0], [1.0])


def test_many_lengths_are_thinned_and_keep_their_mean():
    draw = np.random.default_rng(1)
    ended = draw.lognormal(5, 2, 5000)
    lengths, masses = survival(ended, np.array([]))
    assert lengths.size <= 257
    assert masses.sum() == pytest.approx(1.0)
    beyond = 0.001 * 2 * ended.max()  # what no length seen so far can exclude
    assert (masses * lengths).sum() == pytest.approx((ended.mean() + beyond) / 1.001, rel=0.02)


def test_what_is_expected_is_the_inverse_gittins_index():
    lengths, masses = np.array([1.0, 10.0]), np.array([0.5, 0.5])
    left = expected_left_s(np.array([0.0, 1.0, 4.0, 10.0]), lengths, masses)
    # at 0: stop at 1 costs 1 for a chance of 1/2; go on to 10 costs 5.5 for certain; later 9 and 6; beyond: half way
    assert left.tolist() == [2.0, 9.0, 6.0, 10.0]


def test_weights_count_those_behind():
    left_s = np.array([10.0, 100.0, 1000.0])
    ones = np.ones(3)
    worth = weights(left_s, ones, ones, 2, 0.0)
    assert worth == pytest.approx(np.array([1 + 2 / 2, 1 + 1 / 2, 1.0]) * left_s**-0.1)
