"""The commands of the protocol, and those of analysis, around one mind.

Not for the text of the protocol (`protocol`) nor the loop (`serve`). Where the protocol leaves it open:

- `play` and `genmove` take any colour at any time, and go on after two passes: `moves`.
- Komi is any number; a network that learned at one komi is not told of another, only the score is.
- `final_score` counts areas as the stones stand, so dead stones count as alive: play on until they are gone.
- `final_status_list` accordingly: every stone is alive.
"""

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from zero import __version__
from zero.errors import ZeroError
from zero.games.coordinates import action_to_name
from zero.games.position import BLACK, GO, Rules
from zero.interop.gtp import arguments, handicap
from zero.interop.gtp.analysis import kata_line, leela_zero_line
from zero.interop.gtp.arguments import SYNTAX_ERROR, AnalysisWish
from zero.interop.gtp.clock import Clock
from zero.interop.gtp.game import Game, endless
from zero.interop.gtp.moves import Move
from zero.interop.gtp.protocol import CommandError
from zero.interop.gtp.setup import game_of, load_setup, read_text
from zero.interop.gtp.thinking import Line, analyse, think_of_move
from zero.players.base import RESIGN
from zero.players.single_game import Mind, Thinker

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
"""For GoGui's menu `Analyze`."""

MANY = 1000
"""Arguments of a command that takes any number of them."""

Words = tuple[str, ...]


class Signature(NamedTuple):
    """A command: what it does, and how many arguments it takes. Its answer comes whole or line by line."""

    run: Callable[[Words], str | Iterator[str]]
    least: int = 0
    most: int | None = None  # None: as many as `least`


