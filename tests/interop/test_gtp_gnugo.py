"""Complete games between our engine and GNU Go with GNU Go as the scorer."""

import pytest

from tests.interop.engines import engine_program
from tests.oracle.gnugo import GnuGo, needs_gnugo
from tests.oracle.gtp import GtpProgram

KOMI = "7.5"
OURS_PASSES_FROM = 140
"""Number of moves after which our untrained player only passes, so that GNU Go can end the game."""
MOST_MOVES = 500


def referee(*options: str) -> GnuGo:
    """GNU Go with our rules. It captures all dead stones before it passes."""
    return GnuGo(
        *("--level", "1", "--chinese-rules", "--positional-superko", "--forbid-suicide"),
        *("--capture-all-dead", "--seed", "3", *options),
    )


def play_out(ours: GtpProgram, gnugo: GtpProgram, our_colour: str) -> list[str]:
    """Plays until both pass. Each program receives the other's moves and rejects illegal ones."""
    for program in (ours, gnugo):
        program.ask("boardsize 9")
        program.ask("clear_board")
        program.ask(f"komi {KOMI}")
    moves: list[str] = []
    while moves[-2:] != ["pass", "pass"] and len(moves) < MOST_MOVES:
        colour = "bw"[len(moves) % 2]
        mover, other = (ours, gnugo) if colour == our_colour else (gnugo, ours)
        if mover is ours and len(moves) >= OURS_PASSES_FROM:
            name = "pass"
            ours.ask(f"play {colour} pass")
        else:
            name = mover.ask(f"genmove {colour}").lower()
        other.ask(f"play {colour} {name}")
        moves.append(name)
    return moves


def all_stones(program: GtpProgram) -> set[str]:
    """All stones on the board, by GNU Go's command `list_stones`."""
    return {
        f"{colour} {point}" for colour in ("black", "white") for point in program.ask(f"list_stones {colour}").split()
    }


@needs_gnugo
@pytest.mark.parametrize("our_colour", ["b", "w"])
def test_a_game_against_gnugo_is_legal_and_has_the_same_score(our_colour):
    with engine_program("network") as ours, referee() as gnugo:
        moves = play_out(ours, gnugo, our_colour)
        assert 40 < len(moves) < MOST_MOVES
        assert gnugo.ask("final_status_list dead") == ""  # all dead stones are captured
        assert ours.ask("final_score") == gnugo.ask("final_score")
        points = {name.split()[1] for name in all_stones(gnugo)}
        assert set(ours.ask("final_status_list alive").split()) == points
        # after all moves are taken back the board is empty
        for _ in moves:
            ours.ask("undo")
        assert ours.ask("final_status_list alive") == ""
        assert ours.ask("final_score") == f"W+{KOMI}"


@needs_gnugo
def test_moves_of_a_random_player_are_legal_for_gnugo_on_other_boards():
    with engine_program("random") as ours, GnuGo("--positional-superko", "--forbid-suicide") as gnugo:
        for size in (2, 5, 13, 19):
            for program in (ours, gnugo):
                program.ask(f"boardsize {size}")
                program.ask("clear_board")
            for turn in range(120):
                colour = "bbw"[turn % 3]  # Black plays twice in a row each time
                gnugo.ask(f"play {colour} {ours.ask(f'genmove {colour}')}")
            points = {name.split()[1] for name in all_stones(gnugo)}
            assert set(ours.ask("final_status_list alive").split()) == points
