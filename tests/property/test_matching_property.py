"""Matching of classes against Blossom on the nodes themselves, and Blossom against all matchings."""

import networkx as nx
import numpy as np
import pytest

from cluster_exp.domain.models import Order
from cluster_exp.domain.profile import StageProfile
from cluster_exp.interleave import class_matching, large_matching
from cluster_exp.interleave.class_matching import ClassMatcher
from cluster_exp.interleave.large_matching import bounded_matching
from cluster_exp.interleave.matching import Pair, max_weight_matching
from cluster_exp.interleave.muri22 import Muri22Speed
from cluster_exp.interleave.simplex import Programme
from cluster_exp.interleave.speed import make_speed


@pytest.fixture(params=[True, False], ids=["own solver", "library"])
def own_solver(request, monkeypatch):
    """Whether the project's solver is used (compiled or not), or the library's."""
    monkeypatch.setattr(class_matching, "compiled", lambda: request.param)
    return request.param


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
def test_small_instances_weigh_as_much_as_blossom(seed: int, own_solver: bool) -> None:
    random, matcher = np.random.default_rng(seed), ClassMatcher()
    for _ in range(300):
        check(matcher, *instance(random, int(random.integers(1, 7)), int(random.integers(1, 5))))


@pytest.mark.parametrize("seed", range(4))
def test_larger_instances_weigh_as_much_as_blossom(seed: int, own_solver: bool) -> None:
    random, matcher = np.random.default_rng(100 + seed), ClassMatcher()
    for _ in range(4):
        check(matcher, *instance(random, int(random.integers(5, 12)), 7))


@pytest.mark.parametrize("seed", range(4))
def test_blossom_and_classes_equal_brute_force_up_to_eight_nodes(seed: int, own_solver: bool) -> None:
    random, matcher = np.random.default_rng(200 + seed), ClassMatcher()
    for size in range(9):
        for _ in range(6):
            edges = instance(random, size, 1)[1]
            edges = {pair: weight for pair, weight in edges.items() if pair[0] != pair[1]}
            best = heaviest(tuple(range(size)), edges)
            assert sum(edges[pair] for pair in max_weight_matching(edges)) == pytest.approx(best, abs=1e-9)
            found = matcher.match([1] * size, edges)
            assert sum(edges[pair] * number for pair, number in found.items()) == pytest.approx(best, abs=1e-9)


def test_the_own_solver_seldom_gives_up() -> None:
    random = np.random.default_rng(5)
    solved = 0
    for _ in range(300):
        counts, weights = instance(random, int(random.integers(2, 12)), 9)
        pairs = [(a, b) for a, b in weights if (counts[a] > 1 if a == b else counts[a] and counts[b])]
        first, second = (np.array([pair[end] for pair in pairs], dtype=np.int64) for end in (0, 1))
        weight = np.array([weights[pair] for pair in pairs])
        numbers = np.zeros(len(pairs), np.int64)
        solved += Programme(first, second, weight, np.array(counts)).solve(numbers)
    assert solved >= 297


def weights_of(nodes: int, random: np.random.Generator) -> np.ndarray:
    weights = random.uniform(0, 1, (nodes, nodes))
    return np.minimum(weights, weights.T)


@pytest.mark.parametrize("seed", range(6))
def test_a_bounded_matching_keeps_its_bounds(seed: int) -> None:
    random = np.random.default_rng(seed)
    for nodes in (0, 1, 2, 3, 5, 20, 41, 60):
        weights = weights_of(nodes, random)
        found = bounded_matching(weights)
        ends = [*found.first.tolist(), *found.second.tolist()]
        assert len(set(ends)) == len(ends)
        assert found.weight == pytest.approx(
            sum(weights[i, j] for i, j in zip(found.first, found.second, strict=True))
        )
        graph = nx.Graph()
        graph.add_weighted_edges_from((i, j, weights[i, j]) for i in range(nodes) for j in range(i))
        best = sum(weights[i, j] for i, j in nx.max_weight_matching(graph))
        assert found.weight <= best + 1e-9 <= found.upper_bound + 2e-9
        assert found.weight >= 0.99 * best
        assert found.gap == pytest.approx(1 - found.weight / found.upper_bound if best else 0.0)


def test_many_nodes_are_matched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_matching, "MOST_NODES", 20)
    weights = weights_of(50, np.random.default_rng(1))
    found = bounded_matching(weights)
    assert found.first.size == 25
    assert 0.8 * found.upper_bound < found.weight < found.upper_bound


@pytest.mark.parametrize("speed", [make_speed("lockstep", "muri22"), make_speed("rates", "none"), Muri22Speed()])
@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_many_cycles_at_once_are_those_of_each_group(speed, order: Order, size: int) -> None:
    random = np.random.default_rng(size)
    profiles = [StageProfile(float(t.sum()) * 0.9, *map(float, t)) for t in random.uniform(0, 1, (12, 4))]
    members = random.integers(0, 12, (60, size))
    found = speed.cycles_s(profiles, members, order)
    expected = [speed.group([profiles[i] for i in row], order).cycle_s for row in members.tolist()]
    assert found.tolist() == expected
