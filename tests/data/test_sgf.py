"""SGF: the writer, files in GNU Go, and what the reader accepts and rejects."""

import re

import numpy as np
import pytest

from tests.games.kernel_game import KernelGame
from tests.made_games import plain_record
from tests.oracle.gnugo import GnuGo, needs_gnugo, suicide_option
from zero.data.sgf import SgfGame, escape, game_to_sgf, read_collection, read_sgf, unescape, write_collection
from zero.errors import ZeroError
from zero.games.coordinates import action_to_name, name_to_action
from zero.games.position import GO, GOMOKU, OTHELLO, Rules
from zero.games.rules import go_rules, gomoku_rules, othello_rules
from zero.storage.manifests import GameRecord

BLACK_DIGEST, WHITE_DIGEST = "b1ac" * 16, "3417" * 16
GNUGO_REMEMBERS = 400
"""Moves of a game that GNU Go tells at the least; of longer games it forgets the first."""
EVENT = "go9 generation 3, self-play"


def record_of(game: KernelGame, actions: list[int], end: str, number: int = 7) -> GameRecord:
    result, margin = game.outcome(), game.margin()
    players = {"black": BLACK_DIGEST, "white": WHITE_DIGEST}
    return plain_record(actions, game.rules.num_actions, outcome=result, margin=margin, end=end, game=number, **players)


def record_by_names(rules: Rules, names: str, end: str) -> GameRecord:
    game = KernelGame(rules).play_names(names)
    assert game.ended
    return record_of(game, [name_to_action(rules, name) for name in names.split()], end)


def random_record(rules: Rules, seed: int) -> tuple[KernelGame, GameRecord]:
    random = np.random.default_rng(seed)
    game, actions = KernelGame(rules), []
    while not game.ended:
        actions.append(int(random.choice(sorted(game.legal_actions()))))
        game.play(actions[-1])
    return game, record_of(game, actions, "passes" if game.num_moves < rules.max_moves else "length")


def written(rules: Rules, record: GameRecord) -> str:
    return game_to_sgf(rules, record, event=EVENT, black_name="gen 3", white_name="gen 2")


def test_a_game_of_go_is_written_with_all_that_decides_it():
    rules = go_rules(9, 9, 7.5)
    text = written(rules, record_by_names(rules, "E5 C3 J1 A9 pass pass", "passes"))
    for value in (
        "FF[4]GM[1]CA[UTF-8]",
        "SZ[9]KM[7.5]RU[Tromp-Taylor without suicide]",
        f"EV[{EVENT}]GN[game 7]",
        "PB[gen 3 b1acb1acb1ac]PW[gen 2 341734173417]",
        "RE[W+7.5]",
        BLACK_DIGEST,
        WHITE_DIGEST,
        "end: passes",
    ):
        assert value in text
    assert text.endswith("\n;B[ee];W[cg];B[ii];W[aa];B[];W[])\n")


@pytest.mark.parametrize(("outcome", "expected"), [(1, "B+R"), (-1, "W+R")])
def test_a_resigned_game_has_no_margin(outcome, expected):
    game = KernelGame(go_rules(5, 5, 0.5)).play_names("C3 B2")
    record = record_of(game, [12, 16], "resignation")._replace(outcome=outcome, margin=0.0)
    text = game_to_sgf(game.rules, record, event=EVENT, black_name="gen 3", white_name="gen 2")
    assert f"RE[{expected}]" in text
    assert read_sgf(text).result == expected


@pytest.mark.parametrize(
    ("komi", "result", "komi_text"),
    [(0.0, "B+25", "0"), (6.5, "B+18.5", "6.5"), (25.0, "0", "25"), (25.5, "W+0.5", "25.5"), (-3.0, "B+28", "-3")],
)
def test_result_and_komi(komi, result, komi_text):
    rules = go_rules(5, 5, komi)
    text = written(rules, record_by_names(rules, "C3 pass pass", "passes"))
    assert f"RE[{result}]" in text
    assert f"KM[{komi_text}]" in text


def test_suicide_is_told_in_the_rules():
    rules = go_rules(5, 5, 0.0, allow_suicide=True)
    assert "RU[Tromp-Taylor]" in written(rules, record_by_names(rules, "pass pass", "passes"))


