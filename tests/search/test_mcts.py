"""The kernels of the search: equality with the slow twin, and properties of every search."""

import numpy as np
import pytest

from tests.games.kernel_game import KernelGame
from tests.oracle import mcts as twin
from tests.oracle.games import oracle_of
from tests.search.evaluators import ColourEvaluator, EquivariantEvaluator, HashEvaluator, PriorEvaluator, judge_of
from tests.search.kernel_search import KernelSearch, depth_of, size_of, view_of_twin
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules, gomoku_rules
from zero.search.evaluator import UniformEvaluator
from zero.search.streams import stream_of

GAMES = {
    "go 3x3": go_rules(3, 3, 0.5),
    "go 3x3 with suicide": go_rules(3, 3, 0.5, allow_suicide=True),
    "go 4x4 with draws": go_rules(4, 4, 4.0),
    "go 3x4": go_rules(3, 4, 0.5),
    "go 5x5": go_rules(5, 5, 0.5),
    "gomoku 3x3": gomoku_rules(3, 3, 3),
    "gomoku 5x5": gomoku_rules(5, 5, 4),
    "gomoku 4x6": gomoku_rules(4, 6, 3),
}
EVALUATORS = {
    "hash": lambda rules: HashEvaluator(rules),
    "equivariant": EquivariantEvaluator,
    "uniform": lambda rules: UniformEvaluator(),
}


class Pair:
    """The same search through the kernels and through the slow twin."""

    def __init__(self, rules, evaluator, c_puct, max_nodes, fpu_from_parent, pass_wins=False) -> None:
        num_symmetries = len(rules.symmetries)
        symmetries = [np.random.default_rng(7) for _ in range(2)]
        draws = [lambda r=r: int(r.integers(num_symmetries)) for r in symmetries]
        self.kernel = KernelSearch(rules, evaluator, c_puct, max_nodes, draws[0], fpu_from_parent, pass_wins)
        evaluator.num_actions = rules.num_actions
        self.twin = twin.Search(judge_of(evaluator), rules.symmetries, c_puct, fpu_from_parent, draws[1])
        self.twin.pass_wins = pass_wins
        self.game = oracle_of(rules)
        self.rules, self.max_nodes = rules, max_nodes
        self.stream = stream_of(1, 2, "test", 3)

    def search(self, num_simulations: int) -> None:
        """Adds noise, runs simulations and compares the trees."""
        assert (self.kernel.num_nodes == 0) == (self.twin.tree is None)
        if self.twin.tree is None:
            self.kernel.start()
            self.twin.start(self.game)
        self.twin.mix_noise(self.kernel.mix_noise(10.0, 0.25, self.stream), 0.25)
        for _ in range(num_simulations):
            self.kernel.simulate()
            self.twin.simulate(self.twin.root)
        self.compare()

    def play(self, action: int, max_kept: int) -> None:
        self.kernel.play(action, max_kept)
        self.game = twin.played(self.game, action)
        self.twin.follow(action, max_kept)
        if self.twin.tree is None:
            assert self.kernel.num_nodes == 0
        else:
            self.compare()

    def compare(self) -> None:
        view = self.kernel.view()
        assert view == view_of_twin(self.twin.root)
        assert size_of(view) == self.kernel.num_nodes <= self.max_nodes
        assert self.kernel.root_value() == self.twin.root_value()


@pytest.mark.parametrize("first_play", ["zero", "parent"])
@pytest.mark.parametrize("evaluator", EVALUATORS)
@pytest.mark.parametrize("game", GAMES)
def test_trees_equal_the_twins_over_several_moves(game, evaluator, first_play):
    rules = GAMES[game]
    pair = Pair(rules, EVALUATORS[evaluator](rules), 1.5, 2000, first_play == "parent")
    for num_simulations in (250, 80, 80):
        pair.search(num_simulations)
        pair.play(pair.twin.most_visited(), 1900)
        if pair.game.ended:
            break


