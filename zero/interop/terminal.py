"""`zero play`: a game in the terminal, of a person against any player or of two people with a player that gives hints.

Only `quit`, the end of the input, or Ctrl-C twice ends the game; wrong input never does.
"""

import sys
from collections.abc import Callable, Collection
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console

from zero.data.sgf import SgfHead, moves_to_sgf, result
from zero.errors import MoveError, ZeroError
from zero.games.coordinates import action_to_name, name_to_action
from zero.games.position import BLACK, GO, Rules
from zero.games.rules import TRAITS
from zero.interop import drawing
from zero.interop.gtp_analysis import reported_moves
from zero.players.board import Board
from zero.players.player import RESIGN
from zero.players.session import NetworkSession, Session
from zero.storage.files import write_atomic
from zero.storage.manifests import RESIGNATION

HELP = {
    "D4": "play at this point",
    "pass": "pass; two passes end a game of Go",
    "undo": "take back your last move and the player's reply",
    "hint": "show the move that the player would make in your place",
    "thoughts": "show its best moves, the expected replies, and a map of its visits",
    "score": "show the score as the board is now",
    "resign": "resign the game",
    "save game.sgf": "write the game to a file",
    "board": "draw the board again",
    "help": "show this list",
    "quit": "leave; Ctrl-D does the same",
}
PERSON = "a person"


