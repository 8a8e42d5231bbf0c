"""The manifest of a dataset of imported games, and the options of an import. See docs/import.md for the format."""

from operator import not_
from typing import Literal, NamedTuple

from pydantic import Field

from zero.config.params import Fraction, GameParams
from zero.storage.manifests import FileRef, GamesFile, Manifest

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")
REJECTED_FILE, DUPLICATES_FILE = "rejected.jsonl", "duplicates.jsonl"
GAMES_PER_FILE = 4096
"""Most games of one Parquet file, which then has about 3 MB at 19x19."""


class SplitFractions(Manifest):
    """Fractions of the games by split; they add up to 1."""

    train: Fraction
    validation: Fraction
    test: Fraction


class ImportOptions(Manifest):
    """Options that decide which games are imported, and into which split."""

    komi: tuple[float, ...] | None
    """Accepted komi; None: any, also a game without one."""
    min_rating: str | None
    """Rating that both players must have, such as `3d` or `2000`; None: any, also players without one."""
    min_moves: int
    """Shortest game."""
    split: SplitFractions
    seed: int
    """Seed of the split."""
    opening_moves: int = Field(default=0, ge=0, exclude_if=not_)
    """Moves at the start of each game that were drawn at random; they have no policy target."""


class DatasetFile(GamesFile):
    """A part of a split: one Parquet file of games, numbered from 0 in the split, and one of their origins."""

    split: SplitName
    games: FileRef
    """Parquet in the columns of `zero.data.records`."""
    origins: FileRef
    """Parquet with one row per game of `games`, in the same order: where it comes from, and its header."""


class SplitSize(Manifest):
    """Size of a split."""

    num_games: int
    num_positions: int


class Rejected(Manifest):
    """A line of `rejected.jsonl`: a game or a file that was not imported."""

    file: str
    """Its path, with the archive as a folder; relative to the folder that contains all imported paths."""
    game: int
    """Number of the game in the file, from 1; 0: the file itself."""
    reason: str
    """Why, in one of a few short names."""
    detail: str
    """Why, in one line."""


class Duplicate(Manifest):
    """A line of `duplicates.jsonl`: a game with the moves of another one, up to a symmetry of the board."""

    file: str
    game: int
    of_file: str
    """Origin of the game that was imported."""
    of_game: int
    same_result: bool
    """False: the two files have different results for the same moves."""


class Dataset(Manifest):
    """`manifest.json` of a dataset."""

    format: Literal["zero-dataset"] = "zero-dataset"
    version: Literal[1] = 1
    game: GameParams
    """The game, as in a parameters file."""
    options: ImportOptions
    files: tuple[DatasetFile, ...]
    """In the order of the splits, and of the games in a split."""
    splits: dict[SplitName, SplitSize]
    num_read: int
    """Games found: imported, rejected and duplicate ones."""
    num_duplicates: int
    rejected: dict[str, int]
    """Rejected games and files by reason."""
    rejected_list: FileRef
    duplicates_list: FileRef


class RawGame(NamedTuple):
    """The bytes of one game in a file."""

    number: int
    """Position in the order of reading; of two equal games the first one is imported."""
    file: str
    game: int
    data: bytes


class ImportedGame(NamedTuple):
    """An accepted game. It is also a line of a temporary file, as a JSON list."""

    digest: str
    """Canonical digest, see `zero.data.dataset.canonical`."""
    number: int
    file: str
    game: int
    actions: list[int]
    outcome: int  # +1, 0, -1 for Black
    margin: float  # points for Black; 0 if the file has none
    end: str
    black: str
    white: str
    black_rating: str
    white_rating: str
    result: str  # RE as in the file
    komi: float | None
    rules: str
    date: str
    place: str
