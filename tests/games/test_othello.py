"""Rules of Othello: published counts of moves and games, and drawn positions of flips, passes and ends."""

import numpy as np
import pytest

from tests.games.kernel_game import SYMBOLS, KernelGame, lines
from zero.games.rules import othello_rules

COLOURS = {symbol: colour for colour, symbol in SYMBOLS.items()}


def drawn_othello(drawing: str) -> KernelGame:
    """A game that starts at the drawn position, Black to play."""
    rows = lines(drawing).splitlines()
    start = np.array([COLOURS[symbol] for row in rows for symbol in row], np.int8)
    return KernelGame(othello_rules(len(rows), len(rows[0]))._replace(start=start))


def num_lines(game: KernelGame, depth: int) -> int:
    """Number of sequences of `depth` moves."""
    actions = game.legal_actions()
    return len(actions) if depth == 1 else sum(num_lines(game.copy().play(action), depth - 1) for action in actions)


@pytest.mark.parametrize(("size", "depth", "expected"), [(8, 3, 56), (8, 6, 8200), (6, 6, 7604)])
def test_the_number_of_sequences_of_moves(size, depth, expected):
    assert num_lines(KernelGame(othello_rules(size, size)), depth) == expected


def test_4x4_has_60060_games_and_white_wins_by_8():
    known: dict[tuple[bytes, int], tuple[int, float]] = {}

    def solve(game: KernelGame) -> tuple[int, float]:
        """Number of games from here, and the margin for the player to move under best play."""
        key = game.position.board.tobytes(), game.to_play
        if key not in known:
            found = [solve(game.copy().play(action)) for action in game.legal_actions()]
            games, margins = [games for games, _ in found], [-margin for _, margin in found]
            known[key] = (sum(games), max(margins)) if found else (1, game.margin() * game.to_play)
        return known[key]

    assert solve(KernelGame(othello_rules(4, 4))) == (60060, -8.0)


def test_a_stone_flips_in_every_direction_that_ends_at_an_own_stone():
    game = drawn_othello("""
        X . X . X .
        . O O O . .
        X O . O O X
        . O O O . .
        X . O . O .
        . . X . . .
        """).play_names("C4")
    assert game.drawing() == lines("""
        X . X . X .
        . X X X . .
        X X X X X X
        . X X O . .
        X . X . O .
        . . X . . .
        """)


def test_a_player_without_a_legal_point_passes_and_a_game_that_no_one_can_continue_ends():
    game = drawn_othello("""
        O X . .
        . . . .
        . . . .
        . . . .
        """)
    assert game.legal_actions() == {game.pass_action} and not game.ended
    game.play_names("pass C4")
    assert (game.ended, game.margin(), game.outcome()) == (True, -3.0, -1)
