"""A ladder on disk: `<home>/.zero/ladders/go9/ladder.json`, and its curve beside it as `ladder.png`."""

from pathlib import Path

from zero.config.settings import STATE_FOLDER
from zero.evaluation.ladder.plot import ladder_png
from zero.evaluation.ladder.table import Ladder
from zero.storage.files import canonical_json, write_atomic

LADDERS_DIR = "ladders"
LADDER_FILE, PLOT_FILE = "ladder.json", "ladder.png"


def ladder_files(ladder: Ladder) -> dict[str, bytes]:
    """The files of a ladder by name."""
    return {LADDER_FILE: canonical_json(ladder), PLOT_FILE: ladder_png(ladder)}


def write_ladder(home: Path, ladder: Ladder, folder: Path | None = None) -> Path:
    """Writes the files of a ladder in place of those there; the folder, by default the one of its lineage.

    Raises:
      StorageError: they cannot be written.
    """
    folder = folder or home / STATE_FOLDER / LADDERS_DIR / ladder.lineage
    for name, data in ladder_files(ladder).items():
        write_atomic(folder / name, data)
    return folder
