"""Handicap stones and SGF files as a controller loads them."""

import pytest

from tests.interop.engines import GO9, answer, answers, engine, random_session
from tests.oracle.gnugo import GnuGo, needs_gnugo
from zero.errors import ZeroError
from zero.games.coordinates import action_to_name, name_to_action
from zero.games.position import BLACK, GO, GOMOKU, WHITE
from zero.games.rules import go_rules
from zero.interop.gtp_game import Move
from zero.interop.gtp_setup import free_handicap_points, handicap_points, load_setup

WITH_EVERYTHING = """(;FF[4]GM[1]SZ[9]KM[5.5]HA[2]C[a \\] in it]
AB[cc][gg:hh]AW[ca]PL[W];W[dd];B[];W[ee](;B[ff];W[])(;B[aa]))"""


def test_stones_moves_komi_and_size_are_read():
    loaded = load_setup(WITH_EVERYTHING, GO)
    assert (loaded.size, loaded.komi) == (9, 5.5)
    assert loaded.stones == (*(Move(BLACK, p) for p in (20, 60, 61, 69, 70)), Move(WHITE, 2))
    assert loaded.to_play == WHITE
    assert loaded.moves == (*(Move(WHITE, 30), Move(BLACK, 81), Move(WHITE, 40), Move(BLACK, 50), Move(WHITE, 81)),)


@pytest.mark.parametrize(("number", "moves"), [(0, 0), (1, 0), (2, 1), (5, 4), (6, 5), (99, 5)])
def test_a_number_stops_before_that_move(number, moves):
    loaded = load_setup(WITH_EVERYTHING, GO, number)
    assert len(loaded.moves) == moves
    assert len(loaded.stones) == 6


def test_a_file_without_properties_is_19x19_and_has_no_komi():
    loaded = load_setup("(;GM[1];B[aa])", GO)
    assert (loaded.size, loaded.komi) == (19, None)
    for komi, read in (("many", None), ("375", None), ("6,5", 6.5), (".5", 0.5)):
        assert load_setup(f"(;KM[{komi}];B[aa])", GO).komi == read, komi


def test_gomoku_is_read_as_gomoku():
    assert load_setup("(;GM[4]SZ[8];B[hh])", GOMOKU).moves == (Move(BLACK, 63),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not an SGF file"),
        ("hello", "not an SGF file"),
        ("(;SZ[9];B[aa]", "is incomplete"),
        ("(;GM[4]SZ[9];B[aa])", "is another game"),
        ("(;SZ[25];B[aa])", "is not supported"),
        ("(;SZ[1];B[aa])", r"SZ\[1\] is not supported; board sizes are 2 to 19"),
        ("(;SZ[9:7];B[aa])", "is not a square board"),
        ("(;SZ[x];B[aa])", "is not a square board"),
        ("(;SZ[9];B[zz])", "is not a point of"),
        ("(;SZ[9];B[jj])", "is not a point of"),
        ("(;SZ[9]AB[];B[aa])", "a set-up stone has no point"),
        ("(;SZ[9];B[aa];AW[bb])", "after move 1"),
        ("(;SZ[9]AB[aa];AE[aa])", "stones are removed"),
    ],
)
def test_errors_of_a_file_are_reported(text, message):
    with pytest.raises(ZeroError, match=message):
        load_setup(text, GO)


@needs_gnugo
@pytest.mark.parametrize("number", [1, 2, 4, 6])
def test_gnugo_sees_the_same_board(number, tmp_path):
    path = tmp_path / "game.sgf"
    path.write_text(WITH_EVERYTHING)
    one = engine(random_session(GO9), GO9)
    assert answer(one, f"loadsgf {path} {number}") == ""
    ours = {point for line in answer(one, "final_status_list alive").splitlines() for point in line.split()}
    with GnuGo() as gnugo:
        gnugo.ask(f"loadsgf {path} {number}")
        assert ours == {*gnugo.ask("list_stones black").split(), *gnugo.ask("list_stones white").split()}


