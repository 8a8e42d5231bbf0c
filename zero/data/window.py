"""Reads and checks the window of games for training. `zero.stages.replay` writes it."""

from pathlib import Path

import numpy as np

from zero.data.records import GameColumns, concatenate, read_records, select_games
from zero.errors import StorageError
from zero.games.position import Rules
from zero.storage.files import checked_bytes
from zero.storage.manifests import GamesFile, Window, WindowShard


def read_window(window: Window, window_dir: Path, rules: Rules) -> GameColumns:
    """The games of a window, oldest first, with all files checked.

    At its peak the memory holds the result and one file.

    Raises:
      StorageError: the window is empty, a file is missing or corrupt, or the window does not have the size in its
        manifest.
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


def shard_mismatch(columns: GameColumns, file: GamesFile, rules: Rules) -> str | None:
    """The first difference between a file of games and the values in its manifest, as text; None if there is none."""
    lengths = np.diff(columns.move_offsets)
    if columns.num_actions != rules.num_actions:
        return f"its games have {columns.num_actions} actions, the parameters' game has {rules.num_actions}"
    if (columns.num_games, columns.num_positions) != (file.num_games, file.num_positions):
        return (
            f"it holds {columns.num_games} games and {columns.num_positions} positions, "
            f"its manifest says {file.num_games} and {file.num_positions}"
        )
    # The digest proves that the file is the manifest's; this shows whether the manifest tells the truth about it.
    if not np.array_equal(columns.game, np.arange(file.first_game, file.first_game + file.num_games)):
        return f"its games are not numbered from {file.first_game}"
    if lengths.min() < 1 or lengths.max() > rules.max_moves:
        return f"it has a game of {lengths.max() if lengths.min() else 0} moves, the range is 1 to {rules.max_moves}"
    return None


def _window_shard(entry: WindowShard, window_dir: Path, rules: Rules) -> GameColumns:
    path = window_dir / entry.shard.file.path
    # Without limits: the digest proves that this is the file that was checked when it was recorded.
    columns = read_records(checked_bytes(entry.shard.file, window_dir), str(path))
    if mismatch := shard_mismatch(columns, entry.shard, rules):
        raise StorageError(f"{path}: {mismatch}; make the window again with `dvc repro -f replay`")
    return select_games(columns, entry.skip_games)
