"""The commands, one by one: what they answer, what they change, and how they refuse."""

import re
import time
from typing import ClassVar

import pytest

from tests.interop.gtp.engines import GO5, GOMOKU, ask, ask_all, engine, player_mind, random_mind, stones
from zero import __version__
from zero.games.position import NUM_PASSES
from zero.games.rules import go_rules
from zero.players.base import RESIGN, Reply
from zero.players.single_game import OpponentMind
from zero.players.uniform import UniformPlayer
from zero.search.evaluator import UniformEvaluator

REQUIRED = """
protocol_version name version known_command list_commands quit boardsize clear_board komi fixed_handicap
place_free_handicap set_free_handicap play genmove undo time_settings time_left final_score final_status_list
loadsgf reg_genmove showboard lz-analyze kata-analyze lz-genmove_analyze kata-genmove_analyze
"""
POINT = re.compile(r"[A-E][1-5]|pass")


def test_it_tells_who_it_is():
    assert ask_all(engine(), "name;version;protocol_version") == ["zero", __version__, "2"]


def test_all_commands_of_the_protocol_are_listed_and_known():
    one = engine()
    listed = ask(one, "list_commands").split("\n")
    assert set(REQUIRED.split()) <= set(listed)
    assert all(ask(one, f"known_command {name}") == "true" for name in listed)
    assert ask(one, "known_command make_tea") == "false"


def test_a_player_that_cannot_tell_what_it_thinks_has_no_analysis():
    one = engine(random_mind())
    assert not [name for name in ask(one, "list_commands").split("\n") if "analyze" in name and "gogui" not in name]
    assert ask(one, "lz-analyze 10") == "? unknown command"


@pytest.mark.parametrize(
    "line",
    [
        *("boardsize", "boardsize x", "boardsize -3", "boardsize 3.5", "boardsize 9 9", "boardsize 99999999999"),
        *(
            "komi",
            "komi x",
            "komi nan",
            "komi inf",
            "komi 1e308",
            "komi 1 2",
            "play",
            "play b",
            "play red C3",
            "play b Z3",
        ),
        *("play b I3", "play b C9", "play b C0", "play b C", "play b C3 D3", "genmove", "genmove x", "genmove b b"),
        *("undo 3", "time_settings 1 2", "time_settings 1 2 x", "time_settings -1 2 3", "time_settings 1 2 3.5"),
        *("time_left b 3", "time_left x 3 3", "time_left b x 3", "final_status_list", "final_status_list maybe"),
        *("fixed_handicap", "fixed_handicap x", "known_command", "name x", "quit now", "showboard x", "loadsgf"),
        *("kgs-time_settings", "kgs-time_settings byoyomi 1", "kgs-time_settings sometimes", "reg_genmove"),
        *("lz-analyze x", "lz-analyze b 10 maxmoves", "lz-analyze interval", "kata-analyze b 10 nonsense 3"),
    ],
)
def test_wrong_arguments_are_a_syntax_error(line):
    one = engine()
    before = ask_all(one, "play b C3;showboard")
    assert ask(one, line) == "? syntax error"
    assert ask(one, "showboard") == before[1]


@pytest.mark.parametrize("size", [0, 1, 4, 6, 19, 20, 25])
def test_a_network_plays_on_its_own_board_alone(size):
    assert ask_all(engine(), f"boardsize {size};boardsize 5") == ["? unacceptable size", ""]


@pytest.mark.parametrize("size", range(2, 20))
def test_a_player_without_a_network_plays_on_every_board(size):
    one = engine(random_mind())
    assert ask_all(one, f"boardsize {size};clear_board;komi 0.5") == ["", "", ""]
    for colour in "bwbw":
        assert not ask(one, f"genmove {colour}").startswith("?")
    assert f"\n{size:2d} " in "\n" + ask(one, "showboard")


@pytest.mark.parametrize("size", [0, 1, 20, 25])
def test_other_boards_are_refused_by_everybody(size):
    assert ask(engine(random_mind()), f"boardsize {size}") == "? unacceptable size"


def test_moves_are_played_in_upper_and_lower_case():
    one = engine()
    assert ask_all(one, "play B c3;play white D3;play b PASS;play W Pass") == [""] * 4
    assert stones(one) == {"C3", "D3"}


