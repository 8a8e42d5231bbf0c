"""The kernels of Go against GNU Go 3.8, an oracle that others wrote: the legal moves of whole boards."""

import numpy as np
import pytest

from tests.games.kernel_game import KernelGame
from tests.oracle.gnugo import GnuGo, needs_gnugo, suicide_option
from tests.oracle.go import EMPTY_BOARD, Board, Points, after, all_points, beside
from zero.games.coords import action_to_name, name_to_action
from zero.games.position import BLACK, WHITE
from zero.games.rules import go_rules

pytestmark = needs_gnugo

GTP_COLOURS = {BLACK: "black", WHITE: "white"}
MAX_MOVES = 300
"""GNU Go's superko looks back at no more than 500 moves."""
NUM_COMPARISONS = 60
"""Positions of a game whose legal moves are compared, on large boards."""
SMALL_SIZE, GAMES_ON_SMALL = 5, 4
PASS_CHANCE = 0.02

ONLY_PSK_FORBIDS_C1 = ["A1", "F1", "B2", "G2", "C1", "H1", "J1", "D1", "H2", "C2", "G1", "B1", "pass", "H1"]
"""Moves on 9x9 after which C1 by Black makes the position again that White made with the tenth."""


@pytest.mark.parametrize("allow_suicide", [False, True])
@pytest.mark.parametrize("size", range(2, 20))
def test_legal_moves_of_random_games(size, allow_suicide):
    with GnuGo("--positional-superko", suicide_option(allow_suicide)) as gnugo:
        gnugo.ask(f"boardsize {size}")
        for number in range(GAMES_ON_SMALL if size <= SMALL_SIZE else 1):
            compare(gnugo, size, allow_suicide, np.random.default_rng([size, number]))


def compare(gnugo: GnuGo, size: int, allow_suicide: bool, random: np.random.Generator) -> None:
    """Plays one random game on both sides."""
    num_moves = min(MAX_MOVES, 2 * size * size + 40)
    game = KernelGame(go_rules(size, size, 0.0, allow_suicide)._replace(max_moves=num_moves))
    seen = {EMPTY_BOARD}
    gnugo.ask("clear_board")
    while not game.ended:
        legal = game.legal_actions() - {game.pass_action}
        if game.num_moves % max(1, num_moves // NUM_COMPARISONS) == 0:
            assert game.board() == Board(stones(gnugo, game, "black"), stones(gnugo, game, "white"))
            assert legal == legal_points(gnugo, game, seen), game.drawing()
        passes = not legal or random.random() < PASS_CHANCE
        action = game.pass_action if passes else sorted(legal)[random.integers(len(legal))]
        gnugo.ask(f"play {GTP_COLOURS[game.to_play]} {action_to_name(game.rules, action)}")
        game.play(action)
        seen.add(game.board())


def legal_points(gnugo: GnuGo, game: KernelGame, seen: set[Board]) -> set[int]:
    """The points GNU Go allows, less the suicides that repeat a position: 3.8 does not apply superko to suicide."""
    rows, columns, colour, board = game.rules.rows, game.rules.columns, game.to_play, game.board()
    actions = actions_of(game, gnugo.ask(f"all_legal {GTP_COLOURS[colour]}"))
    empty = frozenset(all_points(rows, columns)) - board.black - board.white
    without_empty_neighbour = [point for point in points_of(game, actions) if not beside(point) & empty]
    for point in without_empty_neighbour:
        then = after(rows, columns, board, colour, point)
        if point not in then.stones(colour) and then in seen:
            actions.remove(point[0] * columns + point[1])
    return actions


def stones(gnugo: GnuGo, game: KernelGame, colour: str) -> Points:
    return points_of(game, actions_of(game, gnugo.ask(f"list_stones {colour}")))


def actions_of(game: KernelGame, names: str) -> set[int]:
    return {name_to_action(game.rules, name) for name in names.split()}


def points_of(game: KernelGame, actions: set[int]) -> Points:
    return frozenset(divmod(action, game.rules.columns) for action in actions)


@pytest.mark.parametrize(
    ("ko_rule", "is_legal"), [("positional-superko", "0"), ("situational-superko", "1"), ("simple-ko", "1")]
)
def test_the_move_that_positional_superko_alone_forbids(ko_rule, is_legal):
    # The kernels forbid it (test_go.py), so what they follow is not situational superko.
    with GnuGo(f"--{ko_rule}") as gnugo:
        gnugo.ask("boardsize 9")
        for number, name in enumerate(ONLY_PSK_FORBIDS_C1):
            gnugo.ask(f"play {('black', 'white')[number % 2]} {name}")
        assert gnugo.ask("is_legal black C1") == is_legal
