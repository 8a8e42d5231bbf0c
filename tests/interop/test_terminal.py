"""A game in the terminal: typed line by line, through a pipe, and at a real terminal."""

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

from tests.interop.gtp.engines import GO5, GOMOKU, player_mind, random_mind
from zero.data.sgf import read_sgf
from zero.games.coordinates import name_to_action
from zero.games.position import BLACK, WHITE
from zero.games.rules import go_rules
from zero.interop.terminal import drawing
from zero.interop.terminal.session import HELP, play_in_terminal
from zero.players.single_game import MindError, OpponentMind
from zero.players.uniform import UniformPlayer

PROGRAM = [sys.executable, "-m", "tests.interop.terminal_program"]


class Keys:
    """Lines that a person types; an exception is raised in place of a line."""

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


def play(*lines, mind=None, rules=GO5, people=(BLACK,)):
    """What is on the screen after these lines, and the prompts that were shown."""
    screen, keys = io.StringIO(), Keys(lines)
    play_in_terminal(mind or player_mind(rules), rules, Console(file=screen, width=120), people, keys)
    return screen.getvalue(), keys.prompts


def boards(screen):
    """The boards on the screen, each as its rows."""
    lines = screen.splitlines()
    letters = [number for number, line in enumerate(lines) if line.startswith("   A B")]
    return [lines[top + 1 : bottom] for top, bottom in zip(letters[::2], letters[1::2], strict=True)]


def test_the_board_has_coordinates_and_the_last_move_stands_in_brackets():
    screen, _ = play("D4", "quit", people=(BLACK, WHITE))
    assert boards(screen)[-1] == [
        " 5 . . . . . 5",
        " 4 . . .(X). 4",
        " 3 . . . . . 3",
        " 2 . . . . . 2",
        " 1 . . . . . 1",
    ]


def test_large_boards_have_stars():
    lines = drawing.board_lines(go_rules(9, 9), np.zeros(81, np.int8), None, False)
    assert [text.plain for text in lines][3] == " 7 . . + . + . + . . 7"


@pytest.mark.parametrize("rules", [GO5, GOMOKU])
def test_the_player_answers_with_what_it_thinks(rules):
    screen, prompts = play("C3", rules=rules)
    assert prompts == ["Black> ", "Black> "]
    line = next(line for line in screen.splitlines() if "plays" in line)
    assert line.startswith("a hash (White) plays ")
    assert "win chance " in line
    assert " 30 visits" in line
    assert len(boards(screen)) == 3
    assert sum(row.count("O") for row in boards(screen)[-1]) == 1


def test_the_player_begins_where_the_person_has_white():
    screen, prompts = play("quit", people=(WHITE,))
    assert "a hash (Black) plays" in screen
    assert prompts == ["White> "]


def test_two_people_can_play():
    screen, prompts = play("C3", "D3", "quit", people=(BLACK, WHITE))
    assert prompts == ["Black> ", "White> ", "Black> "]
    assert "plays" not in screen


def test_a_player_that_cannot_tell_what_it_thinks_plays_and_hints():
    screen, _ = play("C3", "hint", "thoughts", mind=random_mind())
    assert "random (White) plays" in screen
    assert "random cannot tell what it thinks" in screen


def test_captures_and_the_area_are_shown():
    screen, _ = play("B1", "A1", "A2", "score", people=(BLACK, WHITE))
    assert "captured: 1 by Black, 0 by White; area now: B+24.5" in screen
    assert "with komi 0.5" in screen


def test_undo_takes_the_answer_back_too():
    screen, prompts = play("C3", "D2", "undo", "undo", "undo")
    empty = boards(screen)[0]
    assert boards(screen)[-1] == empty
    assert len([row for row in boards(screen)[-2] if "X" in row]) == 1
    assert "You have played no move yet" in screen
    assert set(prompts) == {"Black> "}


def test_undo_of_a_person_with_white_leaves_the_first_move():
    screen, _ = play("undo", "E1", "undo", people=(WHITE,))
    assert "You have played no move yet" in screen
    assert boards(screen)[-1] == boards(screen)[1]


def test_two_people_take_single_moves_back():
    _, prompts = play("C3", "D3", "undo", "undo", "quit", people=(BLACK, WHITE))
    assert prompts == ["Black> ", "White> ", "Black> ", "White> ", "Black> "]