@pytest.mark.parametrize(
    ("before", "move"),
    [
        ("play b C3", "play w C3"),
        ("play b A2;play b B1", "play w A1"),  # suicide
        ("play b B1;play b A2;play b B3;play w C1;play w C3;play w D2;play w B2;play b C2", "play w B2"),  # ko
    ],
)
def test_an_illegal_move_is_refused_and_changes_nothing(before, move):
    one = engine()
    assert set(ask_all(one, before)) == {""}
    drawing = ask(one, "showboard")
    assert ask(one, move) == "? illegal move"
    assert ask(one, "showboard") == drawing
    assert ask(one, "undo") == ""


def test_a_colour_may_play_again_and_again():
    one = engine()
    assert set(ask_all(one, "play b A1;play b B1;play b C1;play w E5;play w D5")) == {""}
    assert stones(one) == {"A1", "B1", "C1", "E5", "D5"}
    assert POINT.fullmatch(ask(one, "genmove w"))


def test_it_goes_on_after_two_passes():
    one = engine()
    ask_all(one, "play b C3;play w pass;play b pass;play w pass;play b pass")
    assert POINT.fullmatch(ask(one, "genmove w"))
    assert ask(one, "play b D4") in ("", "? illegal move")
    assert all(POINT.fullmatch(answer) for answer in ask_all(one, "genmove b;genmove b;genmove w"))


def test_a_game_may_be_longer_than_ours_are():
    rules = go_rules(2, 2, 0.5)
    one = engine(random_mind(rules), rules)
    for turn in range(100):  # ours end after 8 moves
        assert POINT.fullmatch(ask(one, f"genmove {'bw'[turn % 2]}"))
        ask_all(one, "play b pass;play w pass")


def test_a_network_follows_a_game_that_is_longer_than_ours_are():
    rules = go_rules(3, 3, 0.5)
    one = engine(player_mind(rules, num_simulations=8), rules)
    for turn in range(60):
        assert not ask(one, f"genmove {'bw'[turn % 2]}").startswith("?")


@pytest.mark.parametrize("mind", [player_mind, random_mind])
def test_it_moves_for_either_colour_at_any_time(mind):
    one = engine(mind())
    for colour in "bbwwwb":
        before = stones(one)
        name = ask(one, f"genmove {colour}")
        assert POINT.fullmatch(name)
        assert name == "pass" or name in stones(one) - before


def test_reg_genmove_plays_nothing():
    one = engine()
    drawing = ask(one, "showboard")
    assert POINT.fullmatch(ask(one, "reg_genmove b"))
    assert ask(one, "showboard") == drawing


def test_a_move_that_is_asked_for_and_not_played_takes_no_time_from_the_clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("zero.interop.gtp.engine.time.perf_counter", lambda: now[0])

    class Slow(OpponentMind):
        allowed: ClassVar[list[float]] = []

        def choose(self, seconds):
            self.allowed.append(seconds)
            now[0] += 10.0
            return super().choose(seconds)

    one = engine(Slow("random", lambda rules: UniformPlayer(rules, 1), GO5))
    ask_all(one, "time_settings 100 0 0;reg_genmove b;reg_genmove b;genmove b;reg_genmove b")
    asked = Slow.allowed
    assert asked[0] == asked[1] == asked[2] > asked[3]


def test_undo_takes_moves_back_one_by_one():
    one = engine()
    drawings = [ask_all(one, f"{move};showboard")[1] for move in ("play b C3", "play b pass", "play w C4", "genmove b")]
    for drawing in reversed(drawings[:-1]):
        assert ask_all(one, "undo;showboard") == ["", drawing]
    assert ask_all(one, "undo;undo") == ["", "? cannot undo"]


def test_after_undo_it_plays_as_if_the_move_had_not_been():
    fresh, one = engine(), engine()
    assert (
        ask_all(one, "play b C3;genmove w;undo;play w D4;genmove b")[-1]
        == (ask_all(fresh, "play b C3;play w D4;genmove b")[-1])
    )


