"""Several pending leaves of one tree: equality with the slow twin and the sequential search, and invariants."""

from typing import Any

import numpy as np
import pytest

from tests.oracle.gumbel import Sigma
from tests.oracle.streams import Stream
from tests.search.evaluators import HashEvaluator, PriorEvaluator
from tests.search.kernel_search import KernelSearch, view_of_twin
from tests.search.virtual_loss_search import SEED, ParallelSearch, gumbel_twin_of, twin_of
from zero.games.position import NUM_MOVES
from zero.games.rules import go_rules, gomoku_rules
from zero.search.evaluator import UniformEvaluator
from zero.search.gumbel import gumbel_choice


class RoughEvaluator(HashEvaluator):
    """Values that are not multiples of a power of two, so that the order of summation matters."""

    def judge(self, planes: np.ndarray) -> tuple[np.ndarray, float]:
        prior, value = super().judge(planes)
        return prior, value / 3.0


GAMES = {
    "go 1x2 without end": go_rules(1, 2, 0.0)._replace(max_moves=20),  # superko within a few moves
    "go 3x3": go_rules(3, 3, 0.5),
    "go 3x4 with suicide": go_rules(3, 4, 0.5, allow_suicide=True),
    "go 4x4 with draws": go_rules(4, 4, 4.0),
    "go 5x5, 8 moves": go_rules(5, 5, 0.5)._replace(max_moves=8),
    "gomoku 3x3": gomoku_rules(3, 3, 3),
    "gomoku 4x6": gomoku_rules(4, 6, 3),
}
EVALUATORS: dict[str, Any] = {
    "rough": RoughEvaluator,
    "uniform": lambda rules: UniformEvaluator(),
}
EVALUATED = [*((game, "rough") for game in GAMES), ("go 3x3", "uniform"), ("gomoku 4x6", "uniform")]
"""Equal priors and values test the order of ties; a board of each game suffices for them."""


@pytest.mark.parametrize(("num_leaves", "virtual_loss"), [(2, 1), (8, 1), (8, 3), (40, 1), (5, 100)])
@pytest.mark.parametrize(("game", "evaluator"), EVALUATED)
def test_trees_equal_the_twins(game, evaluator, num_leaves, virtual_loss):
    rules = GAMES[game]
    search = ParallelSearch(
        rules,
        EVALUATORS[evaluator](rules),
        num_leaves,
        virtual_loss,
        fpu_from_parent=virtual_loss == 3,
        random_symmetry=True,
        pass_wins=virtual_loss != 3,
    )
    slow = twin_of(search)
    for num_simulations in (100, 1, 40):
        assert search.search(num_simulations) == slow.search(num_simulations) == num_simulations
        assert search.batches == slow.batches
        assert search.view() == view_of_twin(slow.root)


@pytest.mark.parametrize("max_nodes", [2, 3, 10, 60])
@pytest.mark.parametrize("num_leaves", [1, 7])
@pytest.mark.parametrize("game", ["go 3x3", "gomoku 3x3", "go 1x2 without end"])
def test_a_full_tree_ends_the_search_cleanly(game, num_leaves, max_nodes):
    rules = GAMES[game]
    search = ParallelSearch(rules, HashEvaluator(rules), num_leaves, max_nodes=max_nodes)
    slow = twin_of(search)
    done = search.search(1000)
    assert done == slow.search(1000)
    assert search.view() == view_of_twin(slow.root)
    assert search.num_nodes <= max_nodes
    assert sum(search.visits().values()) == done
    if done < 1000:
        assert search.num_nodes == max_nodes
        assert search.search(10) == 0  # and the tree does not change
        assert search.view() == view_of_twin(slow.root)
    for others in (0, 2):
        assert not any(array[others].any() for array in search.trees[:-4])


def test_some_of_these_trees_become_full_and_others_do_not():
    sizes = {3: 4, 60: 1000}
    for max_nodes, most in sizes.items():
        search = ParallelSearch(GAMES["go 3x3"], HashEvaluator(GAMES["go 3x3"]), 7, max_nodes=max_nodes)
        assert 0 < search.search(1000) < most
    complete = ParallelSearch(gomoku_rules(2, 2, 2), UniformEvaluator(), 7, max_nodes=60)
    assert complete.search(1000) == 1000
    assert complete.num_nodes == 1 + 4 + 12 + 24


