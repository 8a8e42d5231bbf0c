"""A game in the terminal: with scripted input, through a pipe, and at a real terminal."""

import io
import os
import pty
import select
import subprocess
import sys
import time

import numpy as np
import pytest
from rich.console import Console

from tests.interop.engines import GO5, GOMOKU, OTHELLO, network_session, random_session
from zero.data.sgf import read_sgf
from zero.games.coordinates import name_to_action
from zero.games.position import BLACK, WHITE
from zero.games.rules import go_rules
from zero.interop import drawing
from zero.interop.terminal import HELP, TerminalGame
from zero.players.session import PlayerSession, SessionError
from zero.players.uniform import UniformPlayer

PROGRAM = [sys.executable, "-m", "tests.interop.terminal_program"]


class Keys:
    """Scripted input; an exception in the list is raised."""

    def __init__(self, lines):
        self.lines = list(lines)
        self.prompts = []

    def __call__(self, prompt):
        self.prompts.append(prompt)
        if not self.lines:
            raise EOFError
        line = self.lines.pop(0)
        if isinstance(line, type):
            raise line
        return line


def play(*lines, session=None, rules=GO5, people=(BLACK,)):
    """Output after these lines of input, and the prompts."""
    screen, keys = io.StringIO(), Keys(lines)
    TerminalGame(session or network_session(rules), rules, Console(file=screen, width=120), people, keys).run()
    return screen.getvalue(), keys.prompts


def boards(screen):
    """The boards in the output, each as its rows."""
    lines = screen.splitlines()
    letters = [number for number, line in enumerate(lines) if line.startswith("   A B")]
    return [lines[top + 1 : bottom] for top, bottom in zip(letters[::2], letters[1::2], strict=True)]


def test_the_board_has_coordinates_and_brackets_around_the_last_move():
    screen, _ = play("D4", "quit", people=(BLACK, WHITE))
    assert boards(screen)[-1] == [
        " 5 . . . . . 5",
        " 4 . . .(X). 4",
        " 3 . . . . . 3",
        " 2 . . . . . 2",
        " 1 . . . . . 1",
    ]


def test_large_boards_have_star_points():
    lines = drawing.board_lines(go_rules(9, 9), np.zeros(81, np.int8), (), False)
    assert [text.plain for text in lines][3] == " 7 . . + . + . + . . 7"


@pytest.mark.parametrize("rules", [GO5, GOMOKU])
def test_the_player_reports_its_search_with_its_move(rules):
    screen, prompts = play("C3", rules=rules)
    assert prompts == ["Black> ", "Black> "]
    line = next(line for line in screen.splitlines() if "plays" in line)
    assert line.startswith("a hash (White) plays ")
    assert "win chance " in line
    assert " 30 visits" in line
    assert len(boards(screen)) == 3
    assert sum(row.count("O") for row in boards(screen)[-1]) == 1


def test_a_player_without_a_network_plays_and_gives_hints():
    screen, _ = play("C3", "hint", "thoughts", session=random_session())
    assert "random (White) plays" in screen
    assert "random cannot show its search" in screen


def test_captures_and_the_area_are_shown():
    screen, _ = play("B1", "A1", "A2", "score", people=(BLACK, WHITE))
    assert "captured: 1 by Black, 0 by White; area now: B+24.5" in screen
    assert "with komi 0.5" in screen


def test_undo_also_takes_back_the_reply():
    screen, prompts = play("C3", "D2", "undo", "undo", "undo")
    empty = boards(screen)[0]
    assert boards(screen)[-1] == empty
    assert len([row for row in boards(screen)[-2] if "X" in row]) == 1
    assert "You have not played a move" in screen
    assert set(prompts) == {"Black> "}


def test_undo_with_white_keeps_the_first_move():
    screen, _ = play("undo", "E1", "undo", people=(WHITE,))
    assert "You have not played a move" in screen
    assert boards(screen)[-1] == boards(screen)[1]


def test_two_people_take_back_single_moves():
    _, prompts = play("C3", "D3", "undo", "undo", "quit", people=(BLACK, WHITE))
    assert prompts == ["Black> ", "White> ", "Black> ", "White> ", "Black> "]


def test_hints_and_thoughts_do_not_change_the_game():
    screen, prompts = play("C3", "hint", "thoughts", "board")
    assert len(prompts) == 5
    assert boards(screen)[-1] == boards(screen)[2]
    assert "Black to move, win chance" in screen
    assert "; then: " in screen