def test_a_handicap_is_placed_and_counts_as_blacks():
    one = engine(random_mind(go_rules(9, 9, 0.5)), go_rules(9, 9, 0.5))
    assert ask(one, "fixed_handicap 4") == "C3 G7 C7 G3"
    assert stones(one) == {"C3", "G7", "G3", "C7"}
    assert ask(one, "final_score") == "B+80.5"
    assert ask(one, "undo") == "? cannot undo"
    assert not ask(one, "genmove w").startswith("?")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("fixed_handicap 1", "? invalid number of stones"),
        ("fixed_handicap 10", "? invalid number of stones"),
        ("place_free_handicap 1", "? invalid number of stones"),
        ("set_free_handicap C3", "? bad vertex list"),
        ("set_free_handicap C3 C3", "? bad vertex list"),
        ("set_free_handicap C3 pass", "? bad vertex list"),
        ("set_free_handicap C3 Z9", "? bad vertex list"),
        ("set_free_handicap C3 D4 E5", ""),
    ],
)
def test_handicaps_are_checked(line, answer):
    rules = go_rules(9, 9, 0.5)
    one = engine(random_mind(rules), rules)
    assert ask(one, line) == answer
    ask(one, "play w A1")
    assert ask(one, line) == "? board not empty"


def test_a_free_handicap_has_no_more_stones_than_asked_for():
    one = engine(random_mind(go_rules(19, 19)), go_rules(19, 19))
    assert len(ask(one, "place_free_handicap 12").split()) == 9
    assert ask_all(one, "clear_board;place_free_handicap 3")[1] == "D4 Q16 D16"


@pytest.mark.parametrize(
    ("moves", "komi", "score"),
    [
        ("", "0.5", "W+0.5"),
        ("", "0", "0"),
        ("", "-3", "B+3.0"),
        ("play b C3", "7.5", "B+17.5"),
        ("play b C3;play w D3", "7.5", "W+7.5"),
        ("play b C3", "12.25", "B+12.75"),
    ],
)
def test_the_score_is_that_of_the_areas(moves, komi, score):
    one = engine()
    if moves:
        ask_all(one, moves)
    assert ask_all(one, f"komi {komi};final_score") == ["", score]


def test_komi_reaches_the_search():
    one = engine(player_mind(GO5, UniformEvaluator(), num_simulations=200), GO5)
    ask_all(one, "play b C3;play w pass")
    assert ask_all(one, "komi 0;reg_genmove b") == ["", "pass"]  # 25 points ahead: one more pass wins
    assert ask_all(one, "komi 30;reg_genmove b")[1] != "pass"


def test_all_stones_are_alive():
    one = engine()
    ask_all(one, "play b A1;play b A2;play w C3")
    assert ask(one, "final_status_list alive").split("\n") == ["C3", "A2 A1"]
    assert ask_all(one, "final_status_list dead;final_status_list seki") == ["", ""]


def test_the_board_is_drawn_with_its_coordinates():
    one = engine()
    ask_all(one, "play b B1;play w A1;play b A2")
    assert ask(one, "showboard").split("\n") == [
        "   A B C D E",
        " 5 . . . . .",
        " 4 . . . . .",
        " 3 . . . . .",
        " 2 X . . . .",
        " 1 . X . . .",
        "   A B C D E",
        "Black (X) has captured 1, White (O) 0",
        "komi 0.5",
        "move 3 was X A2",
    ]


@pytest.mark.parametrize(
    "settings", ["time_settings 0 1 1", "time_settings 3 0 0", "kgs-time_settings byoyomi 0 1 5", "time_left b 1 1"]
)
def test_it_moves_in_time(settings):
    class Slow(UniformEvaluator):
        def evaluate(self, planes, prior, value):
            time.sleep(0.01)
            super().evaluate(planes, prior, value)

    mind = player_mind(GO5, Slow(), num_simulations=20_000)  # 50 seconds without a limit
    one = engine(mind)
    mind.think(8, None)  # compiles what is not compiled yet
    assert ask(one, settings) == ""
    started = time.perf_counter()
    assert POINT.fullmatch(ask(one, "genmove b"))
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize("command", ["genmove b", "lz-genmove_analyze b 1000"])
def test_the_players_own_limit_holds_beside_a_clock(command):
    class Slow(UniformEvaluator):
        def evaluate(self, planes, prior, value):
            time.sleep(0.01)
            super().evaluate(planes, prior, value)

    mind = player_mind(GO5, Slow(), num_simulations=20_000, limit=0.5)
    one = engine(mind)
    ask(one, "time_settings 3600 0 0")
    started = time.perf_counter()
    assert not ask(one, command).startswith("?")
    assert time.perf_counter() - started < 10  # 50 seconds are its share of the clock