@pytest.mark.parametrize(
    ("names", "end", "result"),
    [
        ("A3 B3 C3 A2 A1 C2 C1 B1 B2", "line", "B+"),
        ("A3 B2 C3 B3 A2 B1", "line", "W+"),
        ("A3 B3 C3 B2 A2 C2 B1 A1 C1", "full", "0"),
    ],
)
def test_a_game_of_gomoku(names, end, result):
    rules = gomoku_rules(3, 3, 3)
    record = record_by_names(rules, names, end)
    text = written(rules, record)
    game = read_sgf(text)
    assert "GM[4]" in text and "KM" not in text
    assert (game.game, game.rows, game.columns, game.rules_name) == (GOMOKU, 3, 3, "3 or more in a row")
    assert (game.result, game.actions) == (result, tuple(record.actions))


def test_a_game_of_othello():
    rules = othello_rules(4, 4)
    record = record_by_names(rules, "D2 D1 C1 B1 A1 D3 D4 B4 pass A3", "blocked")
    text = written(rules, record)
    game = read_sgf(text)
    assert "GM[2]" in text and "KM" not in text and ";B[]" in text
    assert (game.game, game.rules_name, game.result) == (OTHELLO, "Othello", "W+9")
    assert game.actions == tuple(record.actions)


@pytest.mark.parametrize(
    "rules", [go_rules(19, 19, 7.5), go_rules(5, 9, -0.5, allow_suicide=True), go_rules(2, 2, 0.0)]
)
def test_a_game_of_go_is_read_back(rules):
    final, record = random_record(rules, 5)
    game = read_sgf(written(rules, record))
    assert (game.game, game.rows, game.columns, game.komi) == (GO, rules.rows, rules.columns, rules.komi)
    assert game.actions == tuple(record.actions)
    assert game.event == EVENT
    assert (game.black_name, game.white_name) == ("gen 3 b1acb1acb1ac", "gen 2 341734173417")
    assert BLACK_DIGEST in game.comment and WHITE_DIGEST in game.comment
    again = KernelGame(rules)
    for action in game.actions:
        again.play(action)
    assert again.drawing() == final.drawing()


@needs_gnugo
@pytest.mark.parametrize(
    ("size", "allow_suicide", "seed"), [(3, False, 1), (5, True, 2), (9, False, 3), (9, True, 4), (19, False, 5)]
)
def test_gnugo_loads_the_game(tmp_path, size, allow_suicide, seed):
    rules = go_rules(size, size, 6.5, allow_suicide)
    game, record = random_record(rules, seed)
    path = tmp_path / "game.sgf"
    write_collection(path, [written(rules, record)])
    with GnuGo("--positional-superko", suicide_option(allow_suicide)) as gnugo:
        to_play = gnugo.ask(f"loadsgf {path}")
        assert to_play == ("black" if game.to_play == 1 else "white")
        assert gnugo.ask("query_boardsize") == str(size)
        assert float(gnugo.ask("get_komi")) == 6.5
        for colour, points in (("black", game.board().black), ("white", game.board().white)):
            names = {action_to_name(rules, row * size + column) for row, column in points}
            assert set(gnugo.ask(f"list_stones {colour}").split()) == names
        history = [line.split() for line in reversed(gnugo.ask("move_history").splitlines()) if line]
        moves = [action_to_name(rules, int(action)).upper() for action in record.actions]
        expected = [[("black", "white")[t % 2], move] for t, move in enumerate(moves)]
        assert len(history) >= min(len(expected), GNUGO_REMEMBERS)
        assert history == expected[-len(history) :]


def test_a_collection_holds_every_game_in_order(tmp_path):
    rules = go_rules(4, 4, 0.5)
    records = [random_record(rules, seed)[1] for seed in range(3)]
    path = tmp_path / "games" / "all.sgf"
    write_collection(path, (written(rules, record) for record in records))
    games = read_collection(path.read_text(encoding="utf-8"))
    assert [game.actions for game in games] == [tuple(record.actions) for record in records]
    with pytest.raises(ZeroError, match="holds 3 games, expected one"):
        read_sgf(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", ["]", "\\", "a:b", "Mensch [ärgere] dich \\nicht", "碁盤;(B[aa])"])
