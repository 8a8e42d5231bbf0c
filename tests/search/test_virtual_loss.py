"""Several pending leaves of one tree: equality with the slow twin and the sequential search, and invariants."""

from typing import Any

import numpy as np
import pytest

from tests.games.kernel_game import KernelGame
from tests.oracle.gumbel import Sigma
from tests.oracle.streams import Stream
from tests.search.evaluators import ColourEvaluator, HashEvaluator, PriorEvaluator
from tests.search.kernel_search import KernelSearch, View, depth_of, size_of, view_of_twin
from tests.search.virtual_loss_search import SEED, ParallelSearch, check_paths, check_sums, gumbel_twin_of, twin_of
from zero.games.coordinates import name_to_action
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
EVALUATORS: dict[str, Any] = {"rough": RoughEvaluator, "uniform": lambda rules: UniformEvaluator()}
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
    check_sums(search)
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


@pytest.mark.parametrize("num_leaves", [1, 3, 16])
@pytest.mark.parametrize("game", GAMES)
def test_virtual_losses_leave_no_trace_in_the_tree(game, num_leaves):
    # Hash values are multiples of 2^-15, so 400 of them have an exact sum in any order.
    rules = GAMES[game]
    search = ParallelSearch(rules, HashEvaluator(rules), num_leaves, 7)
    for done in (30, 31, 100, 400):
        before = sum(search.visits().values()) if search.num_nodes else 0
        assert search.search(done - before) == done - before
        assert sum(search.visits().values()) == search.view().visits == done
        check_sums(search)
    ended = search.trees.num_edges[search.TREE, : search.num_nodes] == 0
    assert search.num_evaluations == search.num_nodes - ended.sum()  # each position is evaluated once
    assert depth_of(search.view()) >= 4


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
    check_sums(search)


def test_simulations_in_flight_do_not_change_the_statistics():
    rules = GAMES["go 3x3"]
    search = ParallelSearch(rules, HashEvaluator(rules), 8, 50)
    search.search(20)
    visits, value_sum = search.visits(), search.view().value_sum
    search.pending.simulations_left[0] = 100
    rows = search.select_leaves()
    assert rows > 2
    assert search.visits() == visits
    assert search.view().value_sum == value_sum
    check_paths(search)
    search.backup(rows)
    assert sum(search.visits().values()) == 20 + rows
    check_sums(search)


def test_visits_equal_the_recorded_paths():
    rules = go_rules(5, 5, 0.5)  # no game ends in these paths
    search = ParallelSearch(rules, HashEvaluator(rules), 8, 2)
    search.search(0)  # only the root
    visits: dict[tuple[int, int], int] = {}
    sums: dict[tuple[int, int], np.float32] = {}
    search.pending.simulations_left[0] = 200
    while rows := search.select_leaves():
        check_paths(search)
        paths = search.paths()
        search.backup(rows)
        for row, path in enumerate(paths):
            value = search.pending.value[row]
            for step in reversed(path):
                value = -value
                visits[step] = visits.get(step, 0) + 1
                sums[step] = sums.get(step, np.float32(0.0)) + value
    assert sum(count for (node, _), count in visits.items() if node == 0) == 200
    trees = search.trees
    for node in range(search.num_nodes):
        for edge in range(trees.num_visited[search.TREE, node]):
            step = node, int(trees.action[search.TREE, node, edge])
            assert trees.visit_count[search.TREE, node, edge] == visits.pop(step)
            assert trees.value_sum[search.TREE, node, edge] == sums.pop(step)
    assert not visits


def test_the_root_is_evaluated_alone_and_is_not_a_simulation():
    search = ParallelSearch(go_rules(3, 3, 0.5), UniformEvaluator(), 8)
    search.pending.simulations_left[0] = 5
    assert search.select_leaves() == 1
    search.backup(1)
    assert (search.num_nodes, search.pending.simulations_left[0]) == (1, 5)


def test_a_search_without_simulations_evaluates_the_root():
    search = ParallelSearch(go_rules(3, 3, 0.5), ColourEvaluator(0.25), 8)
    assert search.search(0) == 0
    assert search.trees.node_value[search.TREE, 0] == 0.25
    assert list(search.priors().values()) == pytest.approx([0.1] * 10)


