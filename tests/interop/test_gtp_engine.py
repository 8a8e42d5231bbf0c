"""The commands of the engine: answers, effects and errors."""

import re
import time
from typing import ClassVar

import pytest

from tests.interop.engines import GO5, GOMOKU, OTHELLO, answer, answers, engine, network_session, random_session, stones
from zero import __version__
from zero.config.params import params_text, parse_params, preset_text
from zero.games.position import NUM_PASSES
from zero.games.rules import go_rules
from zero.interop.gtp import GtpServer
from zero.network.weights import new_network, weights_bytes
from zero.players.build import open_session
from zero.players.player import RESIGN, Reply
from zero.players.rollout import RolloutPlayer
from zero.players.session import PlayerSession
from zero.players.spec import parse_player
from zero.players.uniform import UniformPlayer
from zero.search.evaluator import UniformEvaluator

REQUIRED = """
protocol_version name version known_command list_commands quit boardsize clear_board komi fixed_handicap
place_free_handicap set_free_handicap play genmove undo time_settings time_left final_score final_status_list
loadsgf reg_genmove showboard lz-analyze lz-genmove_analyze
"""
POINT = re.compile(r"[A-E][1-5]|pass")


def test_it_answers_its_name_and_version():
    """The version names the player: a lineage's name stands for another network after a promotion."""
    expected = ["zero", f"{__version__} random", "2"]
    assert answers(engine(random_session()), "name;version;protocol_version") == expected


def test_the_version_of_a_network_has_a_digest_of_its_weights_and_search(tmp_path):
    def version(seed: int, text: str) -> str:
        params = parse_params(preset_text("smoke"), "smoke").model_copy(update={"seed": seed})
        (tmp_path / "params.yaml").write_text(params_text(params))
        weights = weights_bytes(new_network(params.network, params.game, seed))
        (tmp_path / "weights.safetensors").write_bytes(weights)
        return answer(GtpServer(*open_session(tmp_path, parse_player(text))), "version")

    text = f"{tmp_path}/weights.safetensors,simulations=2"
    one, other = version(1, text), version(2, text)
    assert one == version(1, text) != other
    assert one.rpartition(" ")[0] == other.rpartition(" ")[0]


def test_all_commands_are_listed_and_known():
    one = engine()
    listed = answer(one, "list_commands").split("\n")
    assert set(REQUIRED.split()) <= set(listed)
    assert all(answer(one, f"known_command {name}") == "true" for name in listed)
    assert answer(one, "known_command make_tea") == "false"


def test_a_player_without_a_network_has_no_analysis_commands():
    one = engine(random_session())
    assert not [name for name in answer(one, "list_commands").split("\n") if "analyze" in name and "gogui" not in name]
    assert answer(one, "lz-analyze 10") == "? unknown command"


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
        *("reg_genmove", "place_free_handicap", "set_free_handicap"),
        *("lz-analyze x", "lz-analyze b 10 maxmoves", "lz-analyze interval", "lz-genmove_analyze b 10 nonsense 3"),
    ],
)
def test_wrong_arguments_are_a_syntax_error(line):
    one = engine()
    before = answers(one, "play b C3;showboard")
    assert answer(one, line) == "? syntax error"
    assert answer(one, "showboard") == before[1]


@pytest.mark.parametrize("size", [4, 6, 20])
def test_a_network_plays_on_its_own_board_only(size):
    assert answers(engine(), f"boardsize {size};boardsize 5") == ["? unacceptable size", ""]


@pytest.mark.parametrize("size", [2, 9, 19])
def test_a_player_without_a_network_plays_on_every_board(size):
    one = engine(random_session())
    assert answers(one, f"boardsize {size};clear_board;komi 0.5") == ["", "", ""]
    for colour in "bwbw":
        assert not answer(one, f"genmove {colour}").startswith("?")
    assert f"\n{size:2d}" in answer(one, "showboard")


