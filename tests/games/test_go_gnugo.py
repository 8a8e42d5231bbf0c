"""The kernels of Go against GNU Go 3.8, an independent oracle: a sample of `tests.games.differential`."""

import subprocess
import sys

import pytest

from tests.games import differential
from tests.games.differential import DifferenceError, Tally, compare, random_game, superko_of
from tests.oracle.gnugo import GnuGo, gnugo_options, needs_gnugo
from tests.oracle.go import area
from zero.games.position import BLACK, WHITE

pytestmark = needs_gnugo

SEED = 2017
NUM_COMPARISONS = 60
"""Number of compared positions of a game on large boards."""
SMALL_SIZE, GAMES_ON_SMALL = 5, 4

ONLY_PSK_FORBIDS_C1 = ["A1", "F1", "B2", "G2", "C1", "H1", "J1", "D1", "H2", "C2", "G1", "B1", "pass", "H1"]
"""Moves on 9x9 after which Black C1 repeats the position after White's tenth move."""


@pytest.mark.parametrize("allow_suicide", [False, True])
@pytest.mark.parametrize("size", [*range(2, 10), 13, 19])  # `make rules` compares all sizes
def test_random_games_have_the_same_stones_and_legal_points_and_score(size, allow_suicide):
    with GnuGo(*gnugo_options(allow_suicide)) as gnugo:
        for number in range(GAMES_ON_SMALL if size <= SMALL_SIZE else 2):
            game = random_game(size, allow_suicide, SEED, number)
            # An odd interval, so that positions of both colours are compared.
            interval = 1 if size <= SMALL_SIZE else len(game.turns) // NUM_COMPARISONS | 1
            assert compare(gnugo, game, interval).num_positions >= min(NUM_COMPARISONS, len(game.turns)) // 2
            # The score is compared with the slow twin: GNU Go removes dead stones before it counts.
            board = game.end.board()
            assert game.end.ended
            assert game.end.margin() == area(size, size, board, BLACK) - area(size, size, board, WHITE)


@pytest.mark.parametrize("allow_suicide", [False, True])
def test_superko_matters_in_the_compared_games(allow_suicide):
    # The comparison covers only situations that occur in it.
    tally = Tally()
    for size in (2, 3, 5):
        for number in range(GAMES_ON_SMALL):
            game = random_game(size, allow_suicide, SEED, number)
            for turn in range(len(game.turns)):
                tally = tally.plus(superko_of(game, turn))
    assert tally.num_superko > 50
    assert tally.num_cycles > 30


@pytest.mark.parametrize(
    ("options", "allow_suicide", "message"),
    [
        (["--simple-ko", "--forbid-suicide"], False, "legal by the kernels alone: none\nlegal by GNU Go alone: [A-D]"),
        (["--positional-superko", "--forbid-suicide"], True, "legal by the kernels alone: [A-D]"),
        (["--positional-superko", "--allow-all-suicide"], False, "legal by GNU Go alone: [A-D]"),
    ],
    ids=["simple ko", "suicide off there", "suicide on there"],
)
def test_other_rules_in_gnugo_are_a_difference(options, allow_suicide, message):
    with GnuGo(*options) as gnugo, pytest.raises(DifferenceError, match=message):
        for number in range(20):
            compare(gnugo, random_game(4, allow_suicide, SEED, number))


def test_command_compares_and_counts():
    done = command("--positions", "21", "--sizes", "2-3", "--processes", "2")
    assert done.returncode == 0, done.stderr
    rows = [line.split(" superko ")[0].strip() for line in done.stdout.splitlines()]
    assert rows == ["2x2: 10 positions of 2 games,", "3x3: 11 positions of 2 games,", "total: 21 positions of 4 games,"]
    assert done.stdout.count("0 differences") == 3


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", differential.__name__, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("ko_rule", "is_legal"), [("positional-superko", "0"), ("situational-superko", "1"), ("simple-ko", "1")]
)
def test_a_move_that_only_positional_superko_forbids(ko_rule, is_legal):
    # The kernels forbid it (test_go_traps.py), so they do not implement situational superko.
    with GnuGo(f"--{ko_rule}") as gnugo:
        gnugo.ask("boardsize 9")
        for number, name in enumerate(ONLY_PSK_FORBIDS_C1):
            gnugo.ask(f"play {('black', 'white')[number % 2]} {name}")
        assert gnugo.ask("is_legal black C1") == is_legal