def test_the_map_shows_the_percentage_of_the_visits():
    visits = [0] * 26
    for name, number in (("C3", 60), ("D3", 39), ("A1", 1)):
        visits[name_to_action(GO5, name)] = number
    stones = np.zeros(25, np.int8)
    stones[name_to_action(GO5, "B2")] = BLACK
    for in_colour, stone in ((False, "X"), (True, "●")):
        rows = [text.plain for text in drawing.heat_lines(GO5, stones, np.array(visits), in_colour)]
        dot = "." if not in_colour else "·"
        assert rows[3].split() == ["3", dot, dot, "60", "39", dot, "3"]
        assert rows[4].split() == ["2", dot, stone, dot, dot, dot, "2"]
        assert rows[5].split() == ["1", "1", dot, dot, dot, dot, "1"]


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("Z9", "points are A1 to E5"),
        ("what", "`help` lists"),
        ("C3", "play on an empty point"),
        ("12 12", "`help` lists"),
        ("save", "save game.sgf"),
        ("save /", "is a folder"),
        ("save /proc/no/such/file.sgf", "/proc/no"),
        ("save ~nosuchuser/game.sgf", "give another file"),
        (f"save {'x' * 300}.sgf", "File name too long; give another file"),
        ("save a\x00.sgf", "embedded null byte; give another name"),
        ("\x00\x1b[A", "`help` lists"),
        ("[red]C9[/red]", "`help` lists"),
    ],
)
def test_wrong_input_is_answered_with_a_remedy(line, remedy):
    screen, prompts = play("C3", "", line, "quit", people=(BLACK, WHITE))
    assert remedy in screen
    assert len(prompts) == 4


def test_gomoku_has_no_pass_and_no_score():
    screen, _ = play("pass", "score", rules=GOMOKU)
    assert "'pass' is not a point" in screen
    assert "no score" in screen


def test_othello_explains_a_stone_that_flips_nothing_and_counts_stones():
    screen, _ = play("A1", "D2", "score", "quit", rules=OTHELLO, people=(BLACK, WHITE))
    assert "illegal move A1: the rules of Othello forbid it here; legal: B4, A3, D2, C1" in screen
    assert "B+3" in screen.splitlines()[-2]


def test_a_game_of_gomoku_ends_with_a_line():
    lines = ["A1", "A6", "B1", "B6", "C1", "C6", "D1"]
    screen, prompts = play(*lines, "E1", "hint", "quit", rules=GOMOKU, people=(BLACK, WHITE))
    assert "The game is over: B+." in screen
    assert "the game is over after 7 moves" in screen
    assert prompts[-1] == "game over> "


def test_two_passes_end_the_game_with_its_score(tmp_path):
    path = tmp_path / "game.sgf"
    screen, _ = play("C3", "pass", "pass", f"save {path}", "D4", people=(BLACK, WHITE))
    assert "The game is over: B+24.5." in screen
    assert "the game is over" in screen
    game = read_sgf(path.read_text())
    assert (game.result, game.actions) == ("B+24.5", (12, 25, 25))


def test_a_person_can_resign_and_undo_it(tmp_path):
    path = tmp_path / "game.sgf"
    screen, prompts = play("C3", "resign", f"save {path}", "D4", "undo", "board", people=(BLACK, WHITE))
    assert "White resigns." in screen
    assert "The game is over: B+R." in screen
    assert read_sgf(path.read_text()).result == "B+R"
    assert prompts[-1] == "White> "


def test_a_person_can_resign_in_the_players_turn(tmp_path):
    class Dead(PlayerSession):
        def choose(self, seconds):
            raise SessionError("random failed: the engine died")

    path = tmp_path / "game.sgf"
    session = Dead("random", lambda rules: UniformPlayer(rules, 1), GO5)
    screen, prompts = play("C3", "resign", f"save {path}", session=session)
    assert prompts[:2] == ["Black> ", "White> "] and "Black resigns." in screen
    assert read_sgf(path.read_text()).result == "W+R"


def test_a_player_can_resign():
    screen, prompts = play("C3", "E5", "undo", session=network_session(GO5, resign_threshold=1.0))
    assert "White resigns." in screen
    assert "B+R" in screen
    assert prompts[2] == "game over> "
    assert prompts[3] == "Black> "


def test_an_unfinished_game_is_saved_without_a_result(tmp_path):
    path = tmp_path / "folder" / "game.sgf"
    screen, _ = play("C3", f"save {path}", "quit", people=(BLACK, WHITE))
    game = read_sgf(path.read_text())
    assert (game.result, game.actions, game.black_name) == ("?", (12,), "a person")
    assert "not saved" not in screen


