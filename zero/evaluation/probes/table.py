"""The yardsticks of a lineage as they are kept, a file a generation: `<home>/.zero/yardsticks/go9/gen-0012.json`.

They are no part of the record: each is a function of data that the record names by SHA-256, and says which.
"""

import logging
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from zero.config.settings import STATE_FOLDER
from zero.evaluation.probes.judge import Judgement
from zero.evaluation.probes.shape import Shape
from zero.storage.files import canonical_json, write_atomic
from zero.storage.manifests import Manifest, Sha256

YARDSTICKS_DIR = "yardsticks"
Who = Literal["champion", "challenger"]

log = logging.getLogger(__name__)


class Yardstick(Manifest):
    """A network held against games."""

    who: Who
    """The champion after the generation, or its challenger; of a promoted one there is the challenger alone."""
    weights: Sha256
    games: str
    """`own`: those of its generation; `later-1`: those of the next one; `gnugo`: GNU Go's."""
    games_digest: Sha256
    """Of the manifest of the games, or of their file."""
    judgement: Judgement


class GenerationYardsticks(Manifest):
    """All of one generation that could be computed so far."""

    version: Literal[1] = 1
    """Of how they are computed."""
    lineage: str
    generation: int
    games_digest: Sha256
    """Of the manifest of the generation's games."""
    shape: Shape
    is_promoted: bool = True
    """False: the champion is another network than the challenger, though there may be no weights of it here."""
    yardsticks: tuple[Yardstick, ...]

    def find(self, who: Who, games: str) -> Judgement | None:
        """A judgement; that of a champion which was the challenger is the challenger's."""
        found = {(each.who, each.games): each.judgement for each in self.yardsticks}
        if who == "champion" and self.is_promoted and not any(each.who == who for each in self.yardsticks):
            who = "challenger"
        return found.get((who, games))

    def with_yardstick(self, yardstick: Yardstick) -> "GenerationYardsticks":
        """These with one more, or in place of the one there."""
        place = (yardstick.who, yardstick.games)
        others = [each for each in self.yardsticks if (each.who, each.games) != place]
        ordered = sorted([*others, yardstick], key=lambda each: (each.who, each.games))
        return self.model_copy(update={"yardsticks": tuple(ordered)})


def yardsticks_dir(home: Path, lineage: str) -> Path:
    """Folder of a lineage's yardsticks."""
    return home / STATE_FOLDER / YARDSTICKS_DIR / lineage


def read_yardsticks(folder: Path, generation: int) -> GenerationYardsticks | None:
    """Those of a generation that are kept; None where there are none that this version can use."""
    path = _path(folder, generation)
    try:
        return GenerationYardsticks.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        log.warning("%s cannot be read and is made again", path)
        return None


def keep_yardsticks(folder: Path, yardsticks: GenerationYardsticks) -> None:
    """Keeps those of a generation in place of the ones there.

    Raises:
      StorageError: they cannot be written.
    """
    write_atomic(_path(folder, yardsticks.generation), canonical_json(yardsticks))


def _path(folder: Path, generation: int) -> Path:
    return folder / f"gen-{generation:04d}.json"