@pytest.mark.parametrize("size", [1, 20])
def test_unsupported_sizes_are_rejected(size):
    assert answer(engine(random_session()), f"boardsize {size}") == "? unacceptable size"


def test_moves_are_played_in_upper_and_lower_case():
    one = engine()
    assert answers(one, "play B c3;play white D3;play b PASS;play W Pass") == [""] * 4
    assert stones(one) == {"C3", "D3"}


@pytest.mark.parametrize(
    ("before", "move"),
    [
        ("play b C3", "play w C3"),
        ("play b A2;play b B1", "play w A1"),  # suicide
        ("play b B1;play b A2;play b B3;play w C1;play w C3;play w D2;play w B2;play b C2", "play w B2"),  # ko
    ],
)
def test_an_illegal_move_is_rejected_and_changes_nothing(before, move):
    one = engine()
    assert set(answers(one, before)) == {""}
    drawing = answer(one, "showboard")
    assert answer(one, move) == "? illegal move"
    assert answer(one, "showboard") == drawing
    assert answer(one, "undo") == ""


def test_a_colour_may_play_several_moves_in_a_row():
    one = engine()
    assert set(answers(one, "play b A1;play b B1;play b C1;play w E5;play w D5")) == {""}
    assert stones(one) == {"A1", "B1", "C1", "E5", "D5"}
    assert POINT.fullmatch(answer(one, "genmove w"))


def test_a_game_continues_after_two_passes():
    one = engine()
    answers(one, "play b C3;play w pass;play b pass;play w pass;play b pass")
    assert POINT.fullmatch(answer(one, "genmove w"))
    assert answer(one, "play b D4") in ("", "? illegal move")
    assert all(POINT.fullmatch(text) for text in answers(one, "genmove b;genmove b;genmove w"))


def test_a_game_has_no_maximum_length():
    rules = go_rules(2, 2, 0.5)
    one = engine(random_session(rules), rules)
    for turn in range(100):  # by the rules it would end after 8 moves
        assert POINT.fullmatch(answer(one, f"genmove {'bw'[turn % 2]}"))
        answers(one, "play b pass;play w pass")


def test_a_network_follows_a_long_game():
    rules = go_rules(3, 3, 0.5)
    one = engine(network_session(rules, num_simulations=8), rules)
    for turn in range(60):
        assert not answer(one, f"genmove {'bw'[turn % 2]}").startswith("?")


@pytest.mark.parametrize("session", [network_session, random_session])
def test_it_moves_for_any_colour_at_any_time(session):
    one = engine(session())
    for colour in "bbwwwb":
        before = stones(one)
        name = answer(one, f"genmove {colour}")
        assert POINT.fullmatch(name)
        assert name == "pass" or name in stones(one) - before


def test_reg_genmove_plays_nothing():
    one = engine()
    drawing = answer(one, "showboard")
    assert POINT.fullmatch(answer(one, "reg_genmove b"))
    assert answer(one, "showboard") == drawing


def test_reg_genmove_takes_no_time_from_the_clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("zero.interop.gtp.time.perf_counter", lambda: now[0])

    class Slow(PlayerSession):
        allowed: ClassVar[list[float]] = []

        def choose(self, seconds):
            self.allowed.append(seconds)
            now[0] += 10.0
            return super().choose(seconds)

    one = engine(Slow("random", lambda rules: UniformPlayer(rules, 1), GO5))
    answers(one, "time_settings 100 0 0;reg_genmove b;reg_genmove b;genmove b;reg_genmove b")
    limits = Slow.allowed
    assert limits[0] == limits[1] == limits[2] > limits[3]


def test_undo_takes_back_one_move_at_a_time():
    one = engine()
    drawings = [answers(one, f"{move};showboard")[1] for move in ("play b C3", "play b pass", "play w C4", "genmove b")]
    for drawing in reversed(drawings[:-1]):
        assert answers(one, "undo;showboard") == ["", drawing]
    assert answers(one, "undo;undo") == ["", "? cannot undo"]


