"""The formulas of the Gumbel search at one node with constructed visits, compared with calculations by hand."""

import math

import numpy as np
import pytest

from zero.search.gumbel import (
    TARGET_SUM,
    GumbelRoots,
    begin_gumbel_search,
    gumbel_choice,
    new_gumbel_roots,
    select_gumbel_edge,
    select_root_edge,
    write_improved_policy,
)
from zero.search.streams import stream_of
from zero.search.tree import Trees, add_node, new_trees, set_prior, visit_edge


def root_of(prior: np.ndarray, value: float, visited: list[tuple[int, int, float]]) -> tuple[Trees, GumbelRoots]:
    """A tree of one node with constructed visits, each (action, visits, Q)."""
    trees, roots = new_trees(1, 1, len(prior)), new_gumbel_roots(1, len(prior))
    add_node(trees, 0, np.ones(len(prior), np.bool_), 0.0)
    set_prior(trees, 0, 0, prior.astype(np.float32), np.float32(value), np.arange(len(prior)))
    for action, visits, q_value in visited:
        edge = visit_edge(trees, 0, 0, int(np.flatnonzero(trees.action[0, 0] == action)[0]))
        trees.visit_count[0, 0, edge] = visits
        trees.value_sum[0, 0, edge] = visits * q_value
        trees.node_visits[0, 0] += visits
    return trees, roots


def target_of(roots: GumbelRoots, trees: Trees) -> np.ndarray:
    out = np.full(trees.action.shape[2], 12345, np.uint16)
    write_improved_policy(roots, trees, 0, out)
    return out


def test_visits_of_earlier_searches_do_not_select_the_move():
    # The action with 30 old visits is bad; the choice depends on the visits of this search.
    trees, roots = root_of(np.array([0.4, 0.3, 0.3]), 0.0, [(0, 30, -0.9), (1, 2, 0.4)])
    begin_gumbel_search(roots, trees, 0, 2, 4, 0.0, stream_of(1, 1, "test", 1))
    assert roots.base_visits[0].tolist() == [30, 2, 0]
    visits = []
    for simulation in range(4):
        edge = select_root_edge(roots, trees, 0, simulation)
        if edge >= trees.num_visited[0, 0]:
            edge = visit_edge(trees, 0, 0, edge)
        trees.visit_count[0, 0, edge] += 1
        trees.node_visits[0, 0] += 1
        visits.append(int(trees.action[0, 0, edge]))
    assert sorted(visits) == [1, 1, 2, 2]
    assert trees.action[0, 0, gumbel_choice(roots, trees, 0)] == 1


def test_unvisited_actions_have_the_mixed_value():
    # v_mix = (0.2 + 1 * -0.4) / 2 = -0.1, the greatest; sigma is (50 + 1) * 0.1 there and 0 at the visited action.
    trees, roots = root_of(np.array([0.5, 0.3, 0.2]), 0.2, [(0, 1, -0.4)])
    share = 1 / (1 + math.exp(5.1))
    expected = [share, 0.6 * (1 - share), 0.4 * (1 - share)]
    assert target_of(roots, trees) / TARGET_SUM == pytest.approx(expected, abs=1.01 / TARGET_SUM)


def test_priors_weight_visited_actions_in_the_mixed_value():
    # v_mix = (0.4 + 4 * (0.5 * -0.2 + 0.3 * 0.6) / 0.8) / 5 = 0.16; sigma = 5.3 * (0.16 + 0.2) / 0.8 = 2.385.
    trees, roots = root_of(np.array([0.5, 0.3, 0.2]), 0.4, [(0, 1, -0.2), (1, 3, 0.6)])
    weights = np.array([0.5, 0.3 * math.exp(5.3), 0.2 * math.exp(2.385)])
    expected = weights / weights.sum()
    assert target_of(roots, trees) / TARGET_SUM == pytest.approx(expected, abs=1.01 / TARGET_SUM)


