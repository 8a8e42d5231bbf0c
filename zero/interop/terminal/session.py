"""The game in the terminal: what a person types, and what the player answers.

Nothing that is typed ends the game but `quit`, the end of the input, or Ctrl-C twice.
"""

import sys
from collections.abc import Callable, Collection
from pathlib import Path

from rich.console import Console

from zero.data.sgf import SgfHead, moves_to_sgf, result
from zero.errors import MoveError, ZeroError
from zero.games.coords import action_to_name, name_to_action
from zero.games.position import BLACK, GO, Rules
from zero.interop.gtp.analysis import told_moves
from zero.interop.gtp.board import Board
from zero.interop.terminal import drawing
from zero.players.base import RESIGN
from zero.players.single_game import Mind, Thinker
from zero.storage.files import write_atomic
from zero.storage.manifests import RESIGNATION

HELP = {
    "D4": "play there",
    "pass": "play nowhere; two passes end a game of Go",
    "undo": "take your last move back, and the answer to it",
    "hint": "what the player would do in your place",
    "thoughts": "its best moves, what it expects, and a map of its visits",
    "score": "area as the stones stand",
    "resign": "give up",
    "save game.sgf": "write the game to a file",
    "board": "draw the board again",
    "help": "this list",
    "quit": "leave; Ctrl-D does the same",
}
PERSON = "a person"


