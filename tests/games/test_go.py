"""Rules of Go on drawn positions: captures, ko, superko, suicide, the end of the game and the score."""

import pytest

from tests.games.kernel_game import KernelGame, drawn_go, lines
from zero.games.position import BLACK, WHITE
from zero.games.rules import go_rules


def test_a_stone_without_liberties_is_captured():
    game = drawn_go(
        """
        . X .
        X O .
        . X .
        """,
        BLACK,
    )
    assert game.play_names("C2").drawing() == lines(
        """
        . X .
        X . X
        . X .
        """
    )


def test_a_stone_in_the_corner_is_captured():
    game = drawn_go(
        """
        . . .
        X . .
        O . .
        """,
        BLACK,
    )
    assert game.play_names("B1").drawing() == lines(
        """
        . . .
        X . .
        . X .
        """
    )


def test_rows_do_not_wrap_around_the_edge():
    game = drawn_go(
        """
        . . . O
        X . . .
        . . . .
        """,
        WHITE,
    )
    assert game.play_names("B2 pass A1").drawing() == lines(
        """
        . . . O
        X O . .
        O . . .
        """
    )
    assert game.play_names("pass A3").drawing() == lines(
        """
        O . . O
        . O . .
        O . . .
        """
    )


def test_joined_chains_share_their_liberties():
    game = drawn_go(
        """
        . X X X .
        X O . O X
        . X . X .
        """,
        WHITE,
    )
    assert game.play_names("C2 C1").drawing() == lines(
        """
        . X X X .
        X . . . X
        . X X X .
        """
    )


def test_a_chain_that_touches_the_capturing_stone_twice_is_captured_once():
    game = drawn_go(
        """
        X X X X
        X O O X
        X O . X
        X X X .
        """,
        BLACK,
    )
    assert game.play_names("C2").drawing() == lines(
        """
        X X X X
        X . . X
        X . X X
        X X X .
        """
    )
    assert game.history.hashes[game.num_moves] == game.hash_of_board()


def test_one_stone_captures_four_chains():
    game = drawn_go(
        """
        . X O X .
        X O . O X
        . X O X .
        """,
        BLACK,
    )
    assert game.play_names("C2").drawing() == lines(
        """
        . X . X .
        X . X . X
        . X . X .
        """
    )
    assert game.history.hashes[game.num_moves] == game.hash_of_board()


def test_snapback():
    game = drawn_go(
        """
        O O . .
        X X O .
        . . O .
        """,
        WHITE,
    )
    assert game.play_names("A1 B1 A1").drawing() == lines(
        """
        O O . .
        . . O .
        O . O .
        """
    )


KO = """
    . X O .
    X O . O
    . X O .
    . . . .
    """


def test_immediate_recapture_of_a_ko_is_illegal():
    game = drawn_go(KO, BLACK).play_names("C3")
    assert not game.is_legal("B3")


def test_recapture_of_a_ko_after_a_threat_is_legal():
    game = drawn_go(KO, BLACK).play_names("C3 A1 D1 B3")
    assert game.drawing() == lines(
        """
        . X O .
        X O . O
        . X O .
        O . . X
        """
    )


def test_superko_forbids_sending_two_and_returning_one():
    game = drawn_go(
        """
        X . O .
        X X O .
        . O . O
        """,
        WHITE,
    ).play_names("A1 C1")
    assert game.drawing() == lines(
        """
        X . O .
        X X O .
        . . X O
        """
    )
    assert not game.is_legal("B1")


STARS = """
    . X .
    X . X
    . X .
    """


def test_suicide_of_one_stone_is_illegal():
    assert not drawn_go(STARS, WHITE).is_legal("B2")


def test_suicide_of_one_stone_is_illegal_by_superko_even_if_suicide_is_allowed():
    assert not drawn_go(STARS, WHITE, allow_suicide=True).is_legal("B2")


def test_filling_ones_own_eye_is_legal():
    assert drawn_go(STARS, BLACK).is_legal("B2")


def test_a_stone_on_the_last_liberty_is_legal_if_it_captures():
    game = drawn_go(
        """
        . X O
        X O O
        O O .
        """,
        WHITE,
    )
    assert game.play_names("A3").drawing() == lines(
        """
        O . O
        . O O
        O O .
        """
    )


TWO_IN_THE_CORNER = """
    O . X
    X X X
    . . .
    """


def test_suicide_of_several_stones_is_illegal_by_default():
    assert not drawn_go(TWO_IN_THE_CORNER, WHITE).is_legal("B3")


def test_allowed_suicide_of_several_stones_removes_them():
    game = drawn_go(TWO_IN_THE_CORNER, WHITE, allow_suicide=True).play_names("B3")
    assert game.drawing() == lines(
        """
        . . X
        X X X
        . . .
        """
    )
    assert game.to_play == BLACK
    assert game.history.hashes[game.num_moves] == game.hash_of_board()


def test_suicide_that_joins_four_chains_removes_them_all():
    game = drawn_go(
        """
        . X O X .
        X O . O X
        . X O X .
        """,
        WHITE,
        allow_suicide=True,
    )
    assert game.play_names("C2").drawing() == lines(
        """
        . X . X .
        X . . . X
        . X . X .
        """
    )


def test_suicide_that_repeats_a_position_is_illegal():
    game = KernelGame(go_rules(3, 3, allow_suicide=True))
    game.play_names("C3 pass A2 pass B2 pass C2 A3 pass")
    assert game.drawing() == lines(TWO_IN_THE_CORNER)
    assert not game.is_legal("B3")


def test_two_passes_end_the_game():
    game = KernelGame(go_rules(5, 5)).play_names("A1 pass")
    assert (game.ended, len(game.legal_actions())) == (False, 25)
    game.play_names("pass")
    assert (game.ended, len(game.legal_actions())) == (True, 0)


def test_passes_with_a_stone_between_do_not_end_the_game():
    game = KernelGame(go_rules(5, 5)).play_names("pass A1 pass B1 pass")
    assert not game.ended


def test_twice_as_many_moves_as_points_end_the_game():
    game = KernelGame(go_rules(2, 2)).play_names("A1 A2 B1 B2 B1 A1 B1")
    assert (game.num_moves, game.ended) == (7, False)
    game.play_names("A1")
    assert (game.num_moves, game.ended) == (8, True)
    assert game.legal_actions() == set()


def test_an_empty_board_is_a_draw_without_komi():
    game = KernelGame(go_rules(3, 3)).play_names("pass pass")
    assert (game.margin(), game.outcome()) == (0.0, 0)


def test_one_stone_owns_an_otherwise_empty_board():
    game = KernelGame(go_rules(3, 4)).play_names("B2 pass pass")
    assert (game.margin(), game.outcome()) == (12.0, 1)


COUNTED = """
    X X . O .
    . X . O O
    X X . . .
    . X X X X
    """
"""Black: 9 stones and 2 points; White: 3 stones and 1 point; the other 5 points touch both colours."""


@pytest.mark.parametrize(("komi", "margin", "outcome"), [(0.0, 7.0, 1), (6.5, 0.5, 1), (7.0, 0.0, 0), (7.5, -0.5, -1)])
def test_area_is_stones_and_regions_that_touch_one_colour(komi, margin, outcome):
    game = drawn_go(COUNTED, WHITE, komi=komi)
    assert game.margin() == margin
    game.play_names("pass pass")
    assert (game.margin(), game.outcome()) == (margin, outcome)


def test_dead_stones_stay_and_count():
    game = drawn_go(
        """
        . X . X .
        X X X X X
        . . O . .
        """,
        BLACK,
    )
    assert game.margin() == 7 + 3 - 1