def test_leaving_reports_unsaved_moves():
    assert "Left after 1 moves. The game or its result is not saved" in play("C3", "quit", people=(BLACK, WHITE))[0]
    assert "Left after 1 moves. The game or its result is not saved" in play("C3", people=(BLACK, WHITE))[0]
    assert "not saved" not in play("quit")[0]


def test_a_resignation_after_the_game_was_saved_is_not_saved(tmp_path):
    lines = ("C3", f"save {tmp_path / 'game.sgf'}", "resign")
    assert "Left after 1 moves. The game or its result is not saved" in play(*lines, people=(BLACK, WHITE))[0]
    again = play(*lines, f"save {tmp_path / 'game.sgf'}", people=(BLACK, WHITE))[0]
    assert "not saved" not in again and read_sgf((tmp_path / "game.sgf").read_text()).result == "B+R"


def test_ctrl_c_warns_once_and_then_leaves():
    screen, prompts = play("C3", KeyboardInterrupt, "D3", KeyboardInterrupt, KeyboardInterrupt, people=(BLACK, WHITE))
    assert screen.count("Ctrl-C once more leaves") == 2
    assert len(prompts) == 5
    assert len(play(KeyboardInterrupt, "C3")[1]) == 1  # nothing to lose


def test_a_failing_player_does_not_end_the_game(tmp_path):
    class FailingSession(PlayerSession):
        def choose(self, seconds):
            raise SessionError("random failed: the engine died")

    session = FailingSession("random", lambda rules: UniformPlayer(rules, 1), GO5)
    screen, prompts = play("C3", f"save {tmp_path / 'game.sgf'}", "undo", session=session)
    assert screen.count("random failed: the engine died") == 2
    assert prompts == ["Black> ", "White> ", "White> ", "Black> "]
    assert (tmp_path / "game.sgf").exists()


def test_help_lists_all_commands():
    screen, _ = play("help")
    assert all(meaning in screen for meaning in HELP.values())


@pytest.mark.parametrize("line", ["PASS", " c3 ", "Undo", "HINT", "Quit"])
def test_case_and_blanks_do_not_matter(line):
    assert "`help` lists" not in play(line, people=(BLACK, WHITE))[0]


def test_it_plays_through_a_pipe():
    done = subprocess.run(PROGRAM, input="C3\nnonsense\nhint\nquit\n", capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert "plays" in done.stdout
    assert "\x1b[" not in done.stdout
    assert "Left after 2 moves" in done.stdout


@pytest.mark.parametrize("encoding", ["utf-8:strict", "utf-8:surrogateescape", "ascii:strict"])
def test_bytes_that_are_not_text_do_not_end_the_game(encoding, tmp_path):
    """The locale decides what Python would do with them."""
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    lines = b"C3\n\xff\nsave \xff.sgf\nquit\n"
    environment["PYTHONPATH"] = os.getcwd()
    done = subprocess.run(PROGRAM, input=lines, capture_output=True, cwd=tmp_path, env=environment, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"saved 2 moves" in done.stdout and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("stream", ["<&-", ">&-"])
@pytest.mark.parametrize("command", ["play", "gtp"])
def test_a_closed_stream_is_said(command, stream):
    line = f"{sys.executable} -m zero {command} random {stream}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=600)
    message = f"`zero {command}` needs standard input and output, and one is closed; start it with both"
    assert (done.returncode, done.stderr) == (1, f"zero: {message}\n")


class Terminal:
    """A program at a real terminal."""

    def __init__(self):
        self.master, slave = pty.openpty()
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            PROGRAM, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True, close_fds=True
        )
        os.close(slave)
        self.seen = ""

    def read_until(self, text, count=1):
        deadline = time.monotonic() + 120
        while self.seen.count(text) < count:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.master], [], [], 1.0)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # the program has ended
                    break
        assert self.seen.count(text) >= count, self.seen

    def type(self, text):
        os.write(self.master, text.encode())

    def close(self):
        os.close(self.master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def terminal():
    one = Terminal()
    yield one
    one.close()


def test_it_plays_at_a_real_terminal_in_colour(terminal):
    terminal.read_until("Black> ")
    terminal.type("C3\r")
    terminal.read_until("plays")
    terminal.read_until("Black> ", 2)
    terminal.type("thoughts\r")
    terminal.read_until("win chance", 2)
    terminal.read_until("Black> ", 3)
    assert "●" in terminal.seen
    assert ";48;5;" in terminal.seen
    terminal.type("\x04")  # Ctrl-D
    terminal.read_until("Left after 2 moves")
    assert terminal.process.wait(60) == 0