class TerminalGame:
    """One game at one terminal."""

    def __init__(
        self,
        mind: Mind,
        rules: Rules,
        console: Console,
        read_line: Callable[[str], str],
        people: Collection[int],
    ) -> None:
        """Sets up the empty board; see `play_in_terminal`."""
        self._mind, self._rules, self._console, self._read_line = mind, rules, console, read_line
        self._people = people
        self._board = Board(rules)
        self._resigned: int | None = None  # the colour that gave up
        self._num_saved = 0  # moves of the game as it was saved
        self._is_warned = False  # of an unsaved game
        self._commands: dict[str, Callable[[str], None]] = {
            "undo": lambda _: self._undo(),
            "hint": lambda _: self._hint(),
            "thoughts": lambda _: self._thoughts(),
            "score": lambda _: self._score(),
            "resign": lambda _: self._give_up(),
            "save": self._save,
            "board": lambda _: self._draw(),
            "help": lambda _: self._help(),
        }
        mind.begin(rules)

    def run(self) -> None:
        """Plays until the person leaves."""
        self._draw()
        self._say("Type a point such as D4, or help.")
        asks = False  # a person, though it is the player's turn: it was interrupted or failed
        while True:
            try:
                if not asks and not self._is_over and self._board.to_play not in self._people:
                    self._answer()
                    continue
                asks = False
                line = self._read_line(self._prompt())
                if line.strip().lower() in ("quit", "exit"):
                    break
                self._do(line)
            except EOFError:
                self._say("")
                break
            except KeyboardInterrupt:
                self._say("")
                if self._is_warned or not self._is_unsaved:
                    break
                asks = self._is_warned = True
                self._say("The game goes on. `save game.sgf` keeps it; Ctrl-C once more leaves.")
            except ZeroError as error:
                self._say(str(error))
                asks = self._board.to_play not in self._people
        if self._is_unsaved:
            moves = len(self._board.actions)
            self._say(f"Left after {moves} moves, which are not saved; `save game.sgf` before leaving keeps a game.")

    # what is going on

    @property
    def _is_over(self) -> bool:
        return self._board.is_over or self._resigned is not None

    @property
    def _is_unsaved(self) -> bool:
        return len(self._board.actions) not in (0, self._num_saved)

    def _prompt(self) -> str:
        if self._is_over:
            return "game over> "
        return f"{drawing.NAMES[self._board.to_play]}> "

    def _result(self) -> str:
        if self._resigned is not None:
            return result(self._rules, -self._resigned, 0.0, RESIGNATION)
        return result(self._rules, self._board.outcome(), self._board.margin(), "")

    # what a person does

    def _do(self, line: str) -> None:
        """One line of a person."""
        word, _, rest = line.strip().partition(" ")
        if not word:
            return
        if command := self._commands.get(word.lower()):
            self._is_warned = self._is_warned and word.lower() != "save"
            command(rest.strip())
            return
        try:
            action = name_to_action(self._rules, line)
        except ValueError as error:
            self._say(f"{error}; `help` lists what can be typed")
            return
        if self._resigned is not None:
            raise MoveError("the game is over: a player resigned; `undo` takes it back")
        self._play(action)

    def _undo(self) -> None:
        actions, self._is_warned = self._board.actions, False
        if self._resigned in self._people:
            self._resigned = None
            self._draw()
            return
        first = 0 if BLACK in self._people else 1
        turns = [turn for turn in range(len(actions)) if len(self._people) > 1 or turn % 2 == first]
        if not turns:
            self._say("You have played no move yet, so there is none to take back.")
            return
        self._resigned = None
        self._board = Board(self._rules, actions[: turns[-1]])
        self._num_saved = 0
        self._draw()

    def _hint(self) -> None:
        self._check_not_over()
        self._mind.follow(self._board.actions)
        if isinstance(self._mind, Thinker):
            found = self._mind.think(self._mind.num_simulations, None)
            best = found.ranking()[0]
            line = drawing.line_text(self._rules, self._mind.line(best))
            self._say(
                f"{action_to_name(self._rules, best)}, win chance {drawing.percent(found.best_value)}; then: {line}"
            )
            return
        action = self._mind.choose(None)
        self._say("I would resign." if action == RESIGN else action_to_name(self._rules, action))

    def _thoughts(self) -> None:
        self._check_not_over()
        if not isinstance(self._mind, Thinker):
            self._say(f"{self._mind.name} cannot tell what it thinks; `hint` asks for its move")
            return
        self._mind.follow(self._board.actions)
        found = self._mind.think(self._mind.num_simulations, None)
        lines = {action: self._mind.line(action) for action in told_moves(found, drawing.MAX_TOLD)}
        self._console.print(drawing.thoughts_table(self._rules, found, lines, self._board.to_play))
        for text in drawing.heat_lines(self._rules, self._board.stones, found.visit_counts, self._in_colour):
            self._console.print(text)

    def _score(self) -> None:
        if self._rules.game == GO:
            self._say(f"{self._area()} with komi {self._rules.komi:g}; every stone counts as alive")
        else:
            self._say("This game has no score.")

    def _save(self, name: str) -> None:
        if not name:
            self._say("Give a name: save game.sgf")
            return
        path = Path(name).expanduser()
        if path.is_dir():
            self._say(f"{path} is a folder; give the name of a file in it")
            return
        over = self._is_over
        end = None if not over else RESIGNATION if self._resigned is not None else "passes"
        winner = -self._resigned if self._resigned is not None else self._board.outcome() if over else 0
        players = [PERSON if colour in self._people else self._mind.name for colour in (1, -1)]
        head = SgfHead("a game in the terminal", path.stem, players[0], players[1], comment="")
        text = moves_to_sgf(self._rules, head, self._board.actions, winner, self._board.margin(), end)
        write_atomic(path, text.encode())
        self._num_saved = len(self._board.actions)
        self._say(f"{self._num_saved} moves are in {path}")

    def _help(self) -> None:
        for word, meaning in HELP.items():
            self._say(f"{word:>15}  {meaning}")

    def _give_up(self) -> None:
        """The person resigns, whoever's turn it is; where both are people, the one to move."""
        colour = self._board.to_play
        self._resign(colour if colour in self._people else -colour)

    def _resign(self, colour: int) -> None:
        self._check_not_over()
        self._resigned = colour
        self._say(f"{drawing.NAMES[colour]} resigns.")
        self._tell_result()

    # what the player does

    def _answer(self) -> None:
        """The player's move."""
        board = self._board
        colour = board.to_play
        self._mind.follow(board.actions)
        thought = ""
        if isinstance(self._mind, Thinker):
            found = self._mind.think(self._mind.num_simulations, None)
            action = self._mind.decide()
            line = drawing.line_text(self._rules, found.principal_variation[1:])
            thought = f"; win chance {drawing.percent(found.best_value)}, {found.visit_counts.sum()} visits"
            thought += f", expects {line}" if line else ""
        else:
            action = self._mind.choose(None)
        if action == RESIGN:
            self._resign(colour)
            return
        self._play(action)
        name = action_to_name(self._rules, action)
        self._say(f"{self._mind.name} ({drawing.NAMES[colour]}) plays {name}{thought}")

    # the screen

    def _play(self, action: int) -> None:
        self._board.play(action)
        self._is_warned = False
        self._draw()
        if self._board.is_over:
            self._tell_result()

    def _tell_result(self) -> None:
        self._say(f"The game is over: {self._result()}. `save game.sgf` keeps it, `undo` goes back, `quit` leaves.")

    def _check_not_over(self) -> None:
        if self._is_over:
            raise MoveError("the game is over; `undo` takes a move back, `quit` leaves")

    def _draw(self) -> None:
        board = self._board
        last = board.actions[-1] if board.actions and board.actions[-1] < self._rules.num_points else None
        for text in drawing.board_lines(self._rules, board.stones, last, self._in_colour):
            self._console.print(text)
        if self._rules.game == GO:
            black, white = (board.num_captured(-colour) for colour in (1, -1))
            self._say(f"captured: {black} by Black, {white} by White; area now: {self._area()}")

    def _area(self) -> str:
        margin = self._board.margin()
        return f"{'B' if margin > 0 else 'W'}+{abs(margin):g}" if margin else "0"

    @property
    def _in_colour(self) -> bool:
        return self._console.color_system is not None

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def play_in_terminal(
    mind: Mind,
    rules: Rules,
    console: Console,
    people: Collection[int] = (BLACK,),
    read_line: Callable[[str], str] = input,
) -> None:
    """Plays one game with the person at the terminal, until that person leaves.

    Args:
      mind: the player; its `begin` is called first.
      rules: the game and board.
      console: where the board is drawn; without colours it is drawn in letters.
      people: the colours that are played here; the player has the others. With both, it is there for hints.
      read_line: asks for a line; EOFError at the end of the input.
    """
    if read_line is input and sys.stdin.isatty():
        import readline  # noqa: F401 - from now on `input` edits its line and remembers the ones before
    TerminalGame(mind, rules, console, read_line, tuple(people)).run()