@pytest.mark.parametrize("virtual_loss", [1, 3, 100])
@pytest.mark.parametrize("first_play", ["zero", "parent"])
@pytest.mark.parametrize("game", GAMES)
def test_one_leaf_at_a_time_is_the_sequential_search(game, first_play, virtual_loss):
    rules = GAMES[game]
    parent = first_play == "parent"
    search = ParallelSearch(rules, HashEvaluator(rules), 1, virtual_loss, fpu_from_parent=parent, random_symmetry=True)
    draws = Stream(SEED, 0, "test", 0)
    num_symmetries = len(rules.symmetries)
    sequential = KernelSearch(
        rules, HashEvaluator(rules), 1.5, 2000, lambda: draws.below(num_symmetries), fpu_from_parent=parent
    )
    sequential.start()
    for num_simulations in (1, 100, 150):
        search.search(num_simulations)
        assert search.view() == sequential.simulate(num_simulations).view()
        assert set(search.batches) <= {1}
    assert int(search.stream[2]) == draws.counter


@pytest.mark.parametrize(
    ("num_leaves", "considered", "sigma"),
    [(1, 5, Sigma()), (2, 16, Sigma()), (8, 5, Sigma(0.5, False)), (8, 16, Sigma()), (40, 8, Sigma(1.5, True))],
)
@pytest.mark.parametrize(("game", "evaluator"), EVALUATED)
def test_gumbel_trees_equal_those_of_the_twin(game, evaluator, num_leaves, considered, sigma):
    rules = GAMES[game]
    search = ParallelSearch(
        rules,
        EVALUATORS[evaluator](rules),
        num_leaves,
        virtual_loss=3,  # a Gumbel search does not use it
        random_symmetry=True,
        considered_actions=considered,
        sigma=sigma,
    )
    slow = gumbel_twin_of(search)
    for num_simulations in (100, 1, 40):
        assert search.search(num_simulations) == slow.run(num_simulations) == num_simulations
        assert search.batches == slow.batches
        assert search.view() == view_of_twin(slow.root)
        edge = gumbel_choice(search.pending.roots, search.trees, search.TREE)
        assert search.trees.action[search.TREE, 0, edge] == slow.choice()


@pytest.mark.parametrize("num_leaves", [1, 4])
def test_ties_of_gumbel_scores_go_to_the_lower_action_on_a_later_edge(num_leaves):
    # Edges are in the order of priors. Two close priors give equal scores, and the lower action has the later edge.
    prior = np.full(10, 0.05, np.float32)
    prior[6] = 0.3
    prior[2] = np.nextafter(prior[6], np.float32(0.0))
    search = ParallelSearch(GAMES["go 3x3"], PriorEvaluator(prior), num_leaves, considered_actions=4)
    slow = gumbel_twin_of(search)
    assert search.search(32) == slow.run(32) == 32
    assert search.visits()[2] == search.visits()[6] == 12
    assert search.visits() == {action: edge.visits for action, edge in slow.root.edges.items()}


@pytest.mark.parametrize(
    ("visited", "first_actions"),
    [
        ({5: 1}, [3, 4, 5]),  # unvisited edges before a visited one: 0.5 / 2 = 0.25
        ({3: 1, 4: 1, 5: 3}, [3, 4, 5]),  # 5 was visited before the others: 0.5 / 4 = 0.25 / 2
    ],
)
def test_ties_go_to_the_first_action(visited, first_actions):
    prior = np.zeros(9, np.float32)
    prior[[5, 3, 4]] = 0.5, 0.25, 0.25
    search = ParallelSearch(gomoku_rules(3, 3, 3), PriorEvaluator(prior), 3)
    for _ in range(sum(visited.values())):
        search.search(1)
    assert {action: visits for action, visits in search.visits().items() if visits} == visited
    search.pending.simulations_left[0] = 3
    assert search.select_leaves() == 3
    assert [path[0][1] for path in search.paths()] == first_actions


def test_the_search_does_not_change_the_game():
    search = ParallelSearch(go_rules(4, 4, 0.5), HashEvaluator(go_rules(4, 4)), 8)
    search.game.play_names("B2 C3")
    before = search.game.copy()
    search.search(100)
    for now, then in zip(search.game.position, before.position, strict=True):
        assert np.array_equal(now, then)
    assert np.array_equal(search.game.history.boards[:3], before.history.boards[:3])
    assert search.game.position.state[NUM_MOVES] == 2


def test_batches_are_mostly_full():
    rules = go_rules(5, 5, 0.5)
    search = ParallelSearch(rules, HashEvaluator(rules), 8)
    search.search(400)
    assert np.mean(search.batches) > 6.5