@pytest.mark.parametrize("text", ["", "(;SZ[19];B[aa])", "(;SZ[5];B[aa];W[aa])", "(;SZ[5]AB[aa][aa])"])
def test_a_file_that_cannot_be_loaded_changes_nothing(text, tmp_path):
    path = tmp_path / "a game with blanks.sgf"
    path.write_text(text)
    one = engine()
    before = answers(one, "play b C3;showboard")[1]
    assert answer(one, f"loadsgf {path}").startswith("? cannot load file: ")
    assert answer(one, "showboard") == before
    assert answer(one, "undo") == ""


@pytest.mark.parametrize(("name", "codec"), [("Shift_JIS", "cp932"), ("gb2312", "gb18030")])
def test_a_second_byte_that_is_a_backslash_hides_no_move(name, codec, tmp_path):
    path = tmp_path / "game.sgf"
    path.write_bytes(f"(;GM[1]SZ[5]CA[{name}]PW[{'表' if codec == 'cp932' else '乗'}];B[aa];W[bb];B[cc])".encode(codec))
    one = engine()
    assert answer(one, f"loadsgf {path}") == ""
    assert answers(one, "undo;undo;undo")[:3] == ["", "", ""]


def test_the_reason_is_in_the_answer(tmp_path):
    path = tmp_path / "x.sgf"
    path.write_text("(;SZ[5];B[aa];W[aa])")
    one = engine()
    assert answer(one, f"loadsgf {path}") == "? cannot load file: illegal move (move 2)"
    assert answer(one, f"loadsgf {tmp_path / 'none.sgf'}") == "? cannot load file: No such file or directory"
    assert answer(one, f"loadsgf {tmp_path}") == "? cannot load file: Is a directory"
    path.write_text("(;SZ[9];B[aa])")
    assert answer(one, f"loadsgf {path}") == "? cannot load file: unacceptable size"


def test_moves_of_a_file_can_be_taken_back_and_its_stones_cannot(tmp_path):
    path = tmp_path / "x.sgf"
    path.write_text("(;SZ[5]AB[aa][bb];W[cc])")
    assert answers(engine(), f"loadsgf {path};undo;undo") == ["", "", "? cannot undo"]


def test_the_colour_to_move_of_a_file_is_the_default_of_an_analysis(tmp_path, monkeypatch):
    monkeypatch.setattr("zero.interop.gtp_analysis.POLL_SECONDS", 60.0)  # a busy machine completes the search too
    path = tmp_path / "jürgen.sgf"
    path.write_text("(;SZ[5]AB[bb]AW[cc]PL[W])")

    def analysis(colour, first="showboard"):
        one = engine()
        assert answer(one, f"loadsgf {path}") == ""
        answer(one, first)
        return answer(one, f"lz-analyze {colour} 6000")

    assert analysis("") == analysis("w") != analysis("b")
    assert analysis("", "play w A1") == analysis("b", "play w A1")


@needs_gnugo
def test_fixed_handicaps_equal_gnugos():
    with GnuGo() as gnugo:
        for size in range(5, 20):
            rules = go_rules(size, size)
            for stones in range(11):
                gnugo.ask(f"boardsize {size}")
                gnugo.ask("clear_board")
                try:
                    theirs = {name_to_action(rules, name) for name in gnugo.ask(f"fixed_handicap {stones}").split()}
                except RuntimeError:
                    assert handicap_points(rules, stones) is None
                else:
                    assert set(handicap_points(rules, stones) or ()) == theirs, (size, stones)


def test_handicap_points_are_in_the_order_of_the_protocol():
    rules = go_rules(19, 19)
    names = [action_to_name(rules, point) for point in handicap_points(rules, 9) or ()]
    assert names == ["D4", "Q16", "D16", "Q4", "D10", "Q10", "K4", "K16", "K10"]


@pytest.mark.parametrize("size", range(2, 20))
def test_a_free_handicap_is_the_largest_fixed_one(size):
    rules = go_rules(size, size)
    for num_stones in range(2, 12):
        points = free_handicap_points(rules, num_stones)
        assert bool(points) == (size >= 7)
        if points:
            assert len(points) <= num_stones
            assert points == handicap_points(rules, len(points))
