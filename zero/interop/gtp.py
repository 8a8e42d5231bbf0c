"""The Go Text Protocol (GTP), version 2: any player as an engine for Sabaki, Lizzie, GoGui, twogtp or a script.

This module has the commands and the loop.

| module | purpose |
|---|---|
| `gtp_protocol` | reads lines, parses commands and their arguments, formats answers |
| `gtp_game` | the game of the controller: moves in any order of colours, komi, score |
| `gtp_setup` | handicap stones and SGF files |
| `gtp_clock` | time settings and the seconds for a move |
| `gtp_analysis` | searches that report while they run, in the format of Leela Zero |

The protocol leaves open:

- `play` and `genmove` accept any colour at any time, also after two passes; see `gtp_game`.
- Komi is any number. Score and search use it; a network keeps what it learned at the komi of its training.
- `final_score` counts areas with all stones on the board. Dead stones count as alive, so play until they are captured.
- `final_status_list` therefore lists every stone as alive.

Source: Gunnar Farneback, Specification of the Go Text Protocol, version 2, draft 2 (2002),
https://www.lysator.liu.se/~gunnar/gtp/; the README of Leela Zero for the analysis.
"""

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

from zero import __version__
from zero.data.dataset.texts import decodings
from zero.errors import ZeroError
from zero.games.coordinates import action_to_name
from zero.games.position import BLACK, GO, Rules
from zero.interop.gtp_analysis import analyse, analyse_move
from zero.interop.gtp_clock import Clock
from zero.interop.gtp_game import Game, Move, without_length_limit
from zero.interop.gtp_protocol import (
    SYNTAX_ERROR,
    AnalysisRequest,
    CommandError,
    Lines,
    format_answer,
    parse_action,
    parse_analysis,
    parse_colour,
    parse_command,
    parse_count,
    parse_number,
    parse_time_left,
    parse_time_settings,
)
from zero.interop.gtp_setup import MIN_HANDICAP, Loaded, free_handicap_points, game_of, handicap_points, load_setup
from zero.players.player import RESIGN
from zero.players.session import NetworkSession, Session

log = logging.getLogger(__name__)

PROTOCOL_VERSION = "2"
UNKNOWN_COMMAND = "unknown command"
UNACCEPTABLE_SIZE = "unacceptable size"
RESIGNATION = "resign"
GOGUI_COMMANDS = (
    "string/Final Score/final_score",
    "plist/Stones on the Board/final_status_list alive",
    "varc/Move it would play/reg_genmove %c",
)
"""Entries of GoGui's menu `Analyze`."""

UNLIMITED = 1000
"""Maximum number of arguments of a command that takes any number of them."""

Arguments = tuple[str, ...]


class Signature(NamedTuple):
    """A command's function and its number of arguments. The function returns an answer, or yields its lines."""

    run: Callable[[Arguments], str | Iterator[str]]
    min_arguments: int = 0
    max_arguments: int | None = None  # None: the same as the minimum


