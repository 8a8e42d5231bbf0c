"""Programs that speak GTP as players of Go: GNU Go, Leela Zero, any other by its command line."""

import math
import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from zero.errors import OpponentError
from zero.games.position import GO, Rules
from zero.players.base import PlayerId
from zero.players.gtp_player import SEED, GtpPlayer, Limits, Program, game_seed, set_up, start_engine
from zero.players.gtp_process import ANSWER_SECONDS, EngineError, program_path
from zero.storage.files import sha256_file

SELF_NAME = "{name}"
"""In a player's name: what the engine says of itself."""
MAX_NAME = 60
MAX_GNUGO_LEVEL = 20
DIGEST_DIGITS = 8

Settings = dict[str, str | int | float | bool]


def gtp_opponent(
    command: Sequence[str],
    rules: Rules,
    seed: int = 0,
    name: str | None = None,
    move_seconds: float = ANSWER_SECONDS,
    num_processes: int | None = None,
) -> GtpPlayer:
    """Any program that speaks GTP.

    Args:
      command: the program and its arguments; `{seed}` in them becomes the seed of the game.
      rules: Go on a square board.
      seed: what the seeds of the games come from.
      name: as a person calls it; by default what it says of itself.
      move_seconds: limit of each answer.
      num_processes: engines that think at once, of as many as games are open; by default one a core.

    Raises:
      OpponentError: there is no such program, it does not speak GTP, or it cannot play this game.
    """
    shown, more = shlex.join(command), files_of(command)
    return _made(Program(tuple(command)), shown, rules, seed, name, move_seconds, num_processes, more)


def files_of(command: Sequence[str]) -> Settings:
    """SHA-256 of each file that a command names, the program among them, by a word or by what follows a `=` in one.

    So the same command line with other weights or another program is another player.
    """
    words = [part for word in command for part in (word, word.partition("=")[2]) if part]
    paths = {word: (program_path(word) if word == command[0] else None) or word for word in words}
    digests = [
        f"{sha256_file(Path(path))} {word}"
        for word, path in paths.items()
        if os.path.isfile(path) and os.access(path, os.R_OK)
    ]
    return {"files": ", ".join(digests)} if digests else {}


def gnugo(
    level: int,
    rules: Rules,
    seed: int = 0,
    move_seconds: float = ANSWER_SECONDS,
    num_processes: int | None = None,
) -> GtpPlayer:
    """GNU Go at a level, 0 to 20 (10 is its default), by the rules that are played here: area, positional superko.

    It may resign, as is usual, since it does so late: where it would pass and holds all its stones for dead, and at
    19x19 also where it is more than 45 points behind with no fight left.

    Raises:
      OpponentError: it is not installed, or cannot play this game.
    """
    if not 0 <= level <= MAX_GNUGO_LEVEL:
        raise OpponentError(f"GNU Go has no level {level}; give 0 to {MAX_GNUGO_LEVEL}")
    if program_path("gnugo") is None:
        raise OpponentError("GNU Go is not installed; install it (Debian and Ubuntu: `apt install gnugo`)")
    suicide = "--allow-all-suicide" if rules.allow_suicide else "--forbid-suicide"
    options = f"--mode gtp --chinese-rules --positional-superko --capture-all-dead {suicide}".split()
    command = ("gnugo", *options, "--level", str(level), "--seed", SEED)
    name = f"{SELF_NAME} level {level}"
    more: Settings = {"level": level}
    return _made(Program(command), shlex.join(command), rules, seed, name, move_seconds, num_processes, more)


def leelaz(
    weights: Path,
    num_playouts: int,
    rules: Rules,
    seed: int = 0,
    move_seconds: float = ANSWER_SECONDS,
    num_processes: int | None = None,
) -> GtpPlayer:
    """Leela Zero on one thread of the CPU, with a weight file of its format and so many playouts a move.

    It plays the most visited move, does not think on others' time and never resigns.

    Raises:
      OpponentError: it or the weights are missing, the weights are none of its own, or it cannot play this game.
    """
    if program_path("leelaz") is None:
        raise OpponentError("Leela Zero is not installed; install it (Debian and Ubuntu: `apt install leela-zero`)")
    if not weights.is_file():
        raise OpponentError(f"there is no weight file {weights}; give the path of a text file of Leela Zero's format")
    digest = sha256_file(weights)
    options = f"--gtp --cpu-only --threads 1 --playouts {num_playouts} --randomcnt 0 --resignpct 0 --noponder".split()
    command = ("leelaz", *options, "--timemanage", "off", "--seed", SEED, "--weights")
    home = tempfile.TemporaryDirectory(prefix="leelaz-")  # so that it neither reads nor writes in the user's
    program = Program((*command, str(weights)), home)
    name = f"{SELF_NAME}, {num_playouts} playouts, weights {digest[:DIGEST_DIGITS]}"
    more: Settings = {"weights": digest, "playouts": num_playouts}
    try:
        shown = shlex.join([*command, weights.name])
        return _made(program, shown, rules, seed, name, move_seconds, num_processes, more)
    except BaseException:
        home.cleanup()
        raise


def _made(
    program: Program,
    shown: str,
    rules: Rules,
    seed: int,
    name: str | None,
    move_seconds: float,
    num_processes: int | None,
    more: Settings,
) -> GtpPlayer:
    """The player, after a trial start of its engine, which says who it is and sets up the board."""
    if not 0.0 < move_seconds < math.inf:
        raise OpponentError(f"move_seconds = {move_seconds} is out of range; give more than 0")
    if rules.game != GO or rules.rows != rules.columns:
        raise OpponentError("GTP engines play Go on square boards; choose another player for this game")
    with start_engine(program, game_seed(seed, 0), move_seconds) as engine:
        try:
            engine.ask("protocol_version")
            itself = f"{engine.ask('name')} {engine.ask('version')}".replace("\n", " ").strip()[:MAX_NAME]
        except EngineError as error:
            raise OpponentError(
                f"`{shown}` does not speak GTP: {error}; give the command line of an engine, as `gnugo --mode gtp`"
            ) from None
        try:
            set_up(engine, rules)
        except EngineError as error:
            raise OpponentError(
                f"{itself} cannot play on {rules.rows}x{rules.columns}: {error}; take a board that it knows"
            ) from None
    settings: Settings = {"command": shown, "engine": itself, "move_seconds": move_seconds, **more}
    player = PlayerId(name=(name or SELF_NAME).replace(SELF_NAME, itself), kind="gtp", settings=settings)
    num_processes = num_processes or len(os.sched_getaffinity(0))
    return GtpPlayer(player, program, rules, Limits(move_seconds, num_processes), seed)
