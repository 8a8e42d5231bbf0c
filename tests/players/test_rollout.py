"""Rollout search: random games and trees compared with the slow twin, tactics, and random streams."""

import numpy as np
import pytest

from tests.games.kernel_game import KernelGame, drawn_go
from tests.oracle import rollout as twin
from tests.oracle.games import Game, oracle_of
from tests.oracle.streams import Stream
from tests.players.games import played_games
from zero.games.coordinates import name_to_action
from zero.games.position import BLACK, WHITE, Position, Rules
from zero.games.rules import go_rules, gomoku_rules, othello_rules
from zero.players.rollout import (
    RolloutPlayer,
    Workspace,
    is_own_eye,
    new_workspace,
    num_bits,
    play_out,
    search,
    take_bit,
)
from zero.players.uniform import UniformPlayer
from zero.search.streams import stream_of

BOARDS = {
    "go 2x2": go_rules(2, 2, 0.0),
    "go 3x3 with suicide": go_rules(3, 3, 0.5, allow_suicide=True),
    "go 3x5": go_rules(3, 5, 1.0),
    "go 5x5": go_rules(5, 5, 7.5),
    "go 9x9": go_rules(9, 9, 7.0),
    "gomoku 3x3": gomoku_rules(3, 3, 3),
    "gomoku 7x4": gomoku_rules(7, 4, 4),
    "gomoku 9x9": gomoku_rules(9, 9, 5),
    "othello 6x6": othello_rules(6, 6),
}
every_board = pytest.mark.parametrize("rules", [pytest.param(rules, id=name) for name, rules in BOARDS.items()])


def random_start(rules: Rules, num_moves: int, seed: int) -> KernelGame:
    """A game after `num_moves` random moves; a move that would end the game is not played."""
    game, random = KernelGame(rules), np.random.default_rng(seed)
    for _ in range(num_moves):
        after = game.copy().play(int(random.choice(sorted(game.legal_actions()))))
        if after.ended:
            break
        game = after
    return game


def oracle_at(game: KernelGame, seed: int, num_moves: int) -> Game:
    """The slow twin of `random_start`."""
    oracle, random = oracle_of(game.rules), np.random.default_rng(seed)
    for _ in range(num_moves):
        action = int(random.choice(sorted(oracle.legal_actions())))
        if len(oracle.boards) - 1 == game.num_moves:
            break
        oracle.play(action)
    assert oracle.board == game.board()
    return oracle


def searched(game: KernelGame, stream: np.ndarray, num_playouts: int) -> tuple[int, Workspace]:
    """The choice of a search, and its tree."""
    space = new_workspace(game.rules, num_playouts)
    positions = Position(*(array[np.newaxis] for array in game.position))
    return search(game.rules, positions, game.history, space, stream, num_playouts), space


@every_board
@pytest.mark.parametrize("num_moves", [0, 3, 7])
def test_random_games_equal_those_of_the_twin(rules, num_moves):
    for seed in range(5):
        game = random_start(rules, num_moves, seed)
        oracle = oracle_at(game, seed, num_moves)
        stream, slow_stream = stream_of(seed, 0, "test", num_moves), Stream(seed, 0, "test", num_moves)
        played = game.copy()
        outcome = play_out(rules, played.position, played.history, new_workspace(rules, 1), stream)
        assert outcome == twin.outcome_of_random_game(oracle, slow_stream)
        assert stream[2] == slow_stream.counter, "they drew as many numbers"


@every_board
@pytest.mark.parametrize("num_moves", [0, 5])
def test_a_search_equals_that_of_the_twin(rules, num_moves):
    num_playouts = 8 if rules.num_points > 40 else 80
    game = random_start(rules, num_moves, 1)
    oracle = oracle_at(game, 1, num_moves)
    slow = twin.RolloutSearch(Stream(7, 0, "test", num_moves))
    chosen, space = searched(game, stream_of(7, 0, "test", num_moves), num_playouts)
    assert chosen == slow.choose(oracle, num_playouts)
    trees = space.trees
    visited = range(trees.num_visited[0, 0])
    edges = {int(trees.action[0, 0, e]): (trees.visit_count[0, 0, e], trees.value_sum[0, 0, e]) for e in visited}
    assert edges == {a: (edge.visits, edge.value_sum) for a, edge in slow.root.edges.items() if edge.visits}
    assert sum(visits for visits, _ in edges.values()) == num_playouts
    assert trees.num_nodes[0] == len(slow.root.below())


