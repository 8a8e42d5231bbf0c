"""A player of one game: search, choice and play, compared with the slow twin."""

import resource
import time

import numpy as np
import pytest

from tests.games.kernel_game import KernelGame
from tests.network.networks import CPU, randomized_network
from tests.oracle import mcts as twin
from tests.oracle.games import oracle_of
from tests.oracle.streams import Stream
from tests.play.players import GO3, GO5, play_names, player
from tests.search.evaluators import ColourEvaluator, EquivariantEvaluator, HashEvaluator, PriorEvaluator, judge_of
from zero.errors import ParamsError
from zero.games.rules import go_rules, gomoku_rules
from zero.network.inference import new_evaluator
from zero.network.weights import weights_bytes
from zero.play.single_game import SingleGamePlayer
from zero.search.evaluator import UniformEvaluator

GOMOKU = gomoku_rules(4, 5, 3)
RULES = {"go 3x3": GO3, "go 3x4 with suicide": go_rules(3, 4, 0.0, allow_suicide=True), "gomoku 4x5": GOMOKU}


def play_game(one: SingleGamePlayer) -> list[int]:
    """Plays a game of the player against itself."""
    while not one.is_over:
        one.play(one.choose())
    return list(one.actions)


def num_nodes(one: SingleGamePlayer) -> int:
    """Number of nodes of its tree."""
    return int(one._trees.num_nodes[0])


@pytest.mark.parametrize("max_nodes", [32, 40, 400])
@pytest.mark.parametrize("num_leaves", [1, 5])
@pytest.mark.parametrize("name", RULES)
def test_its_game_equals_the_game_of_the_twin(name, num_leaves, max_nodes):
    rules = RULES[name]
    one = player(rules, num_leaves=num_leaves, max_nodes=max_nodes, random_symmetry=True, seed=9)
    stream = Stream(9, 0, "player", 0)
    slow = twin.ParallelSearch(
        judge_of(HashEvaluator(rules)), rules.symmetries, 1.5, False, lambda: stream.below(len(rules.symmetries))
    )
    slow.num_leaves, slow.max_nodes = num_leaves, max_nodes
    game = oracle_of(rules)
    while not game.ended:
        if slow.tree is None:
            slow.start(game)
        assert slow.search(30) == 30
        result = one.search()
        visits = {action: edge.visits for action, edge in slow.root.edges.items() if edge.visits}
        assert {int(a): int(result.visit_counts[a]) for a in np.flatnonzero(result.visit_counts)} == visits
        assert result.root_value == slow.root_value()
        assert num_nodes(one) == len(slow.root.below())
        action = slow.most_visited()
        assert one.choose() == action
        one.play(action)
        game = twin.played(game, action)
        slow.follow(action, max_nodes - 31)
    assert one.is_over


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_simulations": -1}, "num_simulations -1 is too small; give at least 0"),
        ({"num_leaves": 0}, "num_leaves 0 is too small; give at least 1"),
        ({"max_nodes": 31}, "max_nodes 31 is too small; give at least 32"),
    ],
)
def test_a_tree_without_room_for_a_search_is_rejected(changes, message):
    with pytest.raises(ParamsError, match=message):
        player(**changes)


@pytest.mark.parametrize("num_leaves", [1, 8])
def test_games_with_equal_seeds_are_equal(num_leaves):
    games = [play_game(player(GO3, num_leaves=num_leaves, random_symmetry=True, seed=s)) for s in (1, 1, 2)]
    assert games[0] == games[1] != games[2]


def test_the_games_of_a_player_have_different_streams():
    one, other = (player(random_symmetry=True) for _ in range(2))
    first = play_game(one)
    one.new_game()
    second = play_game(one)
    play_names(other, "A1 B1")  # earlier moves do not affect a new game
    other.new_game()
    assert play_game(other) == second != first


