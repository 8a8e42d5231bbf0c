"""Forced playouts against the slow twin, on roots of a search and on constructed roots."""

import numpy as np
import pytest

from tests.oracle import forced as twin
from tests.search.evaluators import HashEvaluator
from tests.search.kernel_search import KernelSearch
from zero.games.rules import go_rules
from zero.search.forced import forced_visits, select_forced_edge, write_pruned_visits
from zero.search.streams import stream_of
from zero.search.tree import NO_EDGE, Trees, add_node, new_trees

C_PUCT = 1.1


def root(visits: list[int], priors: list[float], value_sums: list[float], actions: list[int] | None = None) -> Trees:
    """A tree of one node, the root; edges with visits come first."""
    trees = new_trees(1, 2, len(visits))
    add_node(trees, 0, np.ones(len(visits), np.bool_), 0.0)
    trees.visit_count[0, 0], trees.prior[0, 0], trees.value_sum[0, 0] = visits, priors, value_sums
    if actions:
        trees.action[0, 0] = actions
    trees.num_visited[0, 0] = sum(count > 0 for count in visits)
    trees.node_visits[0, 0] = sum(visits)
    return trees


def twin_edges(trees: Trees, tree: int = 0) -> list[twin.RootEdge]:
    visited = trees.num_visited[tree, 0]
    return [
        twin.RootEdge(
            int(trees.action[tree, 0, e]),
            float(trees.prior[tree, 0, e]),
            int(trees.visit_count[tree, 0, e]) if e < visited else 0,
            float(trees.value_sum[tree, 0, e]) if e < visited else 0.0,
        )
        for e in range(trees.num_edges[tree, 0])
    ]


def pruned(trees: Trees, factor: float, tree: int = 0, most: int = 65_535) -> dict[int, int]:
    out = np.zeros(trees.action.shape[2], np.uint16)
    write_pruned_visits(trees, tree, np.float32(C_PUCT), factor, most, out)
    return {int(action): int(out[action]) for action in np.flatnonzero(out)}


def test_the_minimum_is_the_square_root_of_k_times_prior_times_visits():
    trees = root([70, 20, 10], [0.5, 0.25, 0.25], [0, 0, 0])
    assert [forced_visits(trees, 0, e, 2.0) for e in range(3)] == [10, 7, 7]


def test_visit_counts_are_limited_to_the_range_of_a_record():
    trees = root([70_000, 10], [0.5, 0.5], [0, 0])
    assert pruned(trees, 0.001)[0] == 65_535


def test_the_edge_that_lacks_the_most_visits_is_forced():
    trees = root([95, 3, 2], [0.2, 0.4, 0.4], [0, 0, 0], [2, 1, 0])
    assert trees.action[0, 0, select_forced_edge(trees, 0, 2.0)] == 0


def test_an_unvisited_edge_is_never_forced():
    assert select_forced_edge(root([100, 0], [0.1, 0.9], [0, 0]), 0, 2.0) == NO_EDGE


def test_forced_visits_of_a_bad_move_are_pruned():
    """A move with Q = -1 got 6 visits only because of its prior."""
    assert pruned(root([94, 6], [0.8, 0.2], [40, -6]), 2.0) == {0: 94}


def test_visits_of_a_good_move_are_not_pruned():
    """The move is as good as the best and has nearly as many visits, so PUCT would have made most of them."""
    assert pruned(root([52, 48], [0.5, 0.5], [10, 9.5]), 2.0)[1] > 40


@pytest.mark.parametrize("factor", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("simulations", [1, 7, 40, 300])
def test_search_with_forced_playouts_equals_the_twin(factor, simulations):
    search = KernelSearch(go_rules(5, 5, 0.5), HashEvaluator(go_rules(5, 5)), C_PUCT, 400).start()
    search.mix_noise(10.83, 0.25, stream_of(1, 1, "test", simulations))
    for _ in range(simulations):
        edge = select_forced_edge(search.trees, search.TREE, factor)
        action = None if edge == NO_EDGE else int(search.trees.action[search.TREE, 0, edge])
        assert action == twin.forced_action(twin_edges(search.trees, search.TREE), factor)
        search.simulate(root_edge=edge)
    edges = twin_edges(search.trees, search.TREE)
    target = pruned(search.trees, factor, search.TREE)
    assert target == twin.pruned_visits(edges, float(np.float32(C_PUCT)), factor)
    visits = {edge.action: edge.visits for edge in edges}
    best = max(visits, key=visits.__getitem__)
    assert target[best] == visits[best]
    assert all(0 < target[action] <= visits[action] for action in target)
    if simulations == 300:
        assert sum(target.values()) < 300  # the noise forced some visits
