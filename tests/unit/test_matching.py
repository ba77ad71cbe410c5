import pytest

from cluster_exp.interleave import class_matching
from cluster_exp.interleave.class_matching import ClassMatcher
from cluster_exp.interleave.matching import max_weight_matching


def test_pairs_are_given_smaller_first_and_sorted() -> None:
    assert max_weight_matching({(3, 2): 1.0, (1, 0): 1.0, (1, 2): 1.5}) == [(0, 1), (2, 3)]


def test_a_matching_need_not_be_perfect() -> None:
    weights = {(0, 1): 1.0, (1, 2): 5.0, (2, 3): 1.0}
    assert max_weight_matching(weights) == [(1, 2)]
    assert ClassMatcher().match([1, 1, 1, 1], weights) == {(1, 2): 1}


def test_members_of_one_class_pair_among_themselves() -> None:
    assert ClassMatcher().match([5, 2], {(0, 0): 1.0, (0, 1): 0.4, (1, 1): 0.5}) == {(0, 0): 2, (1, 1): 1}


def test_an_odd_ring_is_not_halved() -> None:
    # Halves of all three pairs would weigh 1.5, but whole pairs at most 1.
    found = ClassMatcher().match([1, 1, 1], {(0, 1): 1.0, (0, 2): 1.0, (1, 2): 1.0})
    assert sum(found.values()) == 1


def test_one_node_cannot_pair_with_itself() -> None:
    assert ClassMatcher().match([1], {(0, 0): 1.0}) == {}


def test_what_adds_no_weight_is_left_out() -> None:
    assert ClassMatcher().match([2, 2], {(0, 1): 0.0, (1, 1): -1.0}) == {}
    assert ClassMatcher().match([], {}) == {}
    assert max_weight_matching({}) == []


def test_without_a_cut_the_nodes_themselves_are_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_matching._Programme, "cut", lambda *_: False)
    weights = {(0, 1): 1.0, (0, 2): 1.1, (1, 2): 1.2}
    assert ClassMatcher().match([1, 1, 1], weights) == {(1, 2): 1}
