"""Stage `replay`: exactly which games the network is trained on, as links to their shards.

The window is the last `window_games` self-play games. What enters it is checked first: every file by its hash, new
games also for their numbers, counts and visits.
"""

import logging
import shutil
from pathlib import Path

import numpy as np

from zero.artifacts import (
    MANIFEST_FILE,
    FileRef,
    GameSet,
    GenerationId,
    Origin,
    ShardRef,
    Window,
    WindowShard,
    checked_path,
    link_or_copy,
    read_manifest,
    sha256_file,
    write_manifest,
)
from zero.errors import StorageError
from zero.games.position import Rules
from zero.games.rules import rules_of
from zero.params import load_params, params_digest
from zero.shards.records import GameColumns, concatenate, read_records, select_games
from zero.shards.spec import engine_fingerprint

STAGE = "replay"
STATE_DIR = "state"
GENERATION_FILE = "generation.json"
GAMES_DIR = "data/games"
REPLAY_DIR = "state/replay"
WINDOW_DIR = "data/window"

log = logging.getLogger(__name__)


def run(folder: Path) -> Window:
    """Makes `data/window` of a workspace out of `data/games` and `state/replay`.

    Raises:
      ParamsError: `params.yaml` is not valid.
      StorageError: a file is missing or altered, or games do not agree with what their manifest says.
    """
    params = load_params(folder)
    generation = read_manifest(folder / STATE_DIR, GenerationId, GENERATION_FILE)
    games_dir, replay_dir, window_dir = folder / GAMES_DIR, folder / REPLAY_DIR, folder / WINDOW_DIR
    games = read_manifest(games_dir, GameSet)
    old = read_manifest(replay_dir, Window)
    _check_generations(generation, games, old)
    check_games(games, games_dir, rules_of(params.game))

    sources = {window_name(ref): games_dir / ref.file.path for ref in games.shards}
    entered = tuple(WindowShard(shard=_renamed(ref, window_name(ref)), skip_games=0) for ref in games.shards)
    for entry in old.shards:
        sources[entry.shard.file.path] = checked_path(entry.shard.file, replay_dir)
    shards = last_games((*old.shards, *entered), params.replay.window_games)
    skipped = _skipped_positions(shards[0], sources[shards[0].shard.file.path])

    shutil.rmtree(window_dir, ignore_errors=True)
    for entry in shards:
        link_or_copy(sources[entry.shard.file.path], window_dir / entry.shard.file.path)
    window = Window(
        origin=Origin(
            stage=STAGE,
            lineage=generation.lineage,
            generation=generation.number,
            seed=params.seed,
            params_digest=params_digest(params, STAGE),
            engine=engine_fingerprint(STAGE),
            inputs={
                GAMES_DIR: sha256_file(games_dir / MANIFEST_FILE),
                REPLAY_DIR: sha256_file(replay_dir / MANIFEST_FILE),
            },
        ),
        shards=shards,
        num_games=sum(entry.shard.num_games - entry.skip_games for entry in shards),
        num_positions=sum(entry.shard.num_positions for entry in shards) - skipped,
    )
    write_manifest(window_dir, window)
    log.info(
        "generation %d: window of %d games, %d positions", generation.number, window.num_games, window.num_positions
    )
    return window


def last_games(shards: tuple[WindowShard, ...], window_games: int) -> tuple[WindowShard, ...]:
    """The shards, oldest first, that hold the last `window_games` games; of the oldest only some games may be left."""
    kept: list[WindowShard] = []
    room = window_games
    for entry in reversed(shards):
        if room == 0:
            break
        taken = min(room, entry.shard.num_games - entry.skip_games)
        kept.append(WindowShard(shard=entry.shard, skip_games=entry.shard.num_games - taken))
        room -= taken
    return tuple(reversed(kept))


def window_name(ref: ShardRef) -> str:
    """File name of a new shard in the window; names of different generations differ."""
    return f"gen-{ref.generation:04d}-{Path(ref.file.path).name}"


