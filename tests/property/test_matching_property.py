"""Matching of classes against Blossom on the nodes themselves, and Blossom against all matchings."""

import numpy as np
import pytest

from cluster_exp.interleave.class_matching import ClassMatcher
from cluster_exp.interleave.matching import Pair, max_weight_matching


def expanded(counts: list[int], weights: dict[Pair, float]) -> dict[Pair, float]:
    """The instance with a node for each member of a class."""
    kinds = [kind for kind, count in enumerate(counts) for _ in range(count)]
    return {
        (i, j): weights[(kinds[i], kinds[j])]
        for j in range(len(kinds))
        for i in range(j)
        if (kinds[i], kinds[j]) in weights
    }


def heaviest(nodes: tuple[int, ...], edges: dict[Pair, float]) -> float:
    """The largest total weight of a matching, by trying all."""
    if len(nodes) < 2:
        return 0.0
    first, *others = nodes
    best = heaviest(tuple(others), edges)
    for other in others:
        if (first, other) in edges:
            rest = tuple(node for node in others if node != other)
            best = max(best, edges[(first, other)] + heaviest(rest, edges))
    return best


def instance(random: np.random.Generator, classes: int, most: int) -> tuple[list[int], dict[Pair, float]]:
    counts = random.integers(0, most + 1, classes).tolist()
    density = random.uniform(0.3, 1.0)
    round_weights = random.random() < 0.3  # many ties
    weights = {}
    for b in range(classes):
        for a in range(b + 1):
            if random.random() < density:
                weight = random.uniform(0.05, 1.0)
                weights[(a, b)] = round(weight, 1) if round_weights else weight
    return counts, weights


def check(matcher: ClassMatcher, counts: list[int], weights: dict[Pair, float]) -> None:
    found = matcher.match(counts, weights)
    used = [0] * len(counts)
    for (a, b), number in found.items():
        assert number > 0
        used[a] += number
        used[b] += number
    assert all(use <= count for use, count in zip(used, counts, strict=True))
    edges = expanded(counts, weights)
    reference = sum(edges[pair] for pair in max_weight_matching(edges))
    assert sum(weights[pair] * number for pair, number in found.items()) == pytest.approx(reference, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_small_instances_weigh_as_much_as_blossom(seed: int) -> None:
    random, matcher = np.random.default_rng(seed), ClassMatcher()
    for _ in range(300):
        check(matcher, *instance(random, int(random.integers(1, 7)), int(random.integers(1, 5))))


@pytest.mark.parametrize("seed", range(4))
def test_larger_instances_weigh_as_much_as_blossom(seed: int) -> None:
    random, matcher = np.random.default_rng(100 + seed), ClassMatcher()
    for _ in range(4):
        check(matcher, *instance(random, int(random.integers(5, 12)), 7))


@pytest.mark.parametrize("seed", range(4))
def test_blossom_and_classes_equal_brute_force_up_to_eight_nodes(seed: int) -> None:
    random, matcher = np.random.default_rng(200 + seed), ClassMatcher()
    for size in range(9):
        for _ in range(6):
            edges = instance(random, size, 1)[1]
            edges = {pair: weight for pair, weight in edges.items() if pair[0] != pair[1]}
            best = heaviest(tuple(range(size)), edges)
            assert sum(edges[pair] for pair in max_weight_matching(edges)) == pytest.approx(best, abs=1e-9)
            found = matcher.match([1] * size, edges)
            assert sum(edges[pair] * number for pair, number in found.items()) == pytest.approx(best, abs=1e-9)