@pytest.mark.parametrize("evaluator", EVALUATORS)
@pytest.mark.parametrize("game", [game for game in GAMES if "go " in game and "gomoku" not in game])
def test_trees_equal_the_twins_with_pass_wins(game, evaluator):
    rules = GAMES[game]
    pair = Pair(rules, EVALUATORS[evaluator](rules), 1.5, 2000, False, pass_wins=True)
    for num_simulations in (250, 80, 80):
        pair.search(num_simulations)
        pair.play(rules.num_actions - 1 if num_simulations == 250 else pair.twin.most_visited(), 1900)
        if pair.game.ended:
            break


def test_pass_wins_avoids_losing_passes_without_evaluations():
    # White wins the empty board by komi: if Black passes, White passes too and wins.
    rules = go_rules(3, 3, 0.5)
    a_pass = rules.num_actions - 1
    searches = [KernelSearch(rules, UniformEvaluator(), 1.0, 400, pass_wins=wins).start() for wins in (False, True)]
    for search in searches:
        search.simulate(60)
    evaluated, known = searches
    child = int(known.trees.child[1, 0, next(e for e in range(10) if known.trees.action[1, 0, e] == a_pass)])
    assert known.q_values()[a_pass] == -1.0 < evaluated.q_values()[a_pass]
    assert known.trees.num_edges[1, child] == 0 and known.trees.node_value[1, child] == 1.0
    known.play(a_pass, 399)  # the pass is played anyway: game and tree continue
    assert known.num_nodes == 0
    known.start().simulate(60)
    assert len(known.edges()) == 10 and known.q_values()[a_pass] == 1.0


@pytest.mark.parametrize("max_kept", [0, 1, 2, 5, 12])
@pytest.mark.parametrize("game", ["go 3x3", "gomoku 4x6"])
def test_trees_that_drop_their_newest_nodes_equal_the_twins(game, max_kept):
    rules = GAMES[game]
    pair = Pair(rules, HashEvaluator(rules, "peaked"), 0.7, max_kept + 41, game == "go 3x3")
    forgot = False
    for _ in range(5):
        pair.search(40)
        action = pair.twin.most_visited()
        child = pair.twin.root.edges[action].child
        assert child
        grown = size_of(view_of_twin(child))
        pair.play(action, max_kept)
        if pair.game.ended:
            break
        assert pair.kernel.num_nodes == min(grown, max_kept)
        forgot |= grown > max_kept
    assert forgot


def test_the_compared_trees_are_deep_and_contain_ends_of_games():
    # The comparisons cover only situations that occur in them.
    search = KernelSearch(GAMES["gomoku 3x3"], HashEvaluator(GAMES["gomoku 3x3"]), 1.5, 400).start().simulate(300)
    assert depth_of(search.view()) >= 6
    ended = search.trees.num_edges[search.TREE, : search.num_nodes] == 0
    assert set(np.unique(search.trees.node_value[search.TREE, : search.num_nodes][ended])) == {-1.0, 0.0}


def test_white_sees_the_value_with_the_other_sign():
    search = KernelSearch(go_rules(5, 5, 0.5), ColourEvaluator(0.5), 1.0, 100).start().simulate(60)
    assert search.root_value() == 0.5
    assert set(search.q_values().values()) == {0.5}
    search.play(search.edges()[0], 99)
    search.simulate(20)
    assert search.root_value() == -0.5
    assert set(search.q_values().values()) == {-0.5}


@pytest.mark.parametrize(
    ("moves", "wins"),
    [
        ("A1 A5 B1 B5", {"C1"}),  # Black, at the edge
        ("B2 A5 C3 B5", {"A1", "D4"}),  # Black, both ends of a diagonal
        ("A1 B5 C1 C4 E2", {"D3"}),  # White
    ],
)
def test_a_win_in_one_is_found(moves, wins):
    search = KernelSearch(gomoku_rules(5, 5, 3), UniformEvaluator(), 1.5, 300)
    search.game.play_names(moves)
    visits = search.start().simulate(200).visits()
    winning = {name_to_action(search.rules, name) for name in wins}
    assert sum(visits[action] for action in winning) > 150
    assert {action for action, q_value in search.q_values().items() if q_value == 1.0} <= winning