def test_a_hint_and_thoughts_change_nothing():
    screen, prompts = play("C3", "hint", "thoughts", "board")
    assert len(prompts) == 5
    assert boards(screen)[-1] == boards(screen)[2]
    assert "Black to move, win chance" in screen
    assert "; then: " in screen


def test_the_heat_is_the_share_of_the_visits():
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
        ("\x00\x1b[A", "`help` lists"),
        ("[red]C9[/red]", "`help` lists"),
    ],
)
def test_wrong_input_is_answered_with_its_remedy(line, remedy):
    screen, prompts = play("C3", "", line, "quit", people=(BLACK, WHITE))
    assert remedy in screen
    assert len(prompts) == 4


def test_gomoku_has_no_pass_and_no_score():
    screen, _ = play("pass", "score", rules=GOMOKU)
    assert "'pass' is not a point" in screen
    assert "no score" in screen


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


def test_a_person_can_give_up_and_take_it_back(tmp_path):
    path = tmp_path / "game.sgf"
    screen, prompts = play("C3", "resign", f"save {path}", "D4", "undo", "board", people=(BLACK, WHITE))
    assert "White resigns." in screen
    assert "The game is over: B+R." in screen
    assert read_sgf(path.read_text()).result == "B+R"
    assert prompts[-1] == "White> "


def test_a_person_gives_up_also_while_the_player_is_to_move(tmp_path):
    class Dead(OpponentMind):
        def choose(self, seconds):
            raise MindError("random failed: the engine died")

    path = tmp_path / "game.sgf"
    mind = Dead("random", lambda rules: UniformPlayer(rules, 1), GO5)
    screen, prompts = play("C3", "resign", f"save {path}", mind=mind)
    assert prompts[:2] == ["Black> ", "White> "] and "Black resigns." in screen
    assert read_sgf(path.read_text()).result == "W+R"


def test_a_player_can_give_up():
    screen, prompts = play("C3", "E5", "undo", mind=player_mind(GO5, resign_below=1.0))
    assert "White resigns." in screen
    assert "B+R" in screen
    assert prompts[2] == "game over> "
    assert prompts[3] == "Black> "


def test_a_game_that_goes_on_is_saved_without_a_result(tmp_path):
    path = tmp_path / "folder" / "game.sgf"
    screen, _ = play("C3", f"save {path}", "quit", people=(BLACK, WHITE))
    game = read_sgf(path.read_text())
    assert (game.result, game.actions, game.black_name) == ("?", (12,), "a person")
    assert "not saved" not in screen


def test_leaving_says_what_is_lost():
    assert "Left after 1 moves, which are not saved" in play("C3", "quit", people=(BLACK, WHITE))[0]
    assert "Left after 1 moves, which are not saved" in play("C3", people=(BLACK, WHITE))[0]
    assert "not saved" not in play("quit")[0]


def test_ctrl_c_warns_once_and_then_leaves():
    screen, prompts = play("C3", KeyboardInterrupt, "D3", KeyboardInterrupt, KeyboardInterrupt, people=(BLACK, WHITE))
    assert screen.count("Ctrl-C once more leaves") == 2
    assert len(prompts) == 5
    assert len(play(KeyboardInterrupt, "C3")[1]) == 1  # nothing to lose


def test_a_player_that_fails_does_not_end_the_game(tmp_path):
    class FailingMind(OpponentMind):
        def choose(self, seconds):
            raise MindError("random failed: the engine died")

    mind = FailingMind("random", lambda rules: UniformPlayer(rules, 1), GO5)
    screen, prompts = play("C3", f"save {tmp_path / 'game.sgf'}", "undo", mind=mind)
    assert screen.count("random failed: the engine died") == 2
    assert prompts == ["Black> ", "White> ", "White> ", "Black> "]
    assert (tmp_path / "game.sgf").exists()


def test_help_lists_all_that_can_be_typed():
    screen, _ = play("help")
    assert all(meaning in screen for meaning in HELP.values())


@pytest.mark.parametrize("line", ["PASS", " c3 ", "Undo", "HINT", "Quit"])
def test_capitals_and_blanks_do_not_matter(line):
    assert "`help` lists" not in play(line, people=(BLACK, WHITE))[0]


def test_it_plays_through_a_pipe():
    done = subprocess.run(PROGRAM, input="C3\nnonsense\nhint\nquit\n", capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert "plays" in done.stdout
    assert "\x1b[" not in done.stdout
    assert "Left after 2 moves" in done.stdout


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