def test_a_result_describes_the_tree():
    one = player(num_simulations=100)
    result = one.search()
    assert result.visit_counts.sum() == result.num_simulations == 100
    assert num_nodes(one) <= 101
    assert result.prior.sum() == pytest.approx(1.0)
    assert result.ranking()[0] == result.visit_counts.argmax() == one.choose()
    assert sorted(result.ranking()) == list(range(26))
    visits = result.visit_counts > 0
    assert (result.q_values[~visits] == 0).all()
    weighted = (result.q_values * result.visit_counts).sum() / 100
    assert result.root_value == pytest.approx(weighted, abs=1e-5)
    assert result.best_value == result.q_values[one.choose()] != pytest.approx(result.root_value, abs=1e-3)


def test_the_principal_variation_is_legal():
    one = player(num_simulations=150)
    best = one.search().visit_counts.argmax()
    line = one.principal_variation(int(best))
    assert line[0] == best and len(line) > 3
    game = KernelGame(GO5)
    for action in line:
        game.play(action)


def test_the_subtree_of_the_played_move_is_reused():
    one = player(num_simulations=100, max_nodes=1000)
    result = one.search()
    best = one.choose()
    one.play(best)
    after = one.search(0)
    assert after.visit_counts.sum() == result.visit_counts[best] - 1  # the first visit added the node
    assert after.num_simulations == 0
    assert one.search(50).visit_counts.sum() == after.visit_counts.sum() + 50


def test_a_reused_tree_leaves_room_for_a_complete_search():
    one = player(GO3, num_simulations=30, max_nodes=33)
    while not one.is_over:
        assert one.search().num_simulations == 30
        one.play(one.choose())


def test_searches_of_one_position_add_up_until_the_tree_is_full():
    one = player(num_simulations=30, max_nodes=70)
    counts = [one.search() for _ in range(4)]
    assert [result.num_simulations for result in counts[:2]] == [30, 30]
    assert counts[2].num_simulations < 30
    assert counts[3].num_simulations == 0
    assert num_nodes(one) == 70
    assert counts[3].visit_counts.sum() == sum(result.num_simulations for result in counts)


def test_a_root_is_not_visited_so_often_that_its_sum_of_values_stands_still(monkeypatch):
    monkeypatch.setattr("zero.play.single_game.MAX_VISITS", 30)
    one = player(num_simulations=20, max_nodes=400)
    assert 20 <= one.search().visit_counts.sum() + 1 <= one.search().visit_counts.sum() + 1 <= 31
    assert one.search(1000, seconds=60.0).num_simulations == 0


def test_a_time_limit_ends_the_search():
    class SlowEvaluator(UniformEvaluator):
        def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
            time.sleep(0.02)
            super().evaluate(planes, prior, value)

    player().search(8)  # compiles the kernels first
    one = player(evaluator=SlowEvaluator(), num_simulations=100_000, max_nodes=100_002)
    begun = time.perf_counter()
    result = one.search(seconds=0.1)
    assert 0.1 <= time.perf_counter() - begun < 5
    assert 0 < result.num_simulations <= 8 * 5
    assert result.visit_counts.sum() == result.num_simulations
    limited = player(evaluator=SlowEvaluator(), num_simulations=150)
    assert limited.search(seconds=0.001).num_simulations == 0  # the root was evaluated, and the time was up
    assert limited.choose() == 0


@pytest.mark.parametrize("num_leaves", [1, 4])
def test_a_gumbel_search_halves_its_actions_and_reports_its_choice(num_leaves):
    one = player(num_simulations=64, considered_actions=4, num_leaves=num_leaves)
    result = one.search()
    assert sorted(result.visit_counts[result.visit_counts > 0]) == [8, 8, 24, 24]
    assert result.choice == one.choose() == result.ranking()[0]
    best = np.flatnonzero(result.visit_counts == 24)
    assert result.choice in best
    assert result.best_value == result.q_values[result.choice] > result.root_value
    line = one.principal_variation(result.choice)
    assert line[0] == result.choice and len(line) > 1