def test_an_analysis_tells_one_move_at_least():
    assert ask(engine(), "lz-analyze b 10 maxmoves 0").count("info move") == 1


@pytest.mark.parametrize("settings", ["time_settings 0 1 0", "kgs-time_settings none"])
def test_no_limit_is_no_limit(settings):
    one, free = engine(), engine()
    assert ask_all(one, f"{settings};genmove b")[1] == ask(free, "genmove b")


def test_a_player_gives_up_where_it_is_told_to():
    one = engine(player_mind(GO5, resign_below=1.0))
    ask_all(one, "play b C3;play w D3")
    assert ask_all(one, "genmove b;kata-genmove_analyze b 10")[0] == "resign"
    assert stones(one) == {"C3", "D3"}


def test_by_default_nobody_gives_up():
    one = engine(player_mind(GO5))
    ask_all(one, "play b C3;play w D3")
    assert "resign" not in [ask(one, f"genmove {'bw'[turn % 2]}") for turn in range(20)]


class FailingPlayer(UniformPlayer):
    """Answers as it is told."""

    reply = Reply(fault="the engine died")

    def choose(self, games):
        return [self.reply for _ in games]


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (Reply(fault="the engine died"), "? random failed: the engine died"),
        (Reply(action=12), "? random answered C3, which is illegal"),
        (Reply(action=RESIGN), "resign"),
    ],
)
def test_what_is_wrong_with_an_opponent_is_answered(reply, answer):
    FailingPlayer.reply = reply
    one = engine(OpponentMind("random", lambda rules: FailingPlayer(rules, 1), GO5))
    ask(one, "play b C3")
    assert ask(one, "genmove w") == answer
    assert ask(one, "play w D3") == ""


def test_gomoku_takes_turns_and_ends():
    one = engine(player_mind(GOMOKU, UniformEvaluator(), num_simulations=200), GOMOKU)
    assert ask_all(one, "play b A1;play b B1;play w pass;genmove b") == [
        *("", "? illegal move", "? syntax error", "? it is the other colour's turn"),
    ]
    assert ask_all(one, "fixed_handicap 2;final_score;boardsize 9") == [
        *("? unknown command", "? cannot score", "? unacceptable size"),
    ]
    ask_all(one, "play w A6;play b B1;play w B6;play b C1;play w C6")
    assert ask_all(one, "play b D1;final_score;genmove w;play w D6") == [
        *("", "B+1.0", "? the game is over", "? illegal move"),
    ]
    assert ask_all(one, "undo;play b E1;lz-analyze 10")[:2] == ["", ""]
    assert ask(one, "genmove w") == "D6"  # it wins


def test_a_pass_that_nobody_played_does_not_bring_the_end_of_the_game_nearer():
    mind = player_mind(GO5)
    one = engine(mind)
    seen = []
    for lines in ("play w C3;reg_genmove w", "reg_genmove w", "play b pass;reg_genmove w", "undo;reg_genmove w"):
        ask_all(one, lines)
        seen.append((mind._player.actions, int(mind._player._roots.state[0, NUM_PASSES])))
    assert seen == [((25, 12, 25), 0), ((25, 12, 25), 0), ((25, 12, 25), 1), ((25, 12, 25), 0)]


def test_the_search_sees_one_pass_and_never_two():
    mind = player_mind(GO5)
    one = engine(mind)
    seen = []
    for lines in ("play b C3;reg_genmove w", "play w pass;reg_genmove b", "play b pass;reg_genmove w"):
        ask_all(one, lines)
        seen.append(mind._player.actions)
    assert seen == [(12,), (12, 25), (12,)]