class TerminalGame:
    """One game at a terminal."""

    def __init__(
        self,
        session: Session,
        rules: Rules,
        console: Console,
        people: Collection[int] = (BLACK,),
        read_line: Callable[[str], str] = input,
    ) -> None:
        """Sets up the empty board.

        Args:
          session: the player.
          rules: the game and board.
          console: output; without colours the board is drawn in letters.
          people: colours that the person plays; the player has the others. With both, the player only gives hints.
          read_line: prompts for a line; raises EOFError at the end of the input.
        """
        self._session, self._rules, self._console, self._read_line = session, rules, console, read_line
        self._people = people
        self._board = Board(rules)
        self._resigned: int | None = None  # colour that resigned
        self._num_saved = 0  # number of moves in the saved file
        self._is_warned = False  # that the game is not saved
        self._commands: dict[str, Callable[[str], None]] = {
            "undo": lambda _: self._undo(),
            "hint": lambda _: self._hint(),
            "thoughts": lambda _: self._thoughts(),
            "score": lambda _: self._score(),
            "resign": lambda _: self._resign_person(),
            "save": self._save,
            "board": lambda _: self._draw(),
            "help": lambda _: self._help(),
        }
        session.new_game(rules)

    def run(self) -> None:
        """Plays until the person quits."""
        if self._read_line is input:
            if isinstance(sys.stdin, TextIOWrapper):
                # Wrong bytes are a wrong command, not the end of the game.
                sys.stdin.reconfigure(errors="backslashreplace")
            if sys.stdin.isatty():
                import readline  # noqa: F401 - the import makes `input` edit lines and keep a history
        self._draw()
        self._say("Type a point such as D4, or help.")
        prompts = False  # a prompt although it is the player's turn, because it failed or was interrupted
        while True:
            try:
                if not prompts and not self._is_over and self._board.to_play not in self._people:
                    self._move()
                    continue
                prompts = False
                line = self._read_line(self._prompt())
                if line.strip().lower() in ("quit", "exit"):
                    break
                self._execute(line)
            except EOFError:
                self._say("")
                break
            except KeyboardInterrupt:
                self._say("")
                if self._is_warned or not self._is_unsaved:
                    break
                prompts = self._is_warned = True
                self._say("The game is not saved. `save game.sgf` saves it; Ctrl-C once more leaves.")
            except ZeroError as error:
                self._say(str(error))
                prompts = self._board.to_play not in self._people
        if self._is_unsaved:
            moves = len(self._board.actions)
            self._say(
                f"Left after {moves} moves. The game or its result is not saved; use `save game.sgf` before you leave."
            )

    # state of the game

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

    # commands of the person

    def _execute(self, line: str) -> None:
        """Executes one line of input."""
        name, _, argument = line.strip().partition(" ")
        if not name:
            return
        if command := self._commands.get(name.lower()):
            self._is_warned = self._is_warned and name.lower() != "save"
            command(argument.strip())
            return
        try:
            action = name_to_action(self._rules, line)
        except ValueError as error:
            self._say(f"{error}; `help` lists the commands")
            return
        if self._resigned is not None:
            raise MoveError("the game is over by resignation; `undo` continues it")
        self._play(action)

    def _undo(self) -> None:
        actions, self._is_warned = self._board.actions, False
        if self._resigned in self._people:  # only the resignation is taken back
            self._resigned = None
            self._draw()
            return
        first = 0 if BLACK in self._people else 1
        turns = [turn for turn in range(len(actions)) if len(self._people) > 1 or turn % 2 == first]
        if not turns:
            self._say("You have not played a move that could be taken back.")
            return
        self._resigned = None
        self._board = Board(self._rules, actions[: turns[-1]])
        self._num_saved = 0  # the saved file is of another game now
        self._draw()

    def _hint(self) -> None:
        self._check_not_over()
        self._session.set_position(self._board.actions)
        if isinstance(self._session, NetworkSession):
            result = self._session.search(self._session.num_simulations, None)
            best = result.ranking()[0]
            line = drawing.variation_text(self._rules, self._session.principal_variation(best))
            chance = drawing.percent(result.best_value)
            self._say(f"{action_to_name(self._rules, best)}, win chance {chance}; then: {line}")
            return
        action = self._session.choose(None)
        self._say("I would resign." if action == RESIGN else action_to_name(self._rules, action))

    def _thoughts(self) -> None:
        self._check_not_over()
        session = self._session
        if not isinstance(session, NetworkSession):
            self._say(f"{session.name} cannot show its search; `hint` shows the move it would make")
            return
        session.set_position(self._board.actions)
        result = session.search(session.num_simulations, None)
        variations = {
            action: session.principal_variation(action) for action in reported_moves(result, drawing.MAX_MOVES)
        }
        self._console.print(drawing.moves_table(self._rules, result, variations, self._board.to_play))
        for text in drawing.heat_lines(self._rules, self._board.stones, result.visit_counts, self._in_colour):
            self._console.print(text)

    def _score(self) -> None:
        if self._rules.game == GO:
            self._say(f"{self._board.margin_text()} with komi {self._rules.komi:g}; all stones count as alive")
        elif TRAITS[self._rules.game].has_score:
            self._say(self._board.margin_text())
        else:
            self._say("This game has no score.")

    def _save(self, name: str) -> None:
        if not name:
            self._say("`save` needs a file name, such as save game.sgf")
            return
        try:
            path = Path(name).expanduser()
            is_folder = path.is_dir()
        except (OSError, RuntimeError) as error:  # a name that is too long, a closed folder, an unknown ~user
            reason = error.strerror if isinstance(error, OSError) else error
            raise ZeroError(f"cannot save to {name}: {reason}; give another file") from None
        if is_folder:
            self._say(f"{path} is a folder; give the name of a file in it")
            return
        over = self._is_over
        end = None if not over else RESIGNATION if self._resigned is not None else "passes"
        winner = -self._resigned if self._resigned is not None else self._board.outcome() if over else 0
        players = [PERSON if colour in self._people else self._session.name for colour in (1, -1)]
        head = SgfHead("a game in the terminal", path.stem, players[0], players[1], comment="")
        text = moves_to_sgf(self._rules, head, self._board.actions, winner, self._board.margin(), end)
        write_atomic(path, text.encode())
        self._num_saved = len(self._board.actions)
        self._say(f"saved {self._num_saved} moves to {path}")

    def _help(self) -> None:
        for command, meaning in HELP.items():
            self._say(f"{command:>15}  {meaning}")

    def _resign_person(self) -> None:
        """The person resigns, also in the player's turn. Of two people, the one to move resigns."""
        colour = self._board.to_play
        self._resign(colour if colour in self._people else -colour)

    def _resign(self, colour: int) -> None:
        self._check_not_over()
        self._resigned = colour
        self._num_saved = 0  # the saved file lacks the result
        self._say(f"{drawing.NAMES[colour]} resigns.")
        self._show_result()

    # moves of the player

    def _move(self) -> None:
        """Searches and plays the player's move."""
        board, session = self._board, self._session
        colour = board.to_play
        session.set_position(board.actions)
        comment = ""
        if isinstance(session, NetworkSession):
            result = session.search(session.num_simulations, None)
            action = session.best_action()
            line = drawing.variation_text(self._rules, session.principal_variation(result.ranking()[0])[1:])
            comment = f"; win chance {drawing.percent(result.best_value)}, {result.visit_counts.sum()} visits"
            comment += f", expects {line}" if line else ""
        else:
            action = session.choose(None)
        if action == RESIGN:
            self._resign(colour)
            return
        self._play(action)
        name = action_to_name(self._rules, action)
        self._say(f"{session.name} ({drawing.NAMES[colour]}) plays {name}{comment}")

    # output

    def _play(self, action: int) -> None:
        self._board.play(action)
        self._is_warned = False
        self._draw()
        if self._board.is_over:
            self._show_result()

    def _show_result(self) -> None:
        self._say(
            f"The game is over: {self._result()}. `save game.sgf` saves it, `undo` takes a move back, `quit` leaves."
        )

    def _check_not_over(self) -> None:
        if self._is_over:
            raise MoveError("the game is over; `undo` takes a move back, `quit` leaves")

    def _draw(self) -> None:
        board = self._board
        for text in drawing.board_lines(self._rules, board.stones, board.actions[-1:], self._in_colour):
            self._console.print(text)
        if self._rules.game == GO:
            black, white = (board.num_captured(-colour) for colour in (1, -1))
            self._say(f"captured: {black} by Black, {white} by White; area now: {self._board.margin_text()}")

    @property
    def _in_colour(self) -> bool:
        return self._console.color_system is not None and not self._console.no_color

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
