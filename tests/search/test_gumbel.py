"""The kernels of the Gumbel search: equality with the slow twin, and properties of every such search."""

import math

import numpy as np
import pytest

from tests.oracle import gumbel as twin
from tests.oracle.games import oracle_of
from tests.oracle.mcts import played
from tests.oracle.streams import Stream
from tests.search.evaluators import HashEvaluator, PriorEvaluator, judge_of
from tests.search.kernel_gumbel import KernelGumbelSearch
from tests.search.kernel_search import depth_of, view_of_twin
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules, gomoku_rules
from zero.search.evaluator import UniformEvaluator
from zero.search.gumbel import TARGET_SUM, gumbel_number
from zero.search.streams import stream_of

GAMES = {
    "go 3x3": go_rules(3, 3, 0.5),
    "go 4x4 with draws": go_rules(4, 4, 4.0),
    "go 3x4": go_rules(3, 4, 0.5),
    "gomoku 3x3": gomoku_rules(3, 3, 3),
    "gomoku 5x5": gomoku_rules(5, 5, 4),
    "gomoku 1x3": gomoku_rules(1, 3, 3),
}
TREES = [(game, pass_wins) for game in GAMES for pass_wins in (False, True) if not pass_wins or "go " in game]
EVALUATORS = {"hash": lambda rules: HashEvaluator(rules), "uniform": lambda rules: UniformEvaluator()}
GO3, GO5, LONG = go_rules(3, 3, 0.5), go_rules(5, 5, 0.5), gomoku_rules(6, 6, 6)


class Pair:
    """The same search through the kernels and through the slow twin."""

    def __init__(
        self, rules, evaluator, num_considered: int, max_nodes: int, sigma: twin.Sigma, pass_wins: bool = False
    ) -> None:
        symmetries = [np.random.default_rng(7) for _ in range(2)]
        draws = [lambda r=r: int(r.integers(len(rules.symmetries))) for r in symmetries]
        self.kernel = KernelGumbelSearch(rules, evaluator, max_nodes, num_considered, draws[0], *sigma, pass_wins)
        evaluator.num_actions = rules.num_actions
        self.twin = twin.GumbelSearch(judge_of(evaluator), rules.symmetries, draws[1], num_considered, sigma)
        self.twin.pass_wins = pass_wins
        self.game = oracle_of(rules)
        self.max_nodes = max_nodes
        self.stream = stream_of(1, 2, "test", 3)

    def search(self, num_simulations: int, scale: float = 1.0) -> None:
        """Runs a complete search and compares trees, moves and targets."""
        assert (self.kernel.num_nodes == 0) == (self.twin.tree is None)
        self.kernel.search(num_simulations, scale, self.stream)
        self.twin.search(self.game, num_simulations, self.kernel.gumbel())
        assert self.kernel.view() == view_of_twin(self.twin.root)
        assert self.kernel.own_visits() == self.twin.own_visits()
        assert self.kernel.choice() == self.twin.choice()
        policy = self.twin.policy()
        target = self.kernel.target()
        assert target.sum() == TARGET_SUM
        for action in range(len(target)):
            assert abs(target[action] - TARGET_SUM * policy.get(action, 0.0)) < 1.05

    def play(self, action: int) -> None:
        max_kept = self.max_nodes // 2
        self.kernel.play(action, max_kept)
        self.game = played(self.game, action)
        self.twin.follow(action, max_kept)


@pytest.mark.parametrize(
    ("num_considered", "sigma"),
    [(2, twin.Sigma()), (5, twin.Sigma()), (16, twin.Sigma()), (5, twin.Sigma(0.5, False)), (5, twin.Sigma(1.5, True))],
    ids=str,
)
@pytest.mark.parametrize("evaluator", EVALUATORS)
@pytest.mark.parametrize(("game", "pass_wins"), TREES)
def test_trees_moves_and_targets_equal_the_twins_over_several_moves(game, pass_wins, evaluator, num_considered, sigma):
    rules = GAMES[game]
    pair = Pair(rules, EVALUATORS[evaluator](rules), num_considered, 200, sigma, pass_wins)
    for num_simulations in (99, 20, 7, 50, 1, 30):
        pair.search(num_simulations)
        pair.play(pair.twin.choice())
        if pair.game.ended:
            break


def test_the_compared_trees_are_deep_and_contain_ends_of_games():
    search = KernelGumbelSearch(GAMES["gomoku 3x3"], HashEvaluator(GAMES["gomoku 3x3"]), 200, 5).search(99)
    assert depth_of(search.view()) >= 5
    assert (search.trees.num_edges[search.TREE, : search.num_nodes] == 0).any()
    assert (search.trees.num_visited[search.TREE, 1 : search.num_nodes] >= 5).any()


