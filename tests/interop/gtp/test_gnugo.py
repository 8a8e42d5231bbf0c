"""Whole games between our engine and GNU Go over pipes, with GNU Go as the judge; and GNU Go's way of regression."""

import re

import pytest

from tests.interop.gtp.engines import engine_program
from tests.oracle.gnugo import GnuGo, needs_gnugo
from tests.oracle.gtp import GtpProgram

KOMI = "7.5"
OURS_PASSES_FROM = 140
"""Moves after which our player, who never learned to stop, only passes, so that GNU Go can end the game."""
MOST_MOVES = 500


def referee(*options: str) -> GnuGo:
    """GNU Go by our rules; it captures all dead stones before it passes."""
    return GnuGo(
        *("--level", "1", "--chinese-rules", "--positional-superko", "--forbid-suicide"),
        *("--capture-all-dead", "--seed", "3", *options),
    )


def play_out(ours: GtpProgram, gnugo: GtpProgram, our_colour: str) -> list[str]:
    """A game until both pass; each hears the other's moves and refuses what it holds to be illegal."""
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
    """Every stone on the board, as GNU Go lists them."""
    return {
        f"{colour} {point}" for colour in ("black", "white") for point in program.ask(f"list_stones {colour}").split()
    }


@needs_gnugo
@pytest.mark.parametrize("our_colour", ["b", "w"])
def test_a_game_of_a_network_against_gnugo_is_legal_to_both_and_scored_alike(our_colour):
    with engine_program("network") as ours, referee() as gnugo:
        moves = play_out(ours, gnugo, our_colour)
        assert 40 < len(moves) < MOST_MOVES
        assert gnugo.ask("final_status_list dead") == ""  # all is captured, so areas are areas
        assert ours.ask("final_score") == gnugo.ask("final_score")
        points = {name.split()[1] for name in all_stones(gnugo)}
        assert set(ours.ask("final_status_list alive").split()) == points
        # the whole game taken back, and both boards are empty again
        for _ in moves:
            ours.ask("undo")
        assert ours.ask("final_status_list alive") == ""
        assert ours.ask("final_score") == f"W+{KOMI}"


@needs_gnugo
def test_a_random_player_is_legal_to_gnugo_on_other_boards():
    with engine_program("random") as ours, GnuGo("--positional-superko", "--forbid-suicide") as gnugo:
        for size in (2, 5, 13, 19):
            for program in (ours, gnugo):
                program.ask(f"boardsize {size}")
                program.ask("clear_board")
            for turn in range(120):
                colour = "bbw"[turn % 3]  # one colour twice in a row, every time
                gnugo.ask(f"play {colour} {ours.ask(f'genmove {colour}')}")
            points = {name.split()[1] for name in all_stones(gnugo)}
            assert set(ours.ask("final_status_list alive").split()) == points


REGRESSION = """
# A search that knows nothing but the rules has to find these: Black's wall has won once both have passed.
loadsgf {folder}/wall.sgf
10 reg_genmove black
#? [PASS]

loadsgf {folder}/wall.sgf 7
20 reg_genmove white
#? [!PASS]*

30 final_score
#? [B\\+24\\.5|B\\+25]*

loadsgf {folder}/wall.sgf 2
40 final_score
#? [B\\+24\\.5]

50 boardsize 9
#? [unacceptable size]

loadsgf {folder}/none.sgf
60 protocol_version
#? [2]
"""
WALL = "(;GM[1]SZ[5]KM[0.5];B[ca];W[];B[cb];W[];B[cc];W[];B[cd];W[];B[ce];W[])"


def run_regression(program: GtpProgram, text: str) -> dict[int, tuple[str, str]]:
    """The answers of a file of GNU Go's `regression` folder, each with the pattern that it is held against."""
    results, last, answer = {}, 0, ""
    for line in text.splitlines():
        if match := re.fullmatch(r"#\? \[(.*)\]\*?", line):
            results[last] = (answer, match[1])
        elif line.strip() and not line.startswith("#"):
            number = re.match(r"\d+", line)
            last = int(number[0]) if number else last
            try:
                answer = program.ask(line)
            except RuntimeError as error:
                answer = str(error).split(": ", 1)[1]
            answer = re.sub(r"^\d+\s*", "", answer) if number else answer
    return results


def matches(answer: str, pattern: str) -> bool:
    """By the rules of GNU Go's `regress.awk`: an expression for the whole answer, a first `!` turns it round."""
    wanted = not pattern.startswith("!")
    return bool(re.fullmatch(pattern.removeprefix("!"), answer, re.IGNORECASE)) == wanted


def test_a_regression_file_of_gnugos_kind_is_answered(tmp_path):
    (tmp_path / "wall.sgf").write_text(WALL)
    with engine_program("uniform") as program:
        results = run_regression(program, REGRESSION.format(folder=tmp_path))
    assert list(results) == [10, 20, 30, 40, 50, 60]
    assert {number: matches(*result) for number, result in results.items()} == dict.fromkeys(results, True), results