def test_a_loss_in_one_is_prevented():
    # White threatens A5-B5-C5; Black has no win.
    search = KernelSearch(gomoku_rules(5, 5, 3), UniformEvaluator(), 1.5, 1001)
    search.game.play_names("E1 A5 E4 B5")
    visits = search.start().simulate(1000).visits()
    assert max(visits, key=visits.__getitem__) == name_to_action(search.rules, "C5")


def test_two_passes_win_for_the_player_who_is_ahead():
    # Black owns the complete board; White has passed.
    search = KernelSearch(go_rules(3, 3, 0.5), UniformEvaluator(), 1.0, 200)
    search.game.play_names("B2 pass")
    visits = search.start().simulate(100).visits()
    assert max(visits, key=visits.__getitem__) == search.game.pass_action
    assert search.q_values()[search.game.pass_action] == 1.0


def test_a_pass_that_loses_is_not_played():
    search = KernelSearch(go_rules(3, 3, 0.5), UniformEvaluator(), 1.0, 200)
    search.game.play_names("pass B2 A1 pass")  # Black to play is behind
    visits = search.start().simulate(150).visits()
    assert search.q_values()[search.game.pass_action] == -1.0
    assert visits[search.game.pass_action] == min(visits.values())


def test_a_draw_has_the_value_0():
    search = KernelSearch(go_rules(2, 2, 0.0), UniformEvaluator(), 1.0, 10)
    search.game.play_names("pass")
    search.start().simulate(9)
    assert search.q_values()[search.game.pass_action] == 0.0


def test_illegal_moves_get_no_visits():
    search = KernelSearch(go_rules(3, 3, 0.5), HashEvaluator(go_rules(3, 3)), 1.5, 200)
    search.game.play_names("A2 pass B1")  # A1 is suicide for White, two points are taken
    visits = search.start().simulate(150).visits()
    illegal = {name_to_action(search.rules, name) for name in ("A1", "A2", "B1")}
    assert set(visits) == set(range(10)) - illegal
    assert sum(visits.values()) == 150


def test_the_prior_is_normalised_over_legal_moves():
    rules = gomoku_rules(2, 2, 2)
    search = KernelSearch(rules, PriorEvaluator(np.array([0.5, 0.25, 0.125, 0.125], np.float32)), 1.0, 10)
    search.game.play(0)
    assert search.start().priors() == {1: 0.5, 2: 0.25, 3: 0.25}


def test_a_prior_without_legal_moves_becomes_uniform():
    search = KernelSearch(gomoku_rules(2, 2, 2), PriorEvaluator(np.array([1, 0, 0, 0], np.float32)), 1.0, 10)
    search.game.play(0)
    assert set(search.start().priors().values()) == {np.float32(1) / np.float32(3)}


def test_the_first_simulation_follows_the_prior():
    search = KernelSearch(gomoku_rules(3, 3, 3), PriorEvaluator(np.eye(9, dtype=np.float32)[7]), 1.0, 10)
    assert search.start().simulate().visits()[7] == 1


@pytest.mark.parametrize(("fpu_from_parent", "fewest"), [(False, 1), (True, 0)])
def test_first_play_urgency_decides_whether_a_losing_player_visits_all_actions(fpu_from_parent, fewest):
    class BehindEvaluator(ColourEvaluator):
        """Black is behind, and one action has half of the prior."""

        def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
            super().evaluate(planes, prior, value)
            prior[:, 7] = 1.0

    rules = gomoku_rules(5, 5, 5)
    search = KernelSearch(rules, BehindEvaluator(-0.5), 0.1, 100, fpu_from_parent=fpu_from_parent)
    assert min(search.start().simulate(30).visits().values()) == fewest


