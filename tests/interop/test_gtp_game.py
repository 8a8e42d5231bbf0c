"""Moves in any order of colours: their position, compared with a slow board without turns."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.go import EMPTY_BOARD, after
from zero.errors import MoveError
from zero.games.position import BLACK, WHITE
from zero.games.rules import go_rules
from zero.interop.gtp_game import Move, alternating_actions
from zero.players.board import Board, colour_to_play

SIZE = 4
RULES = go_rules(SIZE, SIZE, 0.5)._replace(max_moves=400)
PASS = RULES.num_points
MOVES = st.lists(
    st.tuples(st.sampled_from([BLACK, WHITE]), st.one_of(st.just(PASS), st.integers(0, PASS))), max_size=60
)


def moves_of(text):
    """`"b1 w2 bp"`: points by number, p is the pass."""
    colours = {"b": BLACK, "w": WHITE}
    return [Move(colours[word[0]], PASS if word[1:] == "p" else int(word[1:])) for word in text.split()]


def actions(text, to_play=None):
    return " ".join(
        "p" if action == PASS else str(action) for action in alternating_actions(moves_of(text), PASS, to_play)
    )


def test_alternating_moves_are_unchanged():
    assert actions("b1 w2 b3 w4") == "1 2 3 4"
    assert actions("b1 wp b3") == "1 p 3"


def test_a_pass_is_added_between_two_moves_of_a_colour():
    assert actions("b1 b2 w3 w4") == "1 p 2 3 p 4"
    assert actions("w1") == "p 1"


def test_handicap_stones_are_separated_by_whites_passes():
    assert actions("b1 b2 b3", WHITE) == "1 p 2 p 3"
    assert actions("b1 b2 b3", BLACK) == "1 p 2 p 3 p"


def test_a_pass_of_a_colour_that_plays_again_is_removed():
    assert actions("b1 w2 bp b3") == "1 2 3"
    assert actions("bp b1") == "1"


def test_two_passes_in_a_row_are_removed():
    assert actions("b1 w2 bp wp") == "1 2"
    assert actions("b1 w2 bp wp b3") == "1 2 3"
    assert actions("bp wp bp wp bp") == "p"
    assert actions("b1 wp wp w2") == "1 2"


def test_the_requested_colour_is_to_move():
    assert actions("b1", WHITE) == "1"
    assert actions("b1", BLACK) == "1 p"
    assert actions("b1 wp", BLACK) == "1 p"
    assert actions("b1 wp", WHITE) == "1"


@settings(deadline=None)  # a busy machine takes any time
@given(MOVES, st.sampled_from([None, BLACK, WHITE]))
def test_no_two_passes_follow_each_other(played, to_play):
    line = alternating_actions([Move(*move) for move in played], PASS, to_play)
    assert all((one, two) != (PASS, PASS) for one, two in pairwise(line))
    expected = to_play or (-played[-1][0] if played else BLACK)
    assert colour_to_play(len(line)) == expected


@settings(deadline=None)  # a busy machine takes any time
@given(MOVES)
def test_stones_and_legal_moves_equal_those_of_a_board_without_turns(played):
    slow, seen = EMPTY_BOARD, {EMPTY_BOARD}
    kept: list[Move] = []
    for colour, action in played:
        move = Move(colour, action)
        if action == PASS:
            kept.append(move)
            continue
        point = divmod(action, SIZE)
        new = after(SIZE, SIZE, slow, colour, point)
        legal = point not in slow.black | slow.white and point in new.stones(colour) and new not in seen
        try:
            board = Board(RULES, alternating_actions([*kept, move], PASS))
        except MoveError:
            assert not legal
            continue
        assert legal
        kept.append(move)
        slow = new
        seen.add(new)
        stones = {divmod(p, SIZE): int(c) for p, c in enumerate(board.stones) if c}
        assert stones == dict.fromkeys(slow.black, BLACK) | dict.fromkeys(slow.white, WHITE)