class Engine:
    """One player at one board, driven by commands."""

    def __init__(
        self,
        mind: Mind,
        rules: Rules,
        interrupted: Callable[[float], bool] = lambda seconds: True,
        name: str = "zero",
        version: str = __version__,
    ) -> None:
        """An empty board.

        Args:
          mind: who plays.
          rules: the game, board and komi at the start.
          interrupted: waits so many seconds at most, and says whether a next command has come; it ends an analysis.
          name: what the engine calls itself.
          version: and its version.
        """
        self._mind = mind
        self._interrupted = interrupted
        self._game = Game(endless(rules))
        self._clock = Clock()
        self.has_quit = False
        mind.begin(self._game.rules)
        self._rules_of_mind = self._game.rules
        answers = {"name": name, "version": version, "protocol_version": PROTOCOL_VERSION}
        self._commands: dict[str, Signature] = {
            **{key: Signature(partial(_say, text)) for key, text in answers.items()},
            "known_command": Signature(self._known_command, 1),
            "list_commands": Signature(lambda _: "\n".join(self._commands)),
            "quit": Signature(self._quit),
            "boardsize": Signature(self._boardsize, 1),
            "clear_board": Signature(self._clear_board),
            "komi": Signature(self._komi, 1),
            "play": Signature(self._play, 2),
            "genmove": Signature(self._genmove, 1),
            "reg_genmove": Signature(self._reg_genmove, 1),
            "undo": Signature(self._undo),
            "time_settings": Signature(self._time_settings, 3),
            "kgs-time_settings": Signature(self._kgs_time_settings, 1, 4),
            "time_left": Signature(self._time_left, 3),
            "final_score": Signature(lambda _: self._game.score()),
            "final_status_list": Signature(self._final_status_list, 1),
            "loadsgf": Signature(self._loadsgf, 1, MANY),
            "showboard": Signature(lambda _: self._game.drawing()),
            "gogui-analyze_commands": Signature(lambda _: "\n".join(GOGUI_COMMANDS)),
        }
        if rules.game == GO:
            self._commands |= {
                "fixed_handicap": Signature(self._fixed_handicap, 1),
                "place_free_handicap": Signature(self._place_free_handicap, 1),
                "set_free_handicap": Signature(self._set_free_handicap, 1, MANY),
            }
        if isinstance(mind, Thinker):
            for prefix, line in (("lz", leela_zero_line), ("kata", kata_line)):
                analyze = partial(self._analyze, mind, line)
                genmove = partial(self._genmove_analyze, mind, line)
                self._commands[f"{prefix}-analyze"] = Signature(analyze, 0, MANY)
                self._commands[f"{prefix}-genmove_analyze"] = Signature(genmove, 0, MANY)

    def run(self, name: str, words: Words) -> str | Iterator[str]:
        """Does a command. An answer of many lines that takes its time comes as an iterator.

        Raises:
          ZeroError: it cannot be done; the message is the answer, and nothing has changed.
        """
        if not name:
            raise CommandError(SYNTAX_ERROR)
        if (signature := self._commands.get(name)) is None:
            raise CommandError(UNKNOWN_COMMAND)
        most = signature.least if signature.most is None else signature.most
        if not signature.least <= len(words) <= most:
            raise CommandError(SYNTAX_ERROR)
        return signature.run(words)

    # the session

    def _known_command(self, words: Words) -> str:
        return "true" if words[0] in self._commands else "false"

    def _quit(self, _: Words) -> str:
        self.has_quit = True
        return ""

    # the board

    def _boardsize(self, words: Words) -> str:
        self._start(self._rules_for(arguments.whole_number(words[0])))
        return ""

    def _clear_board(self, _: Words) -> str:
        self._start(self._game.rules)
        return ""

    def _start(self, rules: Rules) -> None:
        """A new game."""
        self._game = Game(rules)
        self._clock.restart()

    def _rules_for(self, size: int) -> Rules:
        """The rules on a board of a size; the mind begins there, if it has not: another engine may refuse it."""
        rules = self._game.rules_for(size)
        if rules is None or not self._mind.accepts(rules):
            raise CommandError(UNACCEPTABLE_SIZE)
        if rules is not self._game.rules:
            try:
                self._begin(rules)
            except ZeroError as error:
                log.warning("%s does not play on a board of %d: %s", self._mind.name, size, error)
                raise CommandError(UNACCEPTABLE_SIZE) from None
        return rules

    def _komi(self, words: Words) -> str:
        self._game.set_komi(arguments.number(words[0]))
        return ""

    def _fixed_handicap(self, words: Words) -> str:
        wanted = self._handicap_stones(words)
        points = handicap.fixed_points(self._game.rules, wanted)
        if points is None:
            raise CommandError("invalid number of stones")
        return self._place_handicap(points)

    def _place_free_handicap(self, words: Words) -> str:
        wanted = self._handicap_stones(words)
        points = handicap.free_points(self._game.rules, wanted)
        if wanted < handicap.MIN_STONES or not points:
            raise CommandError("invalid number of stones")
        return self._place_handicap(points)

    def _set_free_handicap(self, words: Words) -> str:
        rules = self._game.rules
        self._handicap_stones(("0",))
        try:
            points = tuple(arguments.action_of(rules, word) for word in words)
        except CommandError:
            raise CommandError("bad vertex list") from None
        enough = handicap.MIN_STONES <= len(points) < rules.num_points
        if not enough or len(set(points)) < len(points) or rules.num_points in points:
            raise CommandError("bad vertex list")
        self._place_handicap(points)
        return ""

    def _handicap_stones(self, words: Words) -> int:
        """Their number, on a board that can take them."""
        wanted = arguments.whole_number(words[0])
        if self._game.board.stones.any():
            raise CommandError("board not empty")
        return wanted

    def _place_handicap(self, points: tuple[int, ...]) -> str:
        game = Game(self._game.rules)
        game.set_up(Move(BLACK, point) for point in points)
        self._game = game
        return " ".join(action_to_name(self._game.rules, point) for point in points)

    def _loadsgf(self, words: Words) -> str:
        """A name with blanks in it is put together again; a last word that is a number is that of a move."""
        before_move = None
        if len(words) > 1 and words[-1].isdecimal():
            before_move, words = arguments.whole_number(words[-1]), words[:-1]
        try:
            loaded = load_setup(read_text(Path(" ".join(words))), self._game.rules.game, before_move)
            self._game = game_of(loaded, self._rules_for(loaded.size))
        except ZeroError as error:
            raise CommandError(f"cannot load file: {error}") from None
        self._clock.restart()
        return ""

    # moves

    def _play(self, words: Words) -> str:
        colour = arguments.colour_of(words[0])
        self._game.play(Move(colour, arguments.action_of(self._game.rules, words[1])))
        return ""

    def _undo(self, _: Words) -> str:
        self._game.undo()
        return ""

    def _genmove(self, words: Words) -> str:
        colour = arguments.colour_of(words[0])
        started = time.perf_counter()
        action = self._choose(colour)
        self._clock.use(colour, time.perf_counter() - started)
        return self._played(colour, action)

    def _reg_genmove(self, words: Words) -> str:
        return self._name(self._choose(arguments.colour_of(words[0])))

    def _choose(self, colour: int) -> int:
        """The action that the mind would play for a colour, with the time that its clock has."""
        self._tell_mind(colour)
        return self._mind.choose(self._seconds(colour))

    def _played(self, colour: int, action: int) -> str:
        if action == RESIGN:
            return RESIGNATION
        try:
            self._game.play(Move(colour, action))
        except CommandError:
            raise CommandError(f"{self._mind.name} answered {self._name(action)}, which is illegal") from None
        return self._name(action)

    def _name(self, action: int) -> str:
        return RESIGNATION if action == RESIGN else action_to_name(self._game.rules, action)

    def _seconds(self, colour: int) -> float | None:
        return self._clock.seconds_for_move(colour, self._game.rules.num_points, len(self._game.moves))

    def _tell_mind(self, colour: int) -> None:
        """Brings the mind to the position, with a colour to move."""
        actions = self._game.actions(colour)
        if self._rules_of_mind is not self._game.rules:
            self._begin(self._game.rules)
        self._mind.follow(actions, self._game.ends_as_played(actions))

    def _begin(self, rules: Rules) -> None:
        self._mind.begin(rules)
        self._rules_of_mind = rules

    # time

    def _time_settings(self, words: Words) -> str:
        self._clock.set(arguments.time_settings(words))
        return ""

    def _kgs_time_settings(self, words: Words) -> str:
        self._clock.set(arguments.kgs_time_settings(words))
        return ""

    def _time_left(self, words: Words) -> str:
        self._clock.tell(*arguments.time_left(words))
        return ""

    # what it thinks

    def _analyze(self, mind: Thinker, line: Line, words: Words) -> Iterator[str]:
        wish = arguments.analysis_wish(words)
        self._tell_mind(self._game.to_play if wish.colour is None else wish.colour)
        return analyse(mind, self._game.rules, line, wish, self._interrupted)

    def _genmove_analyze(self, mind: Thinker, line: Line, words: Words) -> Iterator[str]:
        wish = arguments.analysis_wish(words)
        colour = self._game.to_play if wish.colour is None else wish.colour
        self._tell_mind(colour)
        return self._thought_and_played(mind, line, wish, colour)

    def _thought_and_played(self, mind: Thinker, line: Line, wish: AnalysisWish, colour: int) -> Iterator[str]:
        started = time.perf_counter()
        yield from think_of_move(mind, self._game.rules, line, wish, self._seconds(colour))
        self._clock.use(colour, time.perf_counter() - started)
        yield f"play {self._played(colour, mind.decide())}"

    def _final_status_list(self, words: Words) -> str:
        if words[0] not in ("alive", "dead", "seki"):
            raise CommandError(SYNTAX_ERROR)
        chains = self._game.board.chains() if words[0] == "alive" else []
        return "\n".join(" ".join(action_to_name(self._game.rules, point) for point in chain) for chain in chains)


def _say(text: str, _: Words) -> str:
    return text