def test_ties_go_to_the_first_action():
    search = KernelSearch(go_rules(3, 3, 0.5), UniformEvaluator(), 1.0, 10).start()
    for action in range(9):
        assert search.visits()[action] == 0
        search.simulate()
        assert search.visits()[action] == 1


def test_visits_grow_with_the_prior_by_the_puct_rule():
    # With Q = 0 the visits converge to the priors.
    prior = np.array([0.4, 0.3, 0.15, 0.1, 0.05, 0, 0, 0, 0], np.float32)
    search = KernelSearch(gomoku_rules(3, 3, 3)._replace(in_a_row=4), PriorEvaluator(prior), 2.0, 1001)
    visits = search.start().simulate(1000).visits()
    assert [visits[action] / 1000 for action in range(9)] == pytest.approx(prior.tolist(), abs=0.006)


def test_every_simulation_counts_once():
    search = KernelSearch(go_rules(4, 4, 0.5), HashEvaluator(go_rules(4, 4)), 1.5, 400).start()
    for count in range(1, 201):
        search.simulate()
        assert sum(search.visits().values()) == search.view().visits == count


def test_a_simulation_adds_one_node_except_at_the_end_of_a_game():
    search = KernelSearch(gomoku_rules(2, 2, 2), UniformEvaluator(), 1.5, 400).start().simulate(300)
    # 4 first moves, 12 second moves and 24 third moves, which all win.
    assert search.num_nodes == 1 + 4 + 12 + 24
    assert sum(search.visits().values()) == 300


def test_the_search_does_not_change_the_game():
    search = KernelSearch(go_rules(4, 4, 0.5), HashEvaluator(go_rules(4, 4)), 1.5, 400)
    search.game.play_names("B2 C3")
    before = search.game.copy()
    search.start().simulate(100)
    for now, then in zip(search.game.position, before.position, strict=True):
        assert np.array_equal(now, then)
    assert np.array_equal(search.game.history.boards[:3], before.history.boards[:3])


def test_other_trees_are_unchanged():
    search = KernelSearch(go_rules(4, 4, 0.5), HashEvaluator(go_rules(4, 4)), 1.5, 400).start().simulate(100)
    search.play(search.edges()[0], 300)
    for others in (0, 2):
        assert not any(array[others].any() for array in search.trees[:-4])


def test_symmetries_do_not_matter_to_an_equivariant_evaluator():
    rules = go_rules(4, 4, 0.5)
    views = []
    for symmetry in range(8):
        search = KernelSearch(rules, EquivariantEvaluator(rules), 1.5, 200, lambda k=symmetry: k)
        views.append(search.start().simulate(100).view())
    assert all(view == views[0] for view in views)
    assert depth_of(views[0]) > 3


def test_symmetries_matter_to_other_evaluators():
    rules = go_rules(4, 4, 0.5)
    searches = [KernelSearch(rules, HashEvaluator(go_rules(4, 4)), 1.5, 200, lambda k=k: k) for k in range(8)]
    for search in searches:  # a position without symmetry
        search.game.play_names("A2 C4")
    assert len({tuple(search.start().priors().values()) for search in searches}) == 8


def test_superko_holds_within_the_tree():
    # On 1 x 2: Black A1, White B1 captures, and Black may not recapture at once.
    rules = go_rules(1, 2, 0.0)._replace(max_moves=20)
    search = KernelSearch(rules, UniformEvaluator(), 1.0, 300).start().simulate(250)

    def walk(node: int, game: KernelGame) -> None:
        assert set(search.edges(node)) == game.legal_actions()
        for e in range(search.trees.num_visited[search.TREE, node]):
            action = int(search.trees.action[search.TREE, node, e])
            child = int(search.trees.child[search.TREE, node, e])
            if child >= 0:
                after = game.copy()
                walk(child, after.play(action))

    walk(0, search.game)
    assert depth_of(search.view()) >= 5
