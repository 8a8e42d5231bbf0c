"""Reads a dataset of imported games, for training and evaluation."""

from pathlib import Path

from zero.data.dataset.columns import dataset_violations
from zero.data.dataset.manifest import GAMES_PER_FILE, Dataset, DatasetFile, SplitName
from zero.data.records import GameColumns, Limits, read_records
from zero.data.window import shard_mismatch
from zero.errors import StorageError
from zero.games.rules import rules_of
from zero.storage.files import checked_bytes


def files_of(folder: Path, dataset: Dataset, split: SplitName) -> tuple[DatasetFile, ...]:
    """The files of a split.

    Raises:
      StorageError: the split holds no games.
    """
    files = tuple(file for file in dataset.files if file.split == split)
    if not files:
        raise StorageError(f"{folder} has no games for {split}; import more games, or with another --split")
    return files


def read_part(folder: Path, dataset: Dataset, file: DatasetFile) -> GameColumns:
    """The games of one file, replayed by the rules: a dataset and its manifest may come from someone else.

    Raises:
      StorageError: the file is missing or corrupt, or has games that an import does not make.
    """
    path, rules = folder / file.games.path, rules_of(dataset.game)
    # A manifest that promises more must not fill the memory either.
    num_games = min(file.num_games, GAMES_PER_FILE)
    num_values = min(file.num_positions, num_games * rules.max_moves) + num_games
    limits = Limits(num_games, num_values, num_values)
    columns = read_records(checked_bytes(file.games, folder), str(path), limits)
    if mismatch := shard_mismatch(columns, file, rules):
        raise StorageError(f"{path}: {mismatch}; get it again with `dvc checkout --force`")
    # Illegal moves would break the board, and a kernel that replays them might never return.
    if violations := dataset_violations(columns, rules, dataset.options.opening_moves):
        raise StorageError(f"{path}: {violations[0]}; import the games again with `zero import`")
    return columns