class GtpServer:
    """A session that is driven by GTP commands."""

    def __init__(
        self, session: Session, rules: Rules, interrupted: Callable[[float], bool] = lambda seconds: True
    ) -> None:
        """Sets up the empty board.

        Args:
          session: the player.
          rules: the game, board and komi at the start.
          interrupted: waits up to a number of seconds and returns True if the next command has come, which ends an
            analysis.
        """
        self._session = session
        self._interrupted = interrupted
        self._game = Game(without_length_limit(rules))
        self._clock = Clock()
        self.has_quit = False
        session.new_game(self._game.rules)
        self._session_rules = self._game.rules  # compared by identity: komi and length make new rules
        self._commands: dict[str, Signature] = {
            "name": Signature(lambda _: "zero"),
            # With name and digest: another network behind the same command line is another player for whoever rates it.
            "version": Signature(lambda _: f"{__version__} {session.version}"),
            "protocol_version": Signature(lambda _: PROTOCOL_VERSION),
            "known_command": Signature(self._known_command, 1),
            "list_commands": Signature(lambda _: "\n".join(self._commands)),
            "quit": Signature(self._quit),
            "boardsize": Signature(self._boardsize, 1),
            "clear_board": Signature(self._clear_board),
            "komi": Signature(self._komi, 1),
            "play": Signature(self._play, 2),
            "genmove": Signature(self._genmove, 1),
            "reg_genmove": Signature(self._reg_genmove, 1),  # GoGui, by the menu of GOGUI_COMMANDS
            "undo": Signature(self._undo),
            "time_settings": Signature(self._time_settings, 3),
            "time_left": Signature(self._time_left, 3),
            "final_score": Signature(lambda _: self._game.score()),
            "final_status_list": Signature(self._final_status_list, 1),
            "loadsgf": Signature(self._loadsgf, 1, UNLIMITED),
            "showboard": Signature(lambda _: self._game.drawing()),
            "gogui-analyze_commands": Signature(lambda _: "\n".join(GOGUI_COMMANDS)),
        }
        if rules.game == GO:
            self._commands |= {
                "fixed_handicap": Signature(self._fixed_handicap, 1),  # Lizzie, twogtp
                "place_free_handicap": Signature(self._place_free_handicap, 1),  # twogtp
                "set_free_handicap": Signature(self._set_free_handicap, 1, UNLIMITED),  # Sabaki, GoGui, twogtp
            }
        if isinstance(session, NetworkSession):
            self._commands |= {  # Lizzie, Sabaki
                "lz-analyze": Signature(partial(self._analyze, session), 0, UNLIMITED),
                "lz-genmove_analyze": Signature(partial(self._genmove_analyze, session), 0, UNLIMITED),
            }

    def run(self, name: str, arguments: Arguments) -> str | Iterator[str]:
        """Executes a command. Commands that report while they run return an iterator over the lines of the answer.

        Raises:
          ZeroError: it failed; the message is the answer, and nothing has changed.
        """
        if not name:
            raise CommandError(SYNTAX_ERROR)
        if (signature := self._commands.get(name)) is None:
            raise CommandError(UNKNOWN_COMMAND)
        maximum = signature.min_arguments if signature.max_arguments is None else signature.max_arguments
        if not signature.min_arguments <= len(arguments) <= maximum:
            raise CommandError(SYNTAX_ERROR)
        return signature.run(arguments)

    # administration

    def _known_command(self, args: Arguments) -> str:
        return "true" if args[0] in self._commands else "false"

    def _quit(self, _: Arguments) -> str:
        self.has_quit = True
        return ""

    # board and setup

    def _boardsize(self, args: Arguments) -> str:
        self._start(self._rules_for(parse_count(args[0])))
        return ""

    def _clear_board(self, _: Arguments) -> str:
        self._start(self._game.rules)
        return ""

    def _start(self, rules: Rules) -> None:
        """Starts a new game."""
        self._game = Game(rules)
        self._clock.restart()

    def _rules_for(self, size: int) -> Rules:
        """Rules on a board of this size. The session starts there at once, because its player may reject the size."""
        rules = self._game.rules_for(size)
        if rules is None or not self._session.accepts(rules):
            raise CommandError(UNACCEPTABLE_SIZE)
        if rules is not self._game.rules:
            try:
                self._new_session_game(rules)
            except ZeroError as error:
                log.warning("%s does not play on a %dx%d board: %s", self._session.name, size, size, error)
                raise CommandError(UNACCEPTABLE_SIZE) from None
        return rules

    def _komi(self, args: Arguments) -> str:
        self._game.set_komi(parse_number(args[0]))
        return ""

    def _fixed_handicap(self, args: Arguments) -> str:
        return self._place_handicap(handicap_points(self._game.rules, self._num_handicap_stones(args)))

    def _place_free_handicap(self, args: Arguments) -> str:
        return self._place_handicap(free_handicap_points(self._game.rules, self._num_handicap_stones(args)))

    def _set_free_handicap(self, args: Arguments) -> str:
        rules = self._game.rules
        self._check_empty_board()
        try:
            points = tuple(parse_action(rules, arg) for arg in args)
        except CommandError:
            raise CommandError("bad vertex list") from None
        enough = MIN_HANDICAP <= len(points) < rules.num_points
        if not enough or len(set(points)) < len(points) or rules.num_points in points:
            raise CommandError("bad vertex list")
        self._place_handicap(points)
        return ""

    def _num_handicap_stones(self, args: Arguments) -> int:
        num_stones = parse_count(args[0])
        self._check_empty_board()
        return num_stones

    def _check_empty_board(self) -> None:
        if self._game.board.stones.any():
            raise CommandError("board not empty")

    def _place_handicap(self, points: tuple[int, ...] | None) -> str:
        if not points:
            raise CommandError("invalid number of stones")
        game = Game(self._game.rules)
        game.set_up(Move(BLACK, point) for point in points)
        self._game = game
        return " ".join(action_to_name(self._game.rules, point) for point in points)

    def _loadsgf(self, args: Arguments) -> str:
        """`loadsgf FILE [MOVE]`. The file's name may contain blanks; a number at the end is that of a move."""
        before_move = None
        if len(args) > 1 and args[-1].isdecimal():
            before_move, args = parse_count(args[-1]), args[:-1]
        path = Path(" ".join(args))
        try:
            if path.is_char_device() or path.is_fifo():  # reading might never end
                raise CommandError("cannot load file: not a regular file")
            loaded = self._read_setup(path.read_bytes(), before_move)
            self._game = game_of(loaded, self._rules_for(loaded.size))
        except OSError as error:
            raise CommandError(f"cannot load file: {error.strerror}") from None
        except ZeroError as error:
            raise CommandError(f"cannot load file: {error}") from None
        self._clock.restart()
        return ""

    def _read_setup(self, data: bytes, before_move: int | None) -> Loaded:
        """The position in a file, in the first character set in which it can be read."""
        errors = []
        for text in decodings(data):
            try:
                return load_setup(text, self._game.rules.game, before_move)
            except ZeroError as error:
                errors.append(error)
        raise errors[0]

    # moves

    def _play(self, args: Arguments) -> str:
        colour = parse_colour(args[0])
        self._game.play(Move(colour, parse_action(self._game.rules, args[1])))
        return ""

    def _undo(self, _: Arguments) -> str:
        self._game.undo()
        return ""

    def _genmove(self, args: Arguments) -> str:
        colour = parse_colour(args[0])
        started = time.perf_counter()
        action = self._choose(colour)
        self._clock.spend(colour, time.perf_counter() - started)
        return self._play_own(colour, action)

    def _reg_genmove(self, args: Arguments) -> str:
        return self._name(self._choose(parse_colour(args[0])))

    def _choose(self, colour: int) -> int:
        """Action that the player chooses for a colour, within the time of the clock."""
        self._update_session(colour)
        return self._session.choose(self._seconds(colour))

    def _play_own(self, colour: int, action: int) -> str:
        """Plays an action of the player; returns the answer."""
        if action == RESIGN:
            return RESIGNATION
        try:
            self._game.play(Move(colour, action))
        except CommandError:  # another program's move; the search makes legal moves only
            raise CommandError(f"{self._session.name} answered {self._name(action)}, which is illegal") from None
        return self._name(action)

    def _name(self, action: int) -> str:
        return RESIGNATION if action == RESIGN else action_to_name(self._game.rules, action)

    def _seconds(self, colour: int) -> float | None:
        return self._clock.seconds_for_move(colour, self._game.rules.num_points, len(self._game.moves))

    def _update_session(self, colour: int) -> None:
        """Brings the session to the position, with a colour to move."""
        actions = self._game.actions(colour)
        if self._session_rules is not self._game.rules:
            self._new_session_game(self._game.rules)
        self._session.set_position(actions, self._game.ends_with_filler_pass(actions))

    def _new_session_game(self, rules: Rules) -> None:
        self._session.new_game(rules)
        self._session_rules = rules

    # time

    def _time_settings(self, args: Arguments) -> str:
        self._clock.configure(parse_time_settings(args))
        return ""

    def _time_left(self, args: Arguments) -> str:
        self._clock.set_left(*parse_time_left(args))
        return ""

    # analysis and score

    def _analyze(self, session: NetworkSession, args: Arguments) -> Iterator[str]:
        request = parse_analysis(args)
        self._update_session(self._colour(request))
        return analyse(session, self._game.rules, request, self._interrupted)

    def _genmove_analyze(self, session: NetworkSession, args: Arguments) -> Iterator[str]:
        request = parse_analysis(args)
        colour = self._colour(request)
        self._update_session(colour)
        started = time.perf_counter()
        yield from analyse_move(session, self._game.rules, request, self._seconds(colour))
        self._clock.spend(colour, time.perf_counter() - started)
        yield f"play {self._play_own(colour, session.best_action())}"

    def _colour(self, request: AnalysisRequest) -> int:
        return self._game.to_play if request.colour is None else request.colour

    def _final_status_list(self, args: Arguments) -> str:
        if args[0] not in ("alive", "dead", "seki"):
            raise CommandError(SYNTAX_ERROR)
        chains = self._game.board.chains() if args[0] == "alive" else []
        return "\n".join(" ".join(action_to_name(self._game.rules, point) for point in chain) for chain in chains)


