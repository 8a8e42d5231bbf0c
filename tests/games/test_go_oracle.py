"""The kernels of Go against the slow twin, over random games: every mask, board, hash, margin and end."""

from collections import Counter

import numpy as np
import pytest

from tests.games.kernel_game import KernelGame
from tests.oracle.go import GoGame, all_points
from zero.games.position import Rules
from zero.games.rules import go_rules

SMALL = [(1, 1), (1, 2), (1, 7), (2, 2), (2, 3), (3, 2), (3, 3), (2, 5), (3, 4), (4, 4), (5, 3), (5, 5)]
"""Small boards that fill up, so that superko decides; games are far longer than the usual limit."""
SMALL_MOVES, SMALL_GAMES = 60, 12

LARGE = [(6, 6), (7, 7), (4, 9), (8, 8), (9, 8), (9, 9), (13, 5)]
"""Boards of one word, two words and exactly 64 points; one game to the usual limit, with some masks compared."""
LARGE_INTERVAL = 7

PASS_CHANCE = 0.03


@pytest.mark.parametrize("allow_suicide", [False, True])
@pytest.mark.parametrize(("rows", "columns"), SMALL)
def test_random_games_on_small_boards(rows, columns, allow_suicide):
    rules = go_rules(rows, columns, 0.5, allow_suicide)._replace(max_moves=SMALL_MOVES)
    for number in range(SMALL_GAMES):
        compare(rules, np.random.default_rng([rows, columns, number]))


@pytest.mark.parametrize("allow_suicide", [False, True])
@pytest.mark.parametrize(("rows", "columns"), LARGE)
def test_random_games_on_large_boards(rows, columns, allow_suicide):
    compare(go_rules(rows, columns, 7.0, allow_suicide), np.random.default_rng([rows, columns]), LARGE_INTERVAL)


@pytest.mark.parametrize("allow_suicide", [False, True])
def test_superko_compares_boards_if_all_hashes_are_equal(allow_suicide):
    rules = go_rules(3, 3, 0.5, allow_suicide)._replace(max_moves=SMALL_MOVES)
    for number in range(SMALL_GAMES):
        compare(rules._replace(zobrist=np.zeros_like(rules.zobrist)), np.random.default_rng([3, 3, number]))


@pytest.mark.parametrize("allow_suicide", [False, True])
def test_superko_compares_both_words_of_boards_if_all_hashes_are_equal(allow_suicide):
    rules = go_rules(9, 9, 7.0, allow_suicide)
    compare(rules._replace(zobrist=np.zeros_like(rules.zobrist)), np.random.default_rng([9, 9]), LARGE_INTERVAL)


@pytest.mark.parametrize("allow_suicide", [False, True])
def test_random_games_cover_all_rules(allow_suicide):
    # The comparison covers only situations that occur in it.
    rules = go_rules(2, 3, 0.5, allow_suicide)._replace(max_moves=SMALL_MOVES)
    met: Counter[str] = Counter()
    for number in range(SMALL_GAMES):
        met += compare(rules, np.random.default_rng([2, 3, number]))
    kinds = {"captures", "superko", "superko by capture of several", "two passes", "length"}
    assert set(met) == kinds | ({"suicide", "superko by suicide"} if allow_suicide else {"suicide forbidden"})


def compare(rules: Rules, random: np.random.Generator, interval: int = 1) -> Counter[str]:
    """Plays one random game on both sides, compares everything, and counts the situations in it.

    Args:
      rules: the rules of the game.
      random: generator that chooses the moves.
      interval: number of moves between two comparisons of the legal actions.
    """
    game, twin = KernelGame(rules), GoGame(rules.rows, rules.columns, rules.komi, rules.allow_suicide, rules.max_moves)
    met: Counter[str] = Counter()
    while True:
        context = f"after {game.num_moves} moves:\n{game.drawing()}"
        assert game.board() == game.past_board(game.num_moves) == twin.board, context
        assert game.history.hashes[game.num_moves] == game.hash_of_board(), context
        assert (game.to_play, game.ended, game.margin()) == (twin.to_play, twin.ended, twin.margin()), context
        legal = game.legal_actions()
        if game.num_moves % interval == 0:
            assert legal == twin.legal_actions(), context
            met += forbidden(twin)
        if game.ended:
            assert legal == set()
            assert game.outcome() == twin.outcome()
            return +(met + Counter({"two passes" if twin.num_passes == 2 else "length": 1}))
        points = sorted(legal - {game.pass_action})
        passes = not points or random.random() < PASS_CHANCE
        action = game.pass_action if passes else points[random.integers(len(points))]
        before, colour = twin.board, twin.to_play
        game.play(action)
        twin.play(action)
        met["captures"] += len(twin.board.stones(-colour)) < len(before.stones(-colour))
        met["suicide"] += len(twin.board.stones(colour)) < len(before.stones(colour))


def forbidden(twin: GoGame) -> Counter[str]:
    """Number of moves that each rule forbids to the player to move."""
    found: Counter[str] = Counter()
    colour = twin.to_play
    for point in all_points(twin.rows, twin.columns):
        if twin.ended or point in twin.board.black | twin.board.white or twin.is_legal(point):
            continue
        then = twin.board_after(point)
        suicide = point not in then.stones(colour)
        if suicide and not twin.allow_suicide:
            found["suicide forbidden"] += 1
            continue
        found["superko"] += 1
        found["superko by suicide"] += suicide
        found["superko by capture of several"] += len(twin.board.stones(-colour)) - len(then.stones(-colour)) > 1
    return found
