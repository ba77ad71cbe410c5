"""Placement in arrays does what the rules say, on thousands of small clusters."""

import random

import pytest

from cluster_exp.core.placement import PLACEMENTS, ClusterTrial, Layout, any_order_fits
from cluster_exp.domain.allotment import Allotment, NodeShare
from cluster_exp.domain.plan import Misfit
from tests.property import placement_rules
from tests.unit.placement_kit import Request, place


def cluster(draw: random.Random) -> dict[int, int]:
    ids = sorted(draw.sample(range(12), draw.randint(1, 6)))
    size = draw.choice([2, 4, 8])
    return {node: draw.choice([size, size, size, draw.randint(1, 8)]) for node in ids}


def requests(draw: random.Random, sizes: dict[int, int]) -> list[Request]:
    """Groups of all widths, some of which run: on GPUs of their own, or on the same as another."""
    free = [(node, gpu) for node, size in sizes.items() for gpu in range(size)]
    total, found, running = len(free), [], []
    for _ in range(draw.randint(0, 14)):
        wanted = draw.choice([1, 1, 1, 2, 2, 4, 8, draw.randint(1, total + 2)])
        current = None
        if running and draw.random() < 0.15:
            current = draw.choice(running)
            wanted = current.num_gpu
        elif wanted <= len(free) and draw.random() < 0.6:
            chosen = sorted(free[:wanted] if draw.random() < 0.5 else draw.sample(free, wanted))
            free = [gpu for gpu in free if gpu not in chosen]
            nodes = sorted({node for node, _ in chosen})
            shares = [NodeShare(node, tuple(gpu for n, gpu in chosen if n == node)) for node in nodes]
            current = Allotment(tuple(shares))
            running.append(current)
        found.append(Request(wanted, current))
    draw.shuffle(found)
    return found


@pytest.mark.parametrize("name", PLACEMENTS)
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("misfit", Misfit)
def test_arrays_and_rules_agree(name: str, pinned: bool, misfit: Misfit) -> None:
    for seed in range(400):
        draw = random.Random(seed)
        sizes = cluster(draw)
        wanted = requests(draw, sizes)
        expected = placement_rules.place(wanted, sizes, name, misfit, pinned)
        assert place(wanted, sizes, PLACEMENTS[name], misfit, pinned) == expected, f"seed {seed}"


@pytest.mark.parametrize("name", PLACEMENTS)
def test_a_trial_takes_what_the_rules_take(name: str) -> None:
    for seed in range(300):
        draw = random.Random(seed)
        sizes = cluster(draw)
        trial = ClusterTrial(Layout(sizes).pool(), PLACEMENTS[name].admission)
        by_rules = placement_rules.ClusterTrial(sizes, placement_rules.ADMISSIONS[name])
        for _ in range(20):
            wanted = draw.randint(1, 12)
            assert trial.take(wanted) == by_rules.take(wanted), f"seed {seed}"
            assert trial.free_gpus == by_rules.free_gpus


@pytest.mark.parametrize("name", PLACEMENTS)
def test_where_any_order_is_said_to_fit_every_order_does(name: str) -> None:
    placement, tried = PLACEMENTS[name], 0
    for seed in range(3000):
        draw = random.Random(seed)
        sizes = [draw.choice([4, 8, 12]) for _ in range(draw.randint(2, 5))]
        sizes = sizes if draw.random() < 0.5 else [sizes[0]] * len(sizes)
        widths = draw.sample([1, 2, 3, 4, 6, 8, 12, 16, 24], 4)
        if not any_order_fits(placement, sizes, widths):
            continue
        pool = Layout(dict(enumerate(sizes))).pool()
        trial = ClusterTrial(pool, placement.admission)
        fit = [wanted for wanted in draw.choices(widths, k=40) if trial.take(wanted)]
        for _ in range(5):
            draw.shuffle(fit)
            again = ClusterTrial(pool.fresh(), placement.admission)
            assert all(again.take(wanted) for wanted in fit), f"seed {seed}: {sizes} {fit}"
        tried += 1
    assert tried > 100


def test_an_order_may_not_fit_where_widths_leave_gaps() -> None:
    assert not any_order_fits(PLACEMENTS["consolidated"], [4, 4], [1, 3])
    assert not any_order_fits(PLACEMENTS["yarn"], [8, 4], [1, 8])
    assert any_order_fits(PLACEMENTS["quota"], [4, 4], [1, 3])
    assert any_order_fits(PLACEMENTS["consolidated"], [8, 8], [1, 4, 16])