def test_more_leaves_than_legal_moves():
    # Two moves, then one, then a draw: at most two leaves can be pending.
    search = ParallelSearch(gomoku_rules(1, 2, 2), UniformEvaluator(), 16)
    assert search.search(50) == 50
    assert max(search.batches) == 2
    assert search.num_nodes == 5
    check_sums(search)


def test_a_pending_leaf_is_not_selected_again():
    # One move has the complete prior, so a small virtual loss leads to the same leaf again.
    rules = gomoku_rules(3, 3, 3)
    search = ParallelSearch(rules, PriorEvaluator(np.eye(9, dtype=np.float32)[4]), 8, c_puct=50.0)
    search.search(0)
    search.pending.simulations_left[0] = 8
    assert search.select_leaves() == 1
    assert search.pending.simulations_left[0] == 7  # a selection without a leaf is not a simulation
    search.backup(1)


def test_ends_of_games_are_backed_up_at_once():
    # Black owns the board and White has passed: a pass wins, so each simulation of it is terminal.
    search = ParallelSearch(go_rules(3, 3, 0.5), UniformEvaluator(), 8)
    search.game.play_names("B2 pass")
    search.search(100)
    visits = search.visits()
    assert visits[search.game.pass_action] > 50
    assert search.q_values()[search.game.pass_action] == 1.0
    assert search.num_evaluations < 60
    check_sums(search)


def test_a_virtual_loss_spreads_the_leaves_over_the_moves():
    # Equal priors and values 0: each pending leaf makes the next simulation select another move.
    search = ParallelSearch(go_rules(3, 3, 0.5), UniformEvaluator(), 8)
    search.search(0)
    search.pending.simulations_left[0] = 8
    assert search.select_leaves() == 8
    assert [path[0] for path in search.paths()] == [(0, action) for action in range(8)]


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


def test_a_larger_virtual_loss_spreads_leaves_wider():
    def widths(virtual_loss: int) -> int:
        rules = go_rules(5, 5, 0.5)
        search = ParallelSearch(rules, HashEvaluator(rules), 8, virtual_loss)
        search.search(100)
        search.pending.simulations_left[0] = 8
        search.select_leaves()
        return len({path[0] for path in search.paths()})

    assert widths(1) < widths(20)


def test_superko_holds_for_all_leaves():
    search = ParallelSearch(GAMES["go 1x2 without end"], UniformEvaluator(), 6)
    search.search(250)

    def walk(node: int, game: KernelGame) -> None:
        assert set(search.edges(node)) == game.legal_actions()
        for e in range(search.trees.num_visited[search.TREE, node]):
            action = int(search.trees.action[search.TREE, node, e])
            after = game.copy()
            walk(int(search.trees.child[search.TREE, node, e]), after.play(action))

    walk(0, search.game)
    assert depth_of(search.view()) >= 5


def test_a_win_in_one_is_found_with_many_pending_leaves():
    search = ParallelSearch(gomoku_rules(5, 5, 3), UniformEvaluator(), 16)
    search.game.play_names("A1 A5 B1 B5")
    search.search(200)
    visits = search.visits()
    assert max(visits, key=visits.__getitem__) == name_to_action(search.rules, "C1")
    assert visits[name_to_action(search.rules, "C1")] > 120


def test_the_search_continues_in_a_reused_tree_that_dropped_nodes():
    rules = GAMES["go 3x4 with suicide"]
    search = ParallelSearch(rules, HashEvaluator(rules), 6, max_nodes=70)
    slow = twin_of(search)
    forgot = False
    for _ in range(4):
        assert search.search(40) == slow.search(40) == 40
        assert search.view() == view_of_twin(slow.root)
        action = slow.most_visited()
        child = slow.root.edges[action].child
        assert child
        forgot |= size_of(view_of_twin(child)) > 9
        search.play(action, 9)
        slow.follow(action, 9)
        assert slow.tree
    assert forgot


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


def test_white_sees_the_value_with_the_other_sign():
    search = ParallelSearch(go_rules(5, 5, 0.5), ColourEvaluator(0.5), 8)
    search.search(60)
    assert set(search.q_values().values()) == {0.5}
    view: View = search.view()
    assert view.value_sum == 30.0