def test_names_may_hold_any_character(text):
    rules = go_rules(3, 3)
    record = record_by_names(rules, "pass pass", "passes")
    game = read_sgf(game_to_sgf(rules, record, event=text, black_name=text, white_name=text))
    assert game.event == text
    assert game.black_name == f"{text} {BLACK_DIGEST[:12]}"
    assert len(game.actions) == 2


def test_text_round_trips_on_one_line():
    random = np.random.default_rng(6)
    for _ in range(500):
        text = "".join(random.choice(list("[]\\:;() \n\r\taBé碁")) for _ in range(8))
        assert unescape(escape(text)) == "".join(" " if letter.isspace() else letter for letter in text)
        assert "\n" not in escape(text)


def test_a_line_break_in_a_value_may_be_quoted():
    assert read_sgf("(;EV[one \\\ntwo\nthree])").event == "one two three"


def test_the_first_variation_is_the_main_line():
    game = read_sgf("(;SZ[5];B[aa](;W[bb];B[cc](;W[dd])(;W[ee]))(;W[ea];B[eb]))")
    assert game.actions == (0, 6, 12, 18)


def test_missing_properties_have_the_defaults_of_the_standard():
    game = read_sgf("some mail header (not SGF)\n\n(;B[tt] ;\r\n W [aa] C[a comment; with (marks\\]] ) bye")
    assert game == SgfGame(GO, 19, 19, None, "", "", "", "", "", "", (361, 0))


def test_properties_of_old_files_may_have_small_letters():
    assert read_sgf("(;GaMe[1]SiZe[9];Black[aa])").actions == (0,)


def test_names_of_properties_may_have_digits():
    """LizzieYzy writes the winning rate of a second engine so."""
    assert read_sgf("(;GM[1]SZ[9]LZOP2[x];B[aa]LZ2[KataGo 55 1k])").actions == (0,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("()", "not an SGF file: it has no '(;'"),
        ("(;B[aa]", "SGF syntax error in line 1: the game is incomplete"),
        ("(;B[aa];W[bb", "SGF syntax error in line 1: unexpected text at '[bb'"),
        ("(;SZ[9]\n;B[aa]!)", "SGF syntax error in line 2: unexpected text at '!"),
        ("(;B;W[aa])", "line 1: a property without a value at ';W"),
        ("(;SZ)", "a property without a value"),
        ("(;[aa])", "a value without a property"),
        ("(;SZ[9]()", "a variation without a node"),
        ("(;SZ[9](B[aa]))", "a property outside of a node"),
        ("(;SZ[9](;B[aa]);W[bb])", "a move after a variation"),
        ("(;SZ[9:25])", "SZ[9:25] is not a board size"),
        ("(;SZ[nine])", "SZ[nine] is not a board size"),
        ("(;KM[nan])", "KM[nan] is not a komi"),
        ("(;SZ[9:5];B[if])", "move 1: 'if' is not a point of a board of 5 rows and 9 columns"),
        ("(;SZ[9];B[a])", "move 1: 'a' is not a point"),
        ("(;SZ[9];B[AA])", "move 1: 'AA' is not a point"),
        ("(;GM[4]SZ[9];B[])", "move 1: '' is not a point"),
        ("(;B[aa];B[bb])", "move 2 is B's, out of turn"),
        ("(;B[aa][bb])", "move 1 has 2 points, expected one"),
        ("(;PL[W];W[cc])", "set-up stones or handicap (PL)"),
        ("(;B[cc];PL[b])", "set-up stones or handicap (PL)"),
    ],
)
def test_a_file_that_is_not_one_plain_game_is_rejected(text, message):
    with pytest.raises(ZeroError, match=re.escape(message)):
        read_sgf(text)


def test_the_player_who_is_to_move_anyway_may_be_named():
    assert read_sgf("(;SZ[9]PL[black];B[aa];PL[W];W[ba])").actions == (0, 1)


def test_a_very_deep_nest_of_variations_is_read():
    text = "(;SZ[9]" + "(;C[x]" * 5000 + ";B[aa]" + ")" * 5000 + ")"
    assert read_sgf(text).actions == (0,)