def test_the_mixed_value_does_not_matter_if_all_actions_are_visited():
    for value in (-1.0, 0.0, 1.0):
        trees, roots = root_of(np.array([0.5, 0.5]), value, [(0, 1, -0.2), (1, 1, 0.2)])
        share = 1 / (1 + math.exp(5.1))
        assert target_of(roots, trees) / TARGET_SUM == pytest.approx([share, 1 - share], abs=1.01 / TARGET_SUM)


def test_an_action_with_only_a_visit_in_flight_has_the_mixed_value():
    trees, roots = root_of(np.array([0.5, 0.3, 0.2]), 0.2, [(0, 1, -0.4)])
    before = target_of(roots, trees)
    visit_edge(trees, 0, 0, int(np.flatnonzero(trees.action[0, 0] == 2)[0]))
    assert np.array_equal(target_of(roots, trees), before)


def test_many_unvisited_actions_with_tiny_priors_count():
    # One prior rounds to 1 in float32. Still, 200 actions with 1.5e-9 each have as much of the improved policy as this
    # action, which has 100 visits and a sigma that is 15 lower. Without them in the sum it would get more visits.
    prior = np.full(201, 1.5e-9)
    prior[7] = 1.0
    trees, roots = root_of(prior, 0.5, [(7, 100, 0.0)])
    assert trees.action[0, 0, select_gumbel_edge(roots, trees, 0, 0)] == 0


def test_a_visited_action_with_prior_0_enters_the_mixed_value():
    # v_mix = (-0.3 + 3 * 0.5) / 4 = 0.3 is less than 0.5; sigma is 5.3 higher for the visited action, without effect.
    trees, roots = root_of(np.array([1.0, 0.0, 0.0]), -0.3, [(1, 3, 0.5)])
    assert target_of(roots, trees).tolist() == [TARGET_SUM, 0, 0]
    assert trees.action[0, 0, select_gumbel_edge(roots, trees, 0, 0)] == 0


def test_ties_of_visited_actions_go_to_the_first_action_in_any_order_of_visits():
    for order in ([0, 2], [2, 0]):
        trees, roots = root_of(np.array([0.3, 0.4, 0.3]), 0.0, [(action, 2, 0.5) for action in order])
        assert trees.action[0, 0, select_gumbel_edge(roots, trees, 0, 0)] == 0
        begin_gumbel_search(roots, trees, 0, 3, 9, 0.0, stream_of(1, 1, "test", 1))
        roots.base_visits[0] = 0
        assert trees.action[0, 0, gumbel_choice(roots, trees, 0)] == 0


def test_an_unvisited_action_comes_before_a_later_one_in_flight():
    for in_flight, unvisited in ((0, 2), (2, 0)):
        trees, roots = root_of(np.array([0.3, 0.4, 0.3]), 0.0, [(1, 2, -0.5), (in_flight, 0, 0.0)])
        assert trees.action[0, 0, select_gumbel_edge(roots, trees, 0, 0)] == min(in_flight, unvisited)


@pytest.mark.parametrize("num_actions", [1, 2, 26, 82, 362])
def test_the_target_has_the_exact_sum_and_errors_below_one(num_actions):
    random = np.random.default_rng(num_actions)
    for sharpness in (0.0, 1.0, 8.0):
        prior = np.exp(sharpness * random.normal(size=num_actions))
        prior /= prior.sum()
        target = target_of(*reversed(root_of(prior, 0.0, [])))
        assert target.sum() == TARGET_SUM
        assert target / TARGET_SUM == pytest.approx(prior, abs=1.01 / TARGET_SUM)


def test_cumulative_sums_of_the_target_are_rounded():
    trees, roots = root_of(np.array([0.5, 0.25, 0.25]), 0.0, [])
    assert target_of(roots, trees).tolist() == [32768, 16383, 16384]  # cumulative sums 32,767.5, 49,151.25 and 65,535
