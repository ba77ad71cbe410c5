"""Maximum-weight matching: which groups to merge in one round."""

from collections.abc import Mapping

import networkx as nx

Pair = tuple[int, int]


def max_weight_matching(weights: Mapping[Pair, float]) -> list[Pair]:
    """Pairs of a matching of the largest total weight (Blossom; Edmonds 1965, as networkx implements it).

    Not necessarily perfect: an edge is used only while it adds weight. The pairs are given as (small, large) in
    ascending order, so that the result does not depend on a set's order.

    Args:
        weights: weight of each edge (i, j), i != j; nodes are numbers.
    """
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(sorted({node for pair in weights for node in pair}))
    graph.add_weighted_edges_from((i, j, weight) for (i, j), weight in weights.items())
    matched = nx.max_weight_matching(graph, maxcardinality=False)
    return sorted((min(pair), max(pair)) for pair in matched)