def check_games(games: GameSet, games_dir: Path, rules: Rules) -> None:
    """Checks new games against their manifest and the game's parameters.

    Raises:
      StorageError: naming the file at fault.
    """
    for ref in games.shards:
        path = checked_path(ref.file, games_dir)
        columns = read_records(path.read_bytes(), str(path))
        if fault := shard_fault(columns, ref, rules):
            raise StorageError(f"{path}: {fault}; play it again with `dvc repro -f selfplay`")
    for name in ("num_games", "num_positions"):
        said, found = getattr(games, name), sum(getattr(ref, name) for ref in games.shards)
        if said != found:
            raise StorageError(f"{games_dir / MANIFEST_FILE} says {name} {said}, its shards have {found}")
    if not games.num_positions:
        raise StorageError(f"{games_dir} holds no games; run `dvc repro` in the lineage's workspace")


def shard_fault(columns: GameColumns, ref: ShardRef, rules: Rules) -> str | None:
    """What is wrong with a shard, in words; None where nothing is."""
    lengths = np.diff(columns.move_offsets)
    if columns.num_actions != rules.num_actions:
        return f"its games have {columns.num_actions} actions, the parameters' game has {rules.num_actions}"
    if (columns.num_games, columns.num_positions) != (ref.num_games, ref.num_positions):
        return (
            f"it holds {columns.num_games} games and {columns.num_positions} positions, "
            f"its manifest says {ref.num_games} and {ref.num_positions}"
        )
    if not np.array_equal(columns.game, np.arange(ref.first_game, ref.first_game + ref.num_games)):
        return f"its games are not numbered from {ref.first_game} on"
    if lengths.min() < 1 or lengths.max() > rules.max_moves:
        return f"it has a game of {lengths.max() if lengths.min() else 0} moves, possible are 1 to {rules.max_moves}"
    return None


def read_window(window: Window, window_dir: Path, rules: Rules) -> GameColumns:
    """The games of a window, oldest first, its files checked; one file is in memory beside them.

    Raises:
      StorageError: a file is missing or altered, or the window is not as large as it says.
    """
    if not window.shards:
        raise StorageError(f"{window_dir} holds no games; run `dvc repro` in the lineage's workspace")
    games = concatenate(_window_shard(entry, window_dir, rules) for entry in window.shards)
    if (games.num_games, games.num_positions) != (window.num_games, window.num_positions):
        raise StorageError(
            f"{window_dir} holds {games.num_games} games and {games.num_positions} positions, its manifest says "
            f"{window.num_games} and {window.num_positions}; make it again with `dvc repro -f replay`"
        )
    return games


def _window_shard(entry: WindowShard, window_dir: Path, rules: Rules) -> GameColumns:
    path = checked_path(entry.shard.file, window_dir)
    columns = read_records(path.read_bytes(), str(path))
    if fault := shard_fault(columns, entry.shard, rules):
        raise StorageError(f"{path}: {fault}; make the window again with `dvc repro -f replay`")
    return select_games(columns, entry.skip_games)


def _check_generations(generation: GenerationId, games: GameSet, old: Window) -> None:
    made = (games.origin.lineage, games.origin.generation)
    if made != (generation.lineage, generation.number):
        raise StorageError(
            f"{GAMES_DIR} is of {made[0]} generation {made[1]}, the workspace makes {generation.lineage} generation "
            f"{generation.number}; run `dvc repro`"
        )
    late = [entry.shard.generation for entry in old.shards if entry.shard.generation >= generation.number]
    if old.origin.lineage != generation.lineage or late:
        raise StorageError(
            f"{REPLAY_DIR} is of {old.origin.lineage} generation {max(late, default=old.origin.generation)}, "
            f"the workspace makes {generation.lineage} generation {generation.number}; "
            "restore it with `dvc checkout --force`"
        )


def _skipped_positions(entry: WindowShard, path: Path) -> int:
    """Positions in the games of a shard that are too old."""
    if not entry.skip_games:
        return 0
    return int(read_records(path.read_bytes(), str(path)).move_offsets[entry.skip_games])


def _renamed(ref: ShardRef, name: str) -> ShardRef:
    return ref.model_copy(update={"file": FileRef(path=name, sha256=ref.file.sha256, num_bytes=ref.file.num_bytes)})
