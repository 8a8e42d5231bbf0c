"""Root noise, and reuse of a subtree."""

import math
from typing import Any

import numpy as np
import pytest

from tests.search.evaluators import HashEvaluator, PriorEvaluator
from tests.search.kernel_search import KernelSearch, View, size_of
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules, gomoku_rules
from zero.search.evaluator import UniformEvaluator
from zero.search.streams import stream_of
from zero.search.tree import clear, new_trees, reroot

GO3, GO5 = go_rules(3, 3, 0.5), go_rules(5, 5, 0.5)


def stream(number: int = 0) -> np.ndarray:
    return stream_of(1, 1, "test", number)


def noisy_priors(fraction: float, concentration: float = 10.83, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Priors of a root before and after its noise."""
    search = KernelSearch(GO5, HashEvaluator(GO5), 1.0, 4).start()
    before = np.array(list(search.priors().values()))
    search.mix_noise(concentration, fraction, stream(number))
    return before, np.array(list(search.priors().values()))


def test_noise_is_on_legal_moves_only():
    search = KernelSearch(GO3, HashEvaluator(GO3), 1.0, 60)
    search.game.play_names("A2 pass B1")  # A1 is suicide for White, two points are taken
    search.start().mix_noise(10.83, 1.0, stream())
    search.simulate(50)
    illegal = {name_to_action(GO3, name) for name in ("A1", "A2", "B1")}
    assert set(search.priors()) == set(range(10)) - illegal
    assert min(search.priors().values()) > 0
    assert sum(search.priors().values()) == pytest.approx(1.0, abs=1e-6)


def test_the_fraction_of_the_noise_is_respected():
    # P' = (1 - f) P + f noise, with one and the same noise.
    before, noise = noisy_priors(1.0)
    _, mixed = noisy_priors(0.25)
    assert mixed == pytest.approx(0.75 * before + 0.25 * noise, abs=1e-6)
    assert noise.sum() == pytest.approx(1.0, abs=1e-6)
    assert np.abs(noise - before).max() > 0.05


def test_a_fraction_of_0_keeps_the_prior():
    before, after = noisy_priors(0.0)
    assert np.array_equal(before, after)


def test_games_have_different_noise():
    assert not np.array_equal(noisy_priors(1.0, number=0)[1], noisy_priors(1.0, number=1)[1])


@pytest.mark.parametrize("concentration", [0.78, 10.83, 200.0])
def test_the_noise_has_the_moments_of_a_dirichlet_distribution(concentration):
    # Each share has mean m = 1/k and variance m (1 - m) / (concentration + 1).
    edges, count = 26, 3_000
    shares = np.array([noisy_priors(1.0, concentration, number)[1] for number in range(count)])
    mean, variance = 1 / edges, (1 / edges) * (1 - 1 / edges) / (concentration + 1)
    assert np.abs(shares.mean(axis=0) - mean).max() < 4.5 * math.sqrt(variance / count)
    assert shares.var(axis=0).mean() == pytest.approx(variance, rel=0.06)


def test_fewer_moves_share_the_same_concentration():
    # alpha = concentration / edges: with two moves each share is uniform at a concentration of 2.
    shares = []
    for number in range(2_000):
        search = KernelSearch(gomoku_rules(1, 2, 2), UniformEvaluator(), 1.0, 4).start()
        search.mix_noise(2.0, 1.0, stream(number))
        shares.append(search.priors()[0])
    assert np.histogram(shares, 10, (0, 1))[0] == pytest.approx([200] * 10, abs=60)


def test_noise_that_underflows_keeps_the_prior():
    before, after = noisy_priors(0.5, concentration=1e-6)
    assert np.array_equal(before, after) or after.sum() == pytest.approx(1.0, abs=1e-6)
    assert np.isfinite(after).all()


def subtree(view: View, action: int) -> View | None:
    return next(edge[-1] for edge in view.edges if edge[0] == action)


@pytest.mark.parametrize("rules", [GO3, gomoku_rules(4, 4, 3)], ids=["go", "gomoku"])
def test_the_subtree_keeps_its_statistics(rules):
    search = KernelSearch(rules, HashEvaluator(rules), 1.0, 400).start().simulate(300)
    visits = search.visits()
    action = max(visits, key=visits.__getitem__)
    below = subtree(search.view(), action)
    search.play(action, 400)
    assert search.view() == below
    assert search.num_nodes == size_of(below) > 20


def test_children_have_higher_numbers_and_every_node_is_reachable():
    search = KernelSearch(GO3, HashEvaluator(GO3), 1.0, 400).start().simulate(300)
    for max_kept in (200, 30, 10):
        visits = search.visits()
        search.play(max(visits, key=visits.__getitem__), max_kept)
        # the view checks the order of the numbers
        assert size_of(search.view()) == search.num_nodes <= max_kept
        search.simulate(20)


def test_a_large_subtree_keeps_its_oldest_nodes():
    # A shorter search has exactly these nodes: the kept part equals an earlier state of the subtree.
    evaluator = HashEvaluator(go_rules(4, 4))
    search = KernelSearch(go_rules(4, 4, 0.5), evaluator, 1.0, 400).start().simulate(300)
    visits = search.visits()
    action = max(visits, key=visits.__getitem__)
    young = KernelSearch(go_rules(4, 4, 0.5), evaluator, 1.0, 400).start()
    while (below := subtree(young.view(), action)) is None or size_of(below) < 12:
        young.simulate()
    search.play(action, 12)
    assert actions_of(search.view()) == actions_of(below)


def actions_of(view: View) -> dict[int, Any]:
    """The nodes of a tree by the actions that lead to them."""
    return {edge[0]: actions_of(edge[-1]) for edge in view.edges if edge[-1]}


def test_an_edge_without_its_dropped_child_keeps_its_visits_and_gets_a_new_child():
    search = KernelSearch(GO3, HashEvaluator(GO3), 1.0, 400).start().simulate(200)
    visits = search.visits()
    search.play(max(visits, key=visits.__getitem__), 1)
    assert search.num_nodes == 1
    before = search.visits()
    assert sum(before.values()) == search.view().visits > 1
    search.simulate(30)
    assert sum(search.visits().values()) == sum(before.values()) + 30
    assert search.num_nodes > 1


def test_an_unvisited_move_empties_the_tree():
    search = KernelSearch(GO3, UniformEvaluator(), 1.0, 10).start().simulate(3)
    assert search.visits()[5] == 0
    search.play(5, 10)
    assert search.num_nodes == 0


def test_a_move_that_ends_the_game_empties_the_tree():
    search = KernelSearch(gomoku_rules(3, 3, 3), UniformEvaluator(), 1.0, 30)
    search.game.play_names("A1 A3 B1 B3")
    winning = name_to_action(search.rules, "C1")
    search.start().simulate(20)
    assert search.visits()[winning] > 0
    search.play(winning, 30)
    assert search.num_nodes == 0


def test_an_empty_tree_stays_empty():
    trees = new_trees(2, 4, 10)
    trees.action[:] = 3
    trees.child[:] = 1
    trees.num_edges[:] = trees.num_visited[:] = 10
    clear(trees, 1)
    reroot(trees, 1, 3, 4)
    assert trees.num_nodes.tolist() == [0, 0]


def test_a_tree_never_exceeds_its_capacity():
    # 40 simulations with one new node each, and the root.
    search = KernelSearch(GO5, UniformEvaluator(), 1.0, 41).start().simulate(40)
    assert search.num_nodes == 41
    search.play(search.edges()[0], 41 - 40)
    search.simulate(40)
    assert search.num_nodes == 41


def test_the_prior_of_a_reused_root_has_no_noise():
    search = KernelSearch(GO3, PriorEvaluator(np.full(10, 0.1, np.float32)), 1.0, 400).start()
    search.mix_noise(10.83, 0.25, stream())
    assert len(set(search.priors().values())) > 1
    search.simulate(100)
    search.play(max(search.visits(), key=search.visits().__getitem__), 400)
    assert len(set(search.priors().values())) == 1