def serve_gtp(session: Session, rules: Rules, commands: IO[Any], answers: TextIO) -> None:
    """Answers commands until `quit`, until the input ends, or until no one reads the answers.

    Args:
      session: the player.
      rules: the game, board and komi at the start.
      commands: input; it is read from its file descriptor, so pass `sys.stdin` unread.
      answers: output.
    """
    lines = Lines(commands)
    try:
        _serve(lines, answers, GtpServer(session, rules, lines.wait))
    except (BrokenPipeError, KeyboardInterrupt):
        return


def _serve(lines: Lines, answers: TextIO, engine: GtpServer) -> None:
    def write(text: str) -> None:
        answers.write(text)
        answers.flush()

    while not engine.has_quit:
        if (line := lines.next()) is None:
            return
        if (command := parse_command(line)) is None:
            continue
        try:
            result = engine.run(command.name, command.arguments)
            if isinstance(result, str):
                write(format_answer("=", command.id, result))
                continue
            first = next(result, None)  # if this fails, the answer can still begin with `?`
        except ZeroError as error:
            write(format_answer("?", command.id, str(error)))
            continue
        write(f"={command.id}\n")
        try:
            for row in chain([] if first is None else [first], result):
                write(f"{row}\n")
        except ZeroError as error:
            log.warning("%s ended early: %s", command.name, error)  # the answer has begun and cannot become a failure
        write("\n")