def test_after_undo_it_plays_as_without_the_move():
    fresh, one = engine(), engine()
    assert (
        answers(one, "play b C3;genmove w;undo;play w D4;genmove b")[-1]
        == (answers(fresh, "play b C3;play w D4;genmove b")[-1])
    )


def test_handicap_stones_are_blacks():
    one = engine(random_session(go_rules(9, 9, 0.5)), go_rules(9, 9, 0.5))
    assert answer(one, "fixed_handicap 4") == "C3 G7 C7 G3"
    assert stones(one) == {"C3", "G7", "G3", "C7"}
    assert answer(one, "final_score") == "B+80.5"
    assert answer(one, "undo") == "? cannot undo"
    assert not answer(one, "genmove w").startswith("?")


@pytest.mark.parametrize(
    ("line", "expected"),
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
def test_handicaps_are_checked(line, expected):
    rules = go_rules(9, 9, 0.5)
    one = engine(random_session(rules), rules)
    assert answer(one, line) == expected
    answer(one, "play w A1")
    assert answer(one, line) == "? board not empty"


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
def test_the_score_counts_areas(moves, komi, score):
    one = engine()
    if moves:
        answers(one, moves)
    assert answers(one, f"komi {komi};final_score") == ["", score]


def test_komi_reaches_the_search():
    one = engine(network_session(GO5, UniformEvaluator(), num_simulations=200), GO5)
    answers(one, "play b C3;play w pass")
    assert answers(one, "komi 0;reg_genmove b") == ["", "pass"]  # 25 points ahead: one more pass wins
    assert answers(one, "komi 30;reg_genmove b")[1] != "pass"


def test_all_stones_count_as_alive():
    one = engine()
    answers(one, "play b A1;play b A2;play w C3")
    assert answer(one, "final_status_list alive").split("\n") == ["C3", "A2 A1"]
    assert answers(one, "final_status_list dead;final_status_list seki") == ["", ""]


def test_the_board_is_drawn_with_its_coordinates():
    one = engine()
    answers(one, "play b B1;play w A1;play b A2")
    assert answer(one, "showboard").split("\n") == [
        "   A B C D E",
        " 5 . . . . . 5",
        " 4 . . . . . 4",
        " 3 . . . . . 3",
        " 2(X). . . . 2",
        " 1 . X . . . 1",
        "   A B C D E",
        "Black (X) has captured 1, White (O) 0",
        "komi 0.5",
        "move 3 was X A2",
    ]


@pytest.mark.parametrize("settings", ["time_settings 0 1 1", "time_settings 3 0 0", "time_left b 1 1"])
def test_it_moves_in_time(settings):
    class Slow(UniformEvaluator):
        def evaluate(self, planes, prior, value):
            time.sleep(0.01)
            super().evaluate(planes, prior, value)

    session = network_session(GO5, Slow(), num_simulations=20_000)  # 50 seconds without a limit
    one = engine(session)
    session.search(8, None)  # compiles the kernels
    assert answer(one, settings) == ""
    started = time.perf_counter()
    assert POINT.fullmatch(answer(one, "genmove b"))
    assert time.perf_counter() - started < 40


@pytest.mark.parametrize("command", ["genmove b", "lz-genmove_analyze b 1000"])
def test_the_time_limit_of_the_player_holds_beside_a_clock(command):
    class Slow(UniformEvaluator):
        def evaluate(self, planes, prior, value):
            time.sleep(0.01)
            super().evaluate(planes, prior, value)

    session = network_session(GO5, Slow(), num_simulations=20_000, seconds=0.5)
    one = engine(session)
    answer(one, "time_settings 3600 0 0")
    started = time.perf_counter()
    assert not answer(one, command).startswith("?")
    assert time.perf_counter() - started < 40  # 50 seconds are its share of the clock


def test_an_analysis_reports_at_least_one_move():
    assert answer(engine(), "lz-analyze b 10 maxmoves 0").count("info move") == 1


def test_a_player_resigns_below_its_threshold():
    one = engine(network_session(GO5, resign_threshold=1.0))
    answers(one, "play b C3;play w D3")
    assert answers(one, "genmove b;lz-genmove_analyze b 10")[0] == "resign"
    assert stones(one) == {"C3", "D3"}


def test_by_default_a_player_never_resigns():
    one = engine(network_session(GO5))
    answers(one, "play b C3;play w D3")
    assert "resign" not in [answer(one, f"genmove {'bw'[turn % 2]}") for turn in range(20)]


class FailingPlayer(UniformPlayer):
    """Gives a fixed reply."""

    reply = Reply(fault="the engine died")

    def choose(self, games):
        return [self.reply for _ in games]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(fault="the engine died"), "? random failed: the engine died"),
        (Reply(action=12), "? random answered C3, which is illegal"),
        (Reply(action=RESIGN), "resign"),
    ],
)
def test_faults_of_a_player_are_reported(reply, expected):
    FailingPlayer.reply = reply
    one = engine(PlayerSession("random", lambda rules: FailingPlayer(rules, 1), GO5))
    answer(one, "play b C3")
    assert answer(one, "genmove w") == expected
    assert answer(one, "play w D3") == ""


