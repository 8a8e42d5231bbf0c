"""Programs that speak GTP as players of Go: GNU Go, Leela Zero, or any other by its command line.

Each game has its own engine process, which starts and ends with it. So no state passes from game to game, and an engine
that fails forfeits one game only (the faults: `gtp_process`). When an engine is to move, it first receives the moves
since its last one; its own moves are on its board already.
"""

import os
import shlex
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from zero.errors import OpponentError
from zero.games.coordinates import action_to_name, name_to_action
from zero.games.position import GO, Rules
from zero.players.gtp_process import ANSWER_SECONDS, EngineError, GtpEngine, program_path
from zero.players.player import RESIGN, PlayerId, Reply
from zero.search.streams import stream_of
from zero.storage.files import sha256_file

SEED = "{seed}"
"""Placeholder in a command line for the seed of a game, so that a match can be repeated."""
MAX_SEED = 2**31 - 1
"""Largest C `int`. Seeds begin at 1, because GNU Go takes 0 as the clock."""
ENGINE_NAME = "{name}"
"""Placeholder in a player's name for the engine's own name and version."""
MAX_NAME = 120
DIGEST_DIGITS = 8

Settings = dict[str, str | int | float | bool]


class Program(NamedTuple):
    """How the engine of a game is started."""

    command: tuple[str, ...]  # SEED stands for the seed of the game
    home: tempfile.TemporaryDirectory[str] | None = None  # home folder of the engines, removed with the player


def gtp_program(command: Sequence[str], rules: Rules, seed: int = 0) -> "GtpPlayer":
    """Any program that speaks GTP.

    Args:
      command: the program and its arguments; `{seed}` in them is replaced by the seed of the game.
      rules: Go on a square board.
      seed: seed from which the seeds of the games are derived.

    Raises:
      OpponentError: there is no such program, it does not speak GTP, or it cannot play this game.
    """
    program = Program(tuple(command))
    return _new_player(program, shlex.join(command), rules, seed, ENGINE_NAME, file_digests(command))


def file_digests(command: Sequence[str]) -> Settings:
    """SHA-256 of each file that a command line names, also after a `=` or before a `,`, and of the program itself.

    With them, the same command line with other weights or another program is another player.
    """
    parts = ((each, each.partition("=")[2], each.partition(",")[0]) for each in command)
    names = [part for found in parts for part in found if part]
    paths = {name: (program_path(name) if name == command[0] else None) or name for name in names}
    digests = [
        f"{sha256_file(Path(path))} {name}"
        for name, path in paths.items()
        if os.path.isfile(path) and os.access(path, os.R_OK)
    ]
    return {"files": ", ".join(digests)} if digests else {}


def gnugo(level: int, rules: Rules, seed: int = 0) -> "GtpPlayer":
    """GNU Go at a level from 0 to 20 (its default is 10), with area scoring and positional superko.

    It may resign. It does so late: if it would pass and considers all its stones dead, and at 19x19 also if it is more
    than 45 points behind and no fight is left.

    Raises:
      OpponentError: it is not installed, or cannot play this game.
    """
    if program_path("gnugo") is None:
        raise OpponentError("GNU Go is not installed; install it (Debian and Ubuntu: `apt install gnugo`)")
    suicide = "--allow-all-suicide" if rules.allow_suicide else "--forbid-suicide"
    options = f"--mode gtp --chinese-rules --positional-superko --capture-all-dead {suicide}".split()
    command = ("gnugo", *options, "--level", str(level), "--seed", SEED)
    program = Program(command)
    return _new_player(program, shlex.join(command), rules, seed, f"{ENGINE_NAME} level {level}", {"level": level})


def leelaz(weights: Path, num_playouts: int, rules: Rules, seed: int = 0) -> "GtpPlayer":
    """Leela Zero on one CPU thread, with a weight file in its format and a number of playouts for each move.

    It plays the most visited move, does not search in the other player's time and never resigns.

    Raises:
      OpponentError: the program or the weights are missing or unusable, or it cannot play this game.
    """
    if program_path("leelaz") is None:
        raise OpponentError("Leela Zero is not installed; install it (Debian and Ubuntu: `apt install leela-zero`)")
    if not weights.is_file():
        raise OpponentError(f"cannot find the weight file {weights}; give the path of text weights of Leela Zero")
    digest = sha256_file(weights)
    options = f"--gtp --cpu-only --threads 1 --playouts {num_playouts} --randomcnt 0 --resignpct 0 --noponder".split()
    command = ("leelaz", *options, "--timemanage", "off", "--seed", SEED, "--weights")
    home = tempfile.TemporaryDirectory(prefix="leelaz-")  # it reads and writes settings in its home folder
    program = Program((*command, str(weights)), home)
    shown = shlex.join([*command, weights.name])  # without the folder: the digest identifies the weights
    name = f"{ENGINE_NAME}, {num_playouts} playouts, weights {digest[:DIGEST_DIGITS]}"
    try:
        return _new_player(program, shown, rules, seed, name, {"weights": digest, "playouts": num_playouts})
    except BaseException:
        home.cleanup()
        raise


