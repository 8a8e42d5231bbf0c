"""The kernels of the Gumbel search: equality with the slow twin, and properties of every such search."""

import math

import numpy as np
import pytest

from tests.oracle import gumbel as twin
from tests.oracle.games import oracle_of
from tests.oracle.mcts import played
from tests.oracle.streams import Stream
from tests.search.evaluators import ColourEvaluator, HashEvaluator, PriorEvaluator, judge_of
from tests.search.kernel_gumbel import KernelGumbelSearch
from tests.search.kernel_search import depth_of, view_of_twin
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules, gomoku_rules
from zero.search.evaluator import UniformEvaluator
from zero.search.gumbel import TARGET_SUM, considered_visit, gumbel_number
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


@pytest.mark.parametrize("num_simulations", [1, 2, 3, 16, 50, 200, 801, 65_535])
def test_the_schedule_equals_the_twins(num_simulations):
    for num_considered in (1, 2, 3, 4, 5, 8, 15, 16, 17, 362):
        expected = twin.considered_visits(num_considered, num_simulations)
        steps = sorted({*range(0, num_simulations, 1 + num_simulations // 900), num_simulations - 1})
        got = [considered_visit(num_considered, num_simulations, i) for i in steps]
        assert got == [expected[i] for i in steps]


@pytest.mark.parametrize(
    ("num_considered", "num_simulations", "visits"),
    [
        (4, 16, [6, 6, 2, 2]),  # 2 visits each of four, 4 each of two
        (16, 16, [1] * 16),
        (5, 40, [17, 17, 2, 2, 2]),  # 2 each of five, 6, 6 and the 3 that remain each of two
        (1, 20, [20]),
        (16, 200, [49, 49, 21, 21, 9, 9, 9, 9, 3, 3, 3, 3, 3, 3, 3, 3]),  # 3, 6, 12, 25, and the 6 that remain
        (16, 9, [1] * 9),
    ],
)
def test_considered_actions_get_the_visits_of_sequential_halving(num_considered, num_simulations, visits):
    search = KernelGumbelSearch(LONG, HashEvaluator(LONG), 300, num_considered).begin(num_simulations, 1.0)
    priors, gumbel = search.priors(), search.gumbel()
    search.go_on(num_simulations)
    got = search.visits()
    assert sorted(got.values(), reverse=True)[: len(visits)] == visits
    assert sum(got.values()) == num_simulations
    order = sorted(got, key=lambda action: gumbel[action] + math.log(priors[action]), reverse=True)
    assert {action for action in got if got[action]} == set(order[: len(visits)])


def test_all_actions_are_visited_if_fewer_are_legal_than_considered():
    search = KernelGumbelSearch(gomoku_rules(1, 5, 5), HashEvaluator(gomoku_rules(1, 5, 5)), 100, 16).search(5)
    assert list(search.visits().values()) == [1] * 5


@pytest.mark.parametrize("num_simulations", [0, 1])
def test_with_at_most_one_simulation_the_greatest_gumbel_plus_logit_is_played(num_simulations):
    played, by_prior = [], []
    for game in range(20):
        search = KernelGumbelSearch(GO5, HashEvaluator(GO5), 4).begin(1, 1.0, stream_of(1, 1, "test", game))
        priors, gumbel = search.priors(), search.gumbel()
        search.go_on(num_simulations)
        played.append(search.choice())
        assert played[-1] == max(priors, key=lambda action: gumbel[action] + math.log(priors[action]))
        by_prior.append(max(priors, key=priors.__getitem__))
    assert played != by_prior


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


def test_gumbel_numbers_have_the_moments_of_their_distribution():
    search = KernelGumbelSearch(GO5, HashEvaluator(GO5), 4)
    numbers = np.array([search.begin(1, 1.0, stream_of(1, 1, "test", game)).gumbel() for game in range(400)]).ravel()
    error = math.pi / math.sqrt(6 * len(numbers))
    assert abs(numbers.mean() - np.euler_gamma) < 4 * error
    assert numbers.std() == pytest.approx(math.pi / math.sqrt(6), rel=0.04)


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


def test_games_have_different_gumbel_numbers():
    search = KernelGumbelSearch(GO5, HashEvaluator(GO5), 100)
    one, other = (search.begin(1, 1.0, stream_of(1, 1, "test", game)).gumbel() for game in (1, 2))
    assert one != other


def test_illegal_moves_get_no_visits_and_no_policy_target():
    for game in range(10):
        search = KernelGumbelSearch(GO3, HashEvaluator(GO3), 200)
        search.game.play_names("A2 pass B1")  # A1 is suicide for White, two points are taken
        visits = search.search(60, 1.0, stream_of(1, 1, "test", game)).visits()
        illegal = [name_to_action(GO3, name) for name in ("A1", "A2", "B1")]
        assert set(visits) == set(range(10)) - set(illegal)
        assert search.choice() not in illegal
        assert not search.target()[illegal].any()


def test_halved_values_give_the_same_search():
    # Q-values are mapped to [0, 1]; a game of six in a row does not end this early.
    class HalvedEvaluator(HashEvaluator):
        def judge(self, planes: np.ndarray) -> tuple[np.ndarray, float]:
            prior, value = super().judge(planes)
            return prior, value / 2

    whole = KernelGumbelSearch(LONG, HashEvaluator(LONG), 200).search(100, 1.0)
    halved = KernelGumbelSearch(LONG, HalvedEvaluator(LONG), 200).search(100, 1.0)
    assert whole.visits() == halved.visits()
    assert np.array_equal(whole.trees.action, halved.trees.action)
    assert np.array_equal(whole.target(), halved.target())
    assert whole.root_value() == 2 * halved.root_value() != 0


def test_with_equal_values_the_target_is_the_prior():
    prior = np.array([0.4, 0.3, 0.15, 0.1, 0.05, 0, 0, 0, 0], np.float32)
    search = KernelGumbelSearch(gomoku_rules(3, 3, 3)._replace(in_a_row=4), PriorEvaluator(prior), 100).search(50, 1.0)
    assert search.target() / TARGET_SUM == pytest.approx(prior, abs=1.01 / TARGET_SUM)


def test_with_equal_values_visits_below_the_root_follow_the_prior():
    prior = np.array([0.4, 0.3, 0.15, 0.1, 0.05, 0, 0, 0, 0], np.float32)
    search = KernelGumbelSearch(gomoku_rules(3, 3, 3)._replace(in_a_row=4), PriorEvaluator(prior), 400, 1).search(300)
    child = int(search.trees.child[search.TREE, 0, 0])
    legal = prior * [action in search.edges(child) for action in range(9)]
    visits = np.array([search.visits(child).get(action, 0) for action in range(9)])
    assert visits.sum() == 299
    assert visits == pytest.approx(299 * legal / legal.sum(), abs=1.01)


def test_the_value_of_the_target_is_at_least_the_value_of_the_prior():
    # The paper's theorem for exact Q-values; here for the Q-values of the search.
    gains = []
    for game in range(30):
        rules = GAMES["gomoku 5x5"]
        pair = Pair(rules, HashEvaluator(rules, str(game)), 16, 100, twin.Sigma())
        pair.search(30)
        edges = pair.twin.root.edges
        q_values = twin.completed_q_values(edges, pair.twin.node_values[pair.twin.root.serial])
        target = pair.kernel.target() / TARGET_SUM
        gains.append(sum((target[action] - edges[action].prior) * q for action, q in q_values.items()))
    assert min(gains) >= 0
    assert np.mean(gains) > 0.1


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


def test_a_loss_in_one_is_prevented():
    # White threatens A5-B5-C5; Black has no win.
    search = KernelGumbelSearch(gomoku_rules(5, 5, 3), UniformEvaluator(), 1001, 25)
    search.game.play_names("E1 A5 E4 B5")
    search.search(1000)
    assert search.choice() == int(search.target().argmax()) == name_to_action(search.rules, "C5")


def test_white_sees_the_value_with_the_other_sign():
    search = KernelGumbelSearch(GO5, ColourEvaluator(0.5), 100).search(60)
    assert set(search.q_values().values()) == {0.5}
    search.play(search.choice(), 39)
    search.search(20)
    assert set(search.q_values().values()) == {-0.5}


def test_the_schedule_in_a_reused_tree_counts_only_the_current_search():
    search = KernelGumbelSearch(LONG, HashEvaluator(LONG), 400, 4).search(100, 1.0)
    search.play(search.choice(), 300)
    older = search.visits()
    assert max(older.values()) > 6
    search.begin(16, 1.0)
    assert set(search.own_visits().values()) == {0}
    search.go_on(16)
    own = search.own_visits()
    assert sorted(own.values(), reverse=True)[:5] == [6, 6, 2, 2, 0]
    assert search.visits() == {action: older[action] + own[action] for action in own}
    assert own[search.choice()] == 6


def test_the_search_of_a_child_uses_its_earlier_visits():
    # Sigma grows with the greatest count, and unvisited actions have the mixed value of all visits.
    search = KernelGumbelSearch(LONG, HashEvaluator(LONG), 400, 4).search(100, 1.0)
    search.play(search.choice(), 300)
    search.begin(16)
    expected = search.target() / TARGET_SUM
    priors = search.priors()
    assert max(abs(expected[action] - prior) for action, prior in priors.items()) > 0.05


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


def test_ties_of_unvisited_actions_go_to_the_first_action():
    search = KernelGumbelSearch(GO3, UniformEvaluator(), 100, 4).begin(4)
    for action in range(4):
        assert search.visits()[action] == 0
        search.go_on()
        assert search.visits()[action] == 1
    assert search.choice() == 0


def test_every_simulation_counts_once_and_the_game_is_unchanged():
    search = KernelGumbelSearch(go_rules(4, 4, 0.5), HashEvaluator(go_rules(4, 4)), 400)
    search.game.play_names("B2 C3")
    before = search.game.copy()
    search.begin(100)
    for count in range(1, 101):
        search.go_on()
        assert sum(search.visits().values()) == search.view().visits == count
    for now, then in zip(search.game.position, before.position, strict=True):
        assert np.array_equal(now, then)


def test_other_trees_are_unchanged():
    search = KernelGumbelSearch(GO3, HashEvaluator(GO3), 400).search(60, 1.0)
    search.target()
    for others in (0, 2):
        assert not any(array[others].any() for array in search.trees[:-4])
        assert not any(array[others].any() for array in search.roots[:-5])