def test_without_simulations_actions_follow_the_prior():
    prior = np.array([0.5, 0.25, 0.125, 0.125, 0, 0, 0, 0, 0], np.float32)
    search = KernelGumbelSearch(gomoku_rules(3, 3, 3), PriorEvaluator(prior), 4)
    count = 4_000
    played = [search.begin(1, 1.0, stream_of(1, 1, "test", game)).choice() for game in range(count)]
    shares = np.bincount(played, minlength=9) / count
    assert shares == pytest.approx(prior, abs=4 * math.sqrt(0.25 / count))


def test_gumbel_numbers_come_from_the_stream_in_the_order_of_legal_actions():
    search = KernelGumbelSearch(GO3, HashEvaluator(GO3), 60)
    search.game.play_names("A2 pass B1")  # A1 is suicide for White, two points are taken
    search.search(30, 1.0, stream_of(1, 1, "test", 1))
    stream = Stream(1, 1, "test", 9)
    search.begin(30, 1.0, kernel_stream := stream_of(1, 1, "test", 9))
    assert len(search.edges()) == 7
    expected = [-math.log(-math.log(stream.uniform())) for _ in search.edges()]
    assert search.gumbel() == pytest.approx(expected, rel=1e-6)
    assert kernel_stream[2] == stream.counter == 7


def test_the_scale_multiplies_the_numbers():
    search = KernelGumbelSearch(GO5, HashEvaluator(GO5), 4)
    whole, half = (np.array(search.begin(1, scale, stream_of(1, 1, "test", 5)).gumbel()) for scale in (1.0, 0.5))
    assert np.array_equal(half, whole / 2)


def test_every_random_number_gives_a_finite_gumbel_number():
    assert gumbel_number(0.0) == pytest.approx(-3.62, abs=0.01)
    assert gumbel_number(1 - 2**-53) == pytest.approx(36.7, abs=0.1)


def test_a_scale_of_0_is_deterministic_and_draws_nothing():
    views = []
    for game in (1, 2):
        stream = stream_of(1, 1, "test", game)
        before = stream.copy()
        search = KernelGumbelSearch(GO5, HashEvaluator(GO5), 100).search(60, 0.0, stream)
        assert np.array_equal(stream, before)
        assert set(search.gumbel()) == {0.0}
        views.append((search.view(), search.choice()))
    assert views[0] == views[1]


def test_a_scale_of_0_clears_the_numbers_of_the_previous_search():
    search = KernelGumbelSearch(GO5, HashEvaluator(GO5), 100).search(60, 1.0)
    assert set(search.begin(60, 0.0).gumbel()) == {0.0}


@pytest.mark.parametrize(
    ("moves", "wins"),
    [
        ("A1 A5 B1 B5", {"C1"}),  # Black, at the edge
        ("B2 A5 C3 B5", {"A1", "D4"}),  # Black, both ends of a diagonal
        ("A1 B5 C1 C4 E2", {"D3"}),  # White
    ],
)
def test_a_win_in_one_is_played_and_learned(moves, wins):
    search = KernelGumbelSearch(gomoku_rules(5, 5, 3), UniformEvaluator(), 300, 25)
    search.game.play_names(moves)
    search.search(200)
    winning = [name_to_action(search.rules, name) for name in wins]
    assert search.choice() in winning
    assert search.target()[winning].sum() > 0.95 * TARGET_SUM


@pytest.mark.parametrize(("likely", "next_best"), [(7, 0), (0, 1)])
def test_actions_with_prior_0_come_last_and_can_be_considered(likely, next_best):
    prior = np.zeros(9, np.float32)
    prior[likely] = 1.0
    search = KernelGumbelSearch(gomoku_rules(3, 3, 3), PriorEvaluator(prior), 200, 2).begin(100)
    for action in (likely, next_best):
        assert search.visits()[action] == 0
        search.go_on()
        assert search.visits()[action] == 1
    search.go_on(98)
    assert search.visits()[likely] == search.visits()[next_best] == 50
    assert search.target().sum() == TARGET_SUM


def test_other_trees_are_unchanged():
    search = KernelGumbelSearch(GO3, HashEvaluator(GO3), 400).search(60, 1.0)
    search.target()
    for others in (0, 2):
        assert not any(array[others].any() for array in search.trees[:-4])
        assert not any(array[others].any() for array in search.roots[:-5])
