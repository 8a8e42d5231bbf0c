"""Games against a program that speaks GTP: an engine a game, what it is told, and what becomes of its faults.

Each game has an engine of its own, started for it and ended with it, so that nothing is carried from game to game and
none can spoil another. What an engine does wrong (`gtp_process`) forfeits its game with the reason. Moves are sent when
the engine is to move, all since its last one; its own are on its board already.
"""

import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from zero.errors import OpponentError
from zero.games.coordinates import action_to_name, name_to_action
from zero.games.position import Rules
from zero.players.base import RESIGN, PlayerId, Reply
from zero.players.gtp_process import EngineError, GtpEngine
from zero.search.streams import stream_of

SEED = "{seed}"
"""In a command line: a number of its own for each game, so that a match can be repeated."""
MAX_SEED = 2**31 - 1
"""What a C `int` holds; 0 is left out, which to GNU Go means the clock."""


class Program(NamedTuple):
    """How an engine is started."""

    command: tuple[str, ...]  # SEED stands for the seed of the game
    home: tempfile.TemporaryDirectory[str] | None = None  # a home folder of its own, removed with the player


class Limits(NamedTuple):
    """What a player may take."""

    move_seconds: float  # of each answer
    num_processes: int  # engines that think at once


def start_engine(program: Program, seed: int, seconds: float) -> GtpEngine:
    """The engine of one game.

    Raises:
      OpponentError: there is no such program.
    """
    command = [word.replace(SEED, str(seed)) for word in program.command]
    return GtpEngine(command, {"HOME": program.home.name} if program.home else None, seconds)


def set_up(engine: GtpEngine, rules: Rules) -> None:
    """Sets up the empty board.

    Raises:
      EngineError: the engine does not know the size, or fails.
    """
    engine.ask(f"boardsize {rules.rows}")
    engine.ask(f"komi {rules.komi:g}")
    engine.ask("clear_board")


def game_seed(seed: int, game: int) -> int:
    """The seed of an engine's random numbers in a game: 1 to 2^31 - 1."""
    return int(stream_of(seed, 0, "gtp", game)[0]) % MAX_SEED + 1


class GtpPlayer:
    """An engine a game; `num_processes` of them think at once."""

    def __init__(self, player: PlayerId, program: Program, rules: Rules, limits: Limits, seed: int) -> None:
        self.player = player
        self._program, self._rules, self._limits, self._seed = program, rules, limits, seed
        self._games: dict[int, _Game] = {}
        self._threads = ThreadPoolExecutor(limits.num_processes, thread_name_prefix="gtp")

    def begin(self, games: Sequence[int]) -> None:
        """Starts an engine for each of these games. What goes wrong in an engine is told by `choose`.

        Raises:
          OpponentError: this machine has no room for so many.
        """
        for _ in self._threads.map(self._open, games):
            pass

    def choose(self, games: Sequence[int]) -> list[Reply]:
        """Asks the engines of these games for their moves."""
        return list(self._threads.map(lambda game: self._games[game].choose(), games))

    def play(self, game: int, action: int) -> None:
        """Notes a move of either player; the engine hears of it when it is to move."""
        self._games[game].actions.append(action)

    def end(self, game: int) -> None:
        """Ends the game's engine."""
        self._games.pop(game).close()

    def close(self) -> None:
        """Ends all engines."""
        for game in self._games.values():
            game.kill()  # so that no thread waits for an answer
        self._threads.shutdown()
        for game in self._games.values():
            game.close()
        self._games.clear()
        if self._program.home:
            self._program.home.cleanup()

    def _open(self, game: int) -> None:
        opened = self._games[game] = _Game(self._rules)
        opened.start(self._program, game_seed(self._seed, game), self._limits.move_seconds)


class _Game:
    """One game and its engine."""

    def __init__(self, rules: Rules) -> None:
        self.actions: list[int] = []
        self._rules = rules
        self._told: list[int] = []  # moves on the engine's board, its answer included
        self._engine: GtpEngine | None = None
        self._reply: Reply | None = None
        self._replied_at = -1  # moves before that reply
        self._asking = threading.Lock()

    def start(self, program: Program, seed: int, seconds: float) -> None:
        self._engine = start_engine(program, seed, seconds)
        try:
            set_up(self._engine, self._rules)
        except EngineError as error:
            self._reply = self._fault(error)

    def choose(self) -> Reply:
        """The engine's move in this position; the same if it is asked again.

        Who asked may have been interrupted while the engine thinks: the next one waits for that answer.
        """
        with self._asking:
            if self._reply and (self._reply.fault or self._replied_at == len(self.actions)):
                return self._reply
            moves = len(self.actions)
            try:
                self._reply = self._ask()
            except EngineError as error:
                self._reply = self._fault(error)
            self._replied_at = moves
            return self._reply

    def kill(self) -> None:
        """Ends the engine from another thread."""
        if self._engine:
            self._engine.kill()

    def close(self) -> None:
        """Ends the engine."""
        if self._engine:
            self._engine.close()
            self._engine = None

    def _ask(self) -> Reply:
        """Brings the engine's board up to date and has it move."""
        assert self._engine
        if self.actions[: len(self._told)] != self._told:  # its answer was not what was played
            self._engine.ask("clear_board")
            self._told = []
        for number in range(len(self._told), len(self.actions)):
            action = self.actions[number]
            self._engine.ask(f"play {_colour(number)} {action_to_name(self._rules, action)}")
            self._told.append(action)
        answer = self._engine.ask(f"genmove {_colour(len(self._told))}")
        if answer.lower() == "resign":
            return Reply(RESIGN)
        try:
            action = name_to_action(self._rules, answer)
        except ValueError as error:
            raise EngineError(f"{self._engine.name} answered `genmove` with nonsense: {error}") from None
        self._told.append(action)
        return Reply(action)

    def _fault(self, error: OpponentError) -> Reply:
        """The reply of a game that its engine cannot go on with."""
        if self._engine:
            self._engine.kill()
        return Reply(fault=str(error))


def _colour(number: int) -> str:
    """Who makes move `number`, the first being 0."""
    return "white" if number % 2 else "black"
