"""Positions of Go that other programs got wrong: superko and scoring."""

from tests.games.kernel_game import KernelGame, drawn_go, lines
from tests.oracle.go import after
from zero.games.position import BLACK, WHITE
from zero.games.rules import go_rules

KO = """
    . X O .
    X O . O
    . X O .
    . . . .
    """


def test_positional_superko_forbids_the_board_that_the_other_player_made():
    game = KernelGame(go_rules(9, 9)).play_names("A1 F1 B2 G2 C1 H1 J1 D1 H2 C2")
    board_that_white_made = """
        . X O . . . O X .
        X . X O . O . O X
        """
    assert game.drawing().endswith(lines(board_that_white_made))
    board, game = game.board(), game.play_names("G1 B1 pass H1")
    assert game.drawing().endswith(
        lines(
            """
            . X O . . . O X .
            X O . O . O . O X
            """
        )
    )
    # C1 takes B1. White is then to move, not Black, so situational superko allows it; so does simple ko.
    assert after(9, 9, game.board(), BLACK, (8, 2)) == board
    assert not game.is_legal("C1")


def test_superko_forbids_the_eighth_move_of_a_quadruple_ko():
    game = drawn_go(
        """
        . X O . . X O . . X O . . X O .
        X O . O X . X O X O . O X . X O
        . X O . . X O . . X O . . X O .
        """,
        BLACK,
    ).play_names("C2 F2 L2 O2 G2 B2 P2")
    assert not game.is_legal("K2")
    assert game.is_legal("D3")


def test_a_pass_may_repeat_the_position():
    game = drawn_go(KO, BLACK).play_names("C3")
    assert not game.is_legal("B3")
    assert game.is_legal("pass")
    assert game.play_names("pass").is_legal("pass")


def test_boards_of_an_abandoned_line_forbid_nothing():
    # A search writes its moves into the rows of the history after the game.
    game = drawn_go(KO, BLACK).play_names("C3 A1 D1")
    line = game.copy()
    line.history = game.history
    line.play_names("B3")
    assert game.past_board(game.num_moves + 1) == line.board()
    assert game.is_legal("B3")


def test_shared_points_of_a_seki_have_no_owner():
    game = drawn_go(
        """
        . X X X X
        . X O O O
        . X O X .
        . X O . X
        . X O O X
        . . X O O
        O . X X X
        """,
        BLACK,
    )
    assert game.margin() == 15 - 10


def test_stones_in_pass_alive_territory_are_not_removed():
    # minigo's cc/position_test.cc gives Black the complete corner, 12 points, because Black is pass-alive there.
    # Plain area scoring gives the 9 stones and the eye at J2: the other point touches the white stone.
    game = drawn_go(
        """
        . . . . . . . . .
        . . . . . . . . .
        . . . . . . . . .
        . . . . . . . X X
        . . O . . . . X O
        . . . . . . . X .
        . . . . . . . X X
        . . . . . . . X .
        . . . . . . . X X
        """,
        WHITE,
        komi=6.5,
    )
    assert game.margin() == 10 - 2 - 6.5
    assert game.play_names("pass pass").outcome() == 1