@pytest.mark.parametrize("root", ["puct", "gumbel"])
def test_a_watched_search_reports_on_the_way_and_gives_the_same_result(root):
    watched, other = (player(num_simulations=60, num_leaves=4, root=root, random_symmetry=True) for _ in range(2))
    reports = []

    def interrupted() -> bool:
        reports.append(watched.result_so_far())
        return False

    result, expected = watched.search(interrupted=interrupted), other.search()
    assert result.choice == expected.choice and (result.visit_counts == expected.visit_counts).all()
    totals = [int(report.visit_counts.sum()) for report in reports]
    assert totals == sorted(totals) and (totals[0], totals[-1]) == (0, 60)
    assert (reports[-1].q_values == expected.q_values).all()


def test_an_interrupted_search_ends_and_can_go_on():
    one = player(num_simulations=60, num_leaves=4, root="gumbel")
    answers = iter([False, False, True])
    stopped = one.search(interrupted=lambda: next(answers))
    assert 0 < stopped.num_simulations < 60 and stopped.choice is None
    assert one.choose() == stopped.ranking()[0]
    assert one.search(60 - stopped.num_simulations).visit_counts.sum() == 60


def test_a_search_with_a_time_limit_uses_puct():
    one = player(num_simulations=64, considered_actions=4)
    assert one.search(seconds=60.0).choice is None
    other = player(num_simulations=64)
    assert (one.search(0).visit_counts == other.search().visit_counts).all()
    assert one.search(32).choice is not None, "the next search has no limit"


def test_a_short_search_of_a_well_visited_tree_uses_puct():
    one = player(num_simulations=16, considered_actions=4, max_nodes=2000)
    one.search(1000, seconds=60.0)
    result = one.search()
    assert (result.choice, result.num_simulations) == (None, 16)
    assert one.choose() == result.visit_counts.argmax()
    one.play(one.choose())
    while one.search(0).visit_counts.sum() > 4 * 16:
        one.play(one.choose())
    assert one.search().choice is not None, "the reused tree has few visits"


def test_a_gumbel_search_has_no_choice_if_a_full_tree_ends_it():
    one = player(num_simulations=30, considered_actions=4, max_nodes=50)
    assert one.search().choice is not None
    result = one.search()
    assert 0 < result.num_simulations < 30
    assert result.choice is None
    assert one.choose() == result.ranking()[0] == result.visit_counts.argmax()


def test_without_simulations_it_plays_the_best_legal_prior():
    class CountingEvaluator(HashEvaluator):
        """Counts its batches."""

    evaluator = CountingEvaluator(GO5)
    one = player(evaluator=evaluator, num_simulations=0)
    for _ in range(10):
        result = one.search()
        assert result.visit_counts.sum() == 0
        assert one.choose() == result.prior.argmax()
        assert one.principal_variation(one.choose()) == (one.choose(),)
        assert (result.prior[~result.legal_mask] == 0).all()
        one.play(one.choose())
    assert evaluator.num_rows == 10


def test_without_simulations_the_value_comes_from_the_network():
    one = player(evaluator=ColourEvaluator(0.25), num_simulations=0)
    assert one.search().root_value == 0.25
    one.play(3)
    assert one.search().root_value == -0.25


def test_the_prior_of_a_result_is_normalised_over_legal_moves():
    one = player(gomoku_rules(2, 2, 2), PriorEvaluator(np.array([0.5, 0.25, 0.125, 0.125], np.float32)))
    one.play(0)
    assert one.search().prior.tolist() == [0.0, 0.5, 0.25, 0.25]
    assert one.search().legal_mask.tolist() == [False, True, True, True]


def test_ties_of_visits_go_to_the_greater_prior():
    prior = np.full(26, 0.01, np.float32)
    prior[12] = 0.02
    one = player(evaluator=PriorEvaluator(prior), num_simulations=26, c_puct=0.1)
    result = one.search()
    assert one.choose() == 12
    assert result.ranking()[:3] == [12, 0, 1]


