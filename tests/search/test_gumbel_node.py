"""The formulas of the Gumbel search at one node whose visits are made by hand, where they can be worked out."""

import math

import numpy as np
import pytest

from zero.search.gumbel import (
    WHOLE_TARGET,
    GumbelRoots,
    draw_gumbel,
    gumbel_choice,
    improved_policy,
    new_gumbel_roots,
    select_gumbel_edge,
    select_root_edge,
)
from zero.search.streams import stream_of
from zero.search.tree import Trees, add_node, new_trees, set_prior, visit_edge


def root_of(prior: np.ndarray, value: float, visited: list[tuple[int, int, float]]) -> tuple[Trees, GumbelRoots]:
    """A tree of one node with visits made by hand, each (action, visits, Q)."""
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
    improved_policy(roots, trees, 0, out)
    return out


def test_older_visits_do_not_make_a_move():
    # The action with 30 old visits is a bad one, as they show; the search goes by what it looked at.
    trees, roots = root_of(np.array([0.4, 0.3, 0.3]), 0.0, [(0, 30, -0.9), (1, 2, 0.4)])
    draw_gumbel(roots, trees, 0, 2, 4, 0.0, stream_of(1, 1, "test", 1))
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


def test_the_mixed_value_stands_in_for_actions_without_a_visit():
    # v_mix = (0.2 + 1 * -0.4) / 2 = -0.1, the greatest; sigma is (50 + 1) * 0.1 there and 0 at the visited action.
    trees, roots = root_of(np.array([0.5, 0.3, 0.2]), 0.2, [(0, 1, -0.4)])
    share = 1 / (1 + math.exp(5.1))
    expected = [share, 0.6 * (1 - share), 0.4 * (1 - share)]
    assert target_of(roots, trees) / WHOLE_TARGET == pytest.approx(expected, abs=1.01 / WHOLE_TARGET)


def test_visited_actions_share_in_the_mixed_value_by_their_priors():
    # v_mix = (0.4 + 4 * (0.5 * -0.2 + 0.3 * 0.6) / 0.8) / 5 = 0.16; sigma = 5.3 * (0.16 + 0.2) / 0.8 = 2.385.
    trees, roots = root_of(np.array([0.5, 0.3, 0.2]), 0.4, [(0, 1, -0.2), (1, 3, 0.6)])
    weights = np.array([0.5, 0.3 * math.exp(5.3), 0.2 * math.exp(2.385)])
    expected = weights / weights.sum()
    assert target_of(roots, trees) / WHOLE_TARGET == pytest.approx(expected, abs=1.01 / WHOLE_TARGET)


def test_with_all_actions_visited_the_mixed_value_is_of_no_account():
    for value in (-1.0, 0.0, 1.0):
        trees, roots = root_of(np.array([0.5, 0.5]), value, [(0, 1, -0.2), (1, 1, 0.2)])
        share = 1 / (1 + math.exp(5.1))
        assert target_of(roots, trees) / WHOLE_TARGET == pytest.approx([share, 1 - share], abs=1.01 / WHOLE_TARGET)


def test_a_visit_on_its_way_counts_as_none():
    trees, roots = root_of(np.array([0.5, 0.3, 0.2]), 0.2, [(0, 1, -0.4)])
    before = target_of(roots, trees)
    visit_edge(trees, 0, 0, int(np.flatnonzero(trees.action[0, 0] == 2)[0]))
    assert np.array_equal(target_of(roots, trees), before)


def test_what_little_prior_is_left_to_many_actions_is_not_lost():
    # One prior is 1 in float32, yet 200 actions with 1.5e-9 each have as much of the improved policy as that action:
    # it had 100 visits, and sigma is 15 lower. Without them in the sum it would seem to be owed more.
    prior = np.full(201, 1.5e-9)
    prior[7] = 1.0
    trees, roots = root_of(prior, 0.5, [(7, 100, 0.0)])
    assert trees.action[0, 0, select_gumbel_edge(roots, trees, 0, 0)] == 0


def test_where_only_an_action_with_a_prior_of_0_was_visited_its_value_is_the_mean():
    # v_mix = (-0.3 + 3 * 0.5) / 4 = 0.3 is less than 0.5; sigma is 5.3 higher for the visited one, to no effect.
    trees, roots = root_of(np.array([1.0, 0.0, 0.0]), -0.3, [(1, 3, 0.5)])
    assert target_of(roots, trees).tolist() == [WHOLE_TARGET, 0, 0]
    assert trees.action[0, 0, select_gumbel_edge(roots, trees, 0, 0)] == 0


def test_tried_equals_go_to_the_first_action_in_whichever_order_they_were_tried():
    for order in ([0, 2], [2, 0]):
        trees, roots = root_of(np.array([0.3, 0.4, 0.3]), 0.0, [(action, 2, 0.5) for action in order])
        assert trees.action[0, 0, select_gumbel_edge(roots, trees, 0, 0)] == 0
        draw_gumbel(roots, trees, 0, 3, 9, 0.0, stream_of(1, 1, "test", 1))
        roots.base_visits[0] = 0
        assert trees.action[0, 0, gumbel_choice(roots, trees, 0)] == 0


def test_an_untried_action_comes_before_a_later_one_that_is_on_its_way():
    for on_way, untried in ((0, 2), (2, 0)):
        trees, roots = root_of(np.array([0.3, 0.4, 0.3]), 0.0, [(1, 2, -0.5), (on_way, 0, 0.0)])
        assert trees.action[0, 0, select_gumbel_edge(roots, trees, 0, 0)] == min(on_way, untried)


@pytest.mark.parametrize("num_actions", [1, 2, 26, 82, 362])
def test_the_parts_of_the_target_add_up_and_none_is_off_by_one(num_actions):
    random = np.random.default_rng(num_actions)
    for sharpness in (0.0, 1.0, 8.0):
        prior = np.exp(sharpness * random.normal(size=num_actions))
        prior /= prior.sum()
        target = target_of(*reversed(root_of(prior, 0.0, [])))
        assert target.sum() == WHOLE_TARGET
        assert target / WHOLE_TARGET == pytest.approx(prior, abs=1.01 / WHOLE_TARGET)


def test_the_marks_between_the_parts_are_rounded():
    trees, roots = root_of(np.array([0.5, 0.25, 0.25]), 0.0, [])
    assert target_of(roots, trees).tolist() == [32768, 16383, 16384]  # marks at 32,767.5, 49,151.25 and 65,535