@every_board
def test_a_search_does_not_change_the_game(rules):
    game = random_start(rules, 4, 2)
    before = game.copy()
    searched(game, stream_of(1, 0, "test", 0), 50)
    for array, old in zip(game.position, before.position, strict=True):
        np.testing.assert_array_equal(array, old)
    rows = game.num_moves + 1
    np.testing.assert_array_equal(game.history.boards[:rows], before.history.boards[:rows])
    np.testing.assert_array_equal(game.history.hashes[:rows], before.history.hashes[:rows])


FALSE_EYES = """
    . X O . .
    X O . X .
    . . X . X
    . . O X O
    X . . . .
    """
TRUE_EYES = """
    . X . . .
    X X . X .
    . . X . X
    . . . X O
    X . . . .
    """


def test_a_false_eye_is_not_an_eye():
    """One enemy on the diagonals of A5, at the edge, or two on those of D3, spoil it."""
    for drawing, is_eye in ((FALSE_EYES, False), (TRUE_EYES, True)):
        game = drawn_go(drawing, BLACK)
        for name in ("A5", "D3"):
            assert is_own_eye(game.rules, game.position, name_to_action(game.rules, name)) == is_eye, name


def test_bits_are_taken_in_order():
    random = np.random.default_rng(1)
    for _ in range(50):
        points = sorted(random.choice(192, random.integers(1, 192), replace=False).tolist())
        bits = np.zeros(3, np.uint64)
        for point in points:
            bits[point >> 6] |= np.uint64(1) << np.uint64(point & 63)
        assert sum(num_bits(word) for word in bits) == len(points)
        while points:
            index = int(random.integers(len(points)))
            assert take_bit(bits, index) == points.pop(index)
        assert not bits.any()


@pytest.mark.parametrize("rules", [go_rules(5, 5, 0.5), gomoku_rules(6, 6, 4)], ids=["go 5x5", "gomoku 6x6"])
def test_it_beats_random_moves(rules):
    """It wins at least 95 of 100 games, half with each colour; the seeds make the result repeatable."""
    player, other = RolloutPlayer(rules, 200, 50, seed=1), UniformPlayer(rules, 2)
    won = [game.outcome() == BLACK for game in played_games(rules, player, other, range(50)).values()]
    won += [game.outcome() == WHITE for game in played_games(rules, other, player, range(50, 100)).values()]
    player.close()
    assert sum(won) >= 95


def test_a_search_that_ctrl_c_left_behind_does_not_see_later_moves(monkeypatch):
    """Ctrl-C ends `choose`, while its search goes on in its thread: it never ended on a board that changed."""

    def search_beside_the_game(rules, positions, history, *others):
        before = [array.copy() for array in (*positions, *history)]
        for action in (12, 13):
            player.play(0, action)
        for array, old in zip((*positions, *history), before, strict=True):
            np.testing.assert_array_equal(array, old)
        return search(rules, positions, history, *others)

    player = RolloutPlayer(BOARDS["go 5x5"], 10, 1, seed=1)
    player.begin([0, 1])
    expected = player.choose([1])
    monkeypatch.setattr("zero.players.rollout.search", search_beside_the_game)
    monkeypatch.setattr("zero.players.rollout.stream_of", lambda seed, generation, name, game: stream_of(1, 0, name, 1))
    assert player.choose([0]) == expected
    player.close()


def test_it_is_named_by_its_playouts():
    player = RolloutPlayer(BOARDS["go 5x5"], 300, 1, seed=8)
    player.close()
    assert player.id.name == "rollout MCTS, 300 playouts"
    assert player.id.settings == {"playouts": 300, "c_puct": 5.0}