def _new_player(program: Program, shown: str, rules: Rules, seed: int, name: str, settings: Settings) -> "GtpPlayer":
    """Starts the engine once, to learn its name and to check that it plays this game, and makes the player."""
    if rules.game != GO or rules.rows != rules.columns:
        raise OpponentError("GTP engines play Go on square boards only; choose another player for this game")
    with start_engine(program, game_seed(seed, 0)) as engine:
        try:
            engine.request("protocol_version")
            engine_name = f"{engine.request('name')} {engine.request('version')}".replace("\n", " ").strip()[:MAX_NAME]
        except EngineError as error:
            raise OpponentError(
                f"`{shown}` does not speak GTP: {error}; give the command line of an engine, as `gnugo --mode gtp`"
            ) from None
        try:
            set_up(engine, rules)
        except EngineError as error:
            raise OpponentError(
                f"{engine_name} cannot play on {rules.rows}x{rules.columns}: {error}; choose a size it supports"
            ) from None
    settings = {"command": shown, "engine": engine_name, "move_seconds": ANSWER_SECONDS, **settings}
    player_id = PlayerId(name=name.replace(ENGINE_NAME, engine_name), kind="gtp", settings=settings)
    return GtpPlayer(player_id, program, rules, seed)


def start_engine(program: Program, seed: int) -> GtpEngine:
    """Starts the engine of one game.

    Raises:
      OpponentError: there is no such program, or this machine cannot start another process.
    """
    command = [argument.replace(SEED, str(seed)) for argument in program.command]
    return GtpEngine(command, {"HOME": program.home.name} if program.home else None, ANSWER_SECONDS)


def set_up(engine: GtpEngine, rules: Rules) -> None:
    """Sets up the empty board.

    Raises:
      EngineError: the engine does not support the size, or fails.
    """
    engine.request(f"boardsize {rules.rows}")
    engine.request(f"komi {rules.komi:g}")
    engine.request("clear_board")


def game_seed(seed: int, game: int) -> int:
    """Seed of the engine's random numbers in a game, from 1 to 2^31 - 1."""
    return int(stream_of(seed, 0, "gtp", game)[0]) % MAX_SEED + 1


class GtpPlayer:
    """Plays each game with an engine process of its own; as many of them search at once as there are cores."""

    def __init__(self, player_id: PlayerId, program: Program, rules: Rules, seed: int) -> None:
        self.id = player_id
        self._program, self._rules, self._seed = program, rules, seed
        self._games: dict[int, _Game] = {}
        # threads only wait for the engines, so their number limits how many engines search at once
        self._threads = ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="gtp")
        self._closing = threading.Lock()

    def begin(self, games: Sequence[int]) -> None:
        """Starts an engine for each of these games. `choose` reports the faults of an engine.

        Raises:
          OpponentError: this machine cannot start so many processes.
        """
        for _ in self._threads.map(self._start, games):
            pass

    def choose(self, games: Sequence[int]) -> list[Reply]:
        """Requests the moves of the engines of these games."""
        return list(self._threads.map(lambda game: self._games[game].choose(), games))

    def play(self, game: int, action: int) -> None:
        """Records a move of either side. The engine receives it when it is to move."""
        self._games[game].actions.append(action)

    def end(self, game: int) -> None:
        """Ends the game's engine."""
        self._games.pop(game).close()

    def close(self) -> None:
        """Ends all engines. Another thread may be waiting for a move, and then closes the player too."""
        with self._closing:
            for game in self._games.values():
                game.kill()  # otherwise the threads below would wait for answers
            self._threads.shutdown()
            for game in self._games.values():
                game.close()  # after the threads: `close` must not run beside a request
            self._games.clear()
            if self._program.home:
                self._program.home.cleanup()

    def _start(self, game: int) -> None:
        started = self._games[game] = _Game(self._rules)
        started.start(self._program, game_seed(self._seed, game))


class _Game:
    """One game and its engine."""

    def __init__(self, rules: Rules) -> None:
        self.actions: list[int] = []
        self._rules = rules
        self._engine_actions: list[int] = []  # moves on the engine's board, with its own last one
        self._engine: GtpEngine | None = None
        self._reply: Reply | None = None
        self._num_actions_at_reply = -1
        self._lock = threading.Lock()

    def start(self, program: Program, seed: int) -> None:
        self._engine = start_engine(program, seed)
        try:
            set_up(self._engine, self._rules)
        except EngineError as error:
            self._reply = self._forfeit(error)

    def choose(self) -> Reply:
        """Returns the engine's move in this position. Calls for the same position return the same reply.

        A call that was interrupted (Ctrl-C) may have left a request running. The lock makes the next call wait for it.
        """
        with self._lock:
            if self._reply and (self._reply.fault or self._num_actions_at_reply == len(self.actions)):
                return self._reply
            num_actions = len(self.actions)
            try:
                self._reply = self._request_move()
            except EngineError as error:
                self._reply = self._forfeit(error)
            self._num_actions_at_reply = num_actions
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

    def _request_move(self) -> Reply:
        """Brings the engine's board up to date and requests its move."""
        assert self._engine
        if self.actions[: len(self._engine_actions)] != self._engine_actions:  # its own move was not played
            self._engine.request("clear_board")
            self._engine_actions = []
        for number in range(len(self._engine_actions), len(self.actions)):
            action = self.actions[number]
            self._engine.request(f"play {_colour(number)} {action_to_name(self._rules, action)}")
            self._engine_actions.append(action)
        answer = self._engine.request(f"genmove {_colour(len(self._engine_actions))}")
        if answer.lower() == "resign":
            return Reply(RESIGN)
        try:
            action = name_to_action(self._rules, answer)
        except ValueError as error:
            raise EngineError(f"{self._engine.name} answered `genmove` with an invalid move: {error}") from None
        self._engine_actions.append(action)
        return Reply(action)

    def _forfeit(self, error: OpponentError) -> Reply:
        """Ends the engine; the reply forfeits the game."""
        if self._engine:
            self._engine.kill()
        return Reply(fault=str(error))


def _colour(number: int) -> str:
    """Colour of move `number`, counted from 0."""
    return "white" if number % 2 else "black"