def test_othello_takes_turns_passes_and_ends():
    one = engine(network_session(OTHELLO, UniformEvaluator(), num_simulations=50), OTHELLO)
    assert answers(one, "play b A1;play b pass;play b D2;final_score;boardsize 9") == [
        *("? illegal move", "? illegal move", "", "B+3.0", "? unacceptable size")
    ]
    answers(one, "play w D1;play b C1;play w B1;play b A1;play w D3;play b D4;play w B4")
    assert answers(one, "genmove b;play w A3;final_score;genmove b") == ["pass", "", "W+9.0", "? the game is over"]


def test_gomoku_takes_turns_and_ends():
    one = engine(network_session(GOMOKU, UniformEvaluator(), num_simulations=200), GOMOKU)
    assert answers(one, "play b A1;play b B1;play w pass;genmove b") == [
        *("", "? illegal move", "? syntax error", "? it is the other colour's turn")
    ]
    assert answers(one, "fixed_handicap 2;final_score;boardsize 9") == [
        *("? unknown command", "? cannot score", "? unacceptable size")
    ]
    answers(one, "play w A6;play b B1;play w B6;play b C1;play w C6")
    assert answers(one, "play b D1;final_score;genmove w;play w D6") == [
        *("", "B+1.0", "? the game is over", "? illegal move")
    ]
    assert answers(one, "undo;play b E1;lz-analyze 10")[:2] == ["", ""]
    assert answer(one, "genmove w") == "D6"  # the winning move


@pytest.mark.parametrize("lines", ["play b C3", "play b C3;play w pass;undo", "play b C3;genmove w;undo"])
def test_rollouts_do_not_pass_after_a_filler_pass(lines):
    """Black is ahead: after a real pass of White, its own pass would end the game as a win."""
    one = engine(PlayerSession("rollouts", lambda rules: RolloutPlayer(rules, 200, 1, seed=1), GO5))
    answers(one, lines)
    assert answer(one, "reg_genmove b") != "pass"
    assert answers(one, "play w pass;reg_genmove b") == ["", "pass"]
    answers(one, "undo")
    assert answer(one, "genmove b") != "pass"


def test_a_filler_pass_does_not_count_towards_the_end_of_the_game():
    session = network_session(GO5)
    one = engine(session)
    seen = []
    for lines in ("play w C3;reg_genmove w", "reg_genmove w", "play b pass;reg_genmove w", "undo;reg_genmove w"):
        answers(one, lines)
        seen.append((session._player.actions, int(session._player._roots.state[0, NUM_PASSES])))
    assert seen == [((25, 12, 25), 0), ((25, 12, 25), 0), ((25, 12, 25), 1), ((25, 12, 25), 0)]