@pytest.mark.parametrize("num_simulations", [0, 40])
def test_it_resigns_if_root_and_best_child_are_below_the_threshold(num_simulations):
    one = player(evaluator=ColourEvaluator(-0.8), num_simulations=num_simulations)
    assert not one.should_resign(-0.5)  # not before both players have moved
    play_names(one, "C3 D3")
    assert one.should_resign(-0.5)
    assert not one.should_resign(-0.9)
    assert not one.should_resign(-1.0)
    one.play(0)
    assert not one.should_resign(-0.5)  # White is ahead


def test_it_does_not_resign_if_one_move_is_good():
    # White passes while only Black has stones: a pass wins, whatever the network says.
    one = player(GO3, ColourEvaluator(-0.9), num_simulations=100)
    play_names(one, "B2 pass")
    assert one.search().q_values[one.choose()] == 1.0
    assert not one.should_resign(-0.5)


@pytest.mark.parametrize("num_leaves", [1, 8])
def test_all_its_moves_are_legal_under_superko(num_leaves):
    rules = go_rules(2, 2, 0.0, allow_suicide=True)._replace(
        max_moves=60
    )  # only repetitions are illegal, and many moves repeat
    repetitions = 0
    for seed in range(6):
        one = player(rules, HashEvaluator(rules, str(seed)), num_leaves=num_leaves, max_nodes=100)
        game = oracle_of(rules)
        while not one.is_over:
            legal = game.legal_actions()
            result = one.search()
            assert set(result.ranking()) == legal
            assert set(np.flatnonzero(result.visit_counts)) <= legal
            repetitions += rules.num_points - len(game.board) - len(legal - {rules.num_points})
            action = next((a for a in result.ranking() if a != rules.num_points), rules.num_points)
            one.play(action)
            game.play(action)
    assert repetitions > 20


@pytest.mark.parametrize("num_leaves", [1, 8])
def test_a_network_plays_a_game(num_leaves):
    evaluator = new_evaluator(weights_bytes(randomized_network()), CPU)
    games = [play_game(player(GO5, evaluator, num_leaves=num_leaves, random_symmetry=True)) for _ in range(2)]
    assert games[0] == games[1]


def test_batches_have_few_shapes():
    shapes = set()

    class ShapeEvaluator(HashEvaluator):
        def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
            shapes.add(len(planes))
            super().evaluate(planes, prior, value)

    evaluator = ShapeEvaluator(GO3)
    play_game(player(GO3, evaluator, num_leaves=11))
    assert {1, 11} <= shapes <= {1, 2, 4, 8, 11}


def test_the_player_recovers_from_a_failure_of_the_evaluator():
    class FailingEvaluator(EquivariantEvaluator):
        fails = False

        def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
            if self.fails:
                raise RuntimeError("out of memory")
            super().evaluate(planes, prior, value)

    evaluator = FailingEvaluator(GO5)
    one = player(evaluator=evaluator)
    one.search(10)
    evaluator.fails = True
    with pytest.raises(RuntimeError):
        one.search()
    evaluator.fails = False
    whole = player(evaluator=EquivariantEvaluator(GO5)).search()
    assert one.search().visit_counts.tolist() == whole.visit_counts.tolist()


def test_a_tree_too_large_for_memory_is_rejected():
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 * 2**30, limits[1]))  # below the 110 GB of the tree, on any machine
    try:
        with pytest.raises(ParamsError, match="a tree of 16,777,216 nodes does not fit in memory; give fewer"):
            player(go_rules(19, 19), UniformEvaluator(), max_nodes=2**24)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("rules", [go_rules(9, 9, 0.5), gomoku_rules(5, 5, 4)], ids=["9x9", "without a pass"])
def test_a_network_for_another_board_is_rejected(rules):
    evaluator = new_evaluator(weights_bytes(randomized_network()), CPU)
    with pytest.raises(ParamsError, match="the network is for a 5x5 board with 26 actions, the game has"):
        player(rules, evaluator)
