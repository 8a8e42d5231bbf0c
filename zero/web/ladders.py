"""The ratings that `zero elo` and `zero tournament` wrote, all of a project together."""

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from zero.config.settings import STATE_FOLDER
from zero.evaluation.ladder import Ladder
from zero.evaluation.tournament import TOURNAMENT_FILE, TOURNAMENTS_DIR, Tournament
from zero.storage.manifests import Manifest

Model = TypeVar("Model", Ladder, Tournament)


class Ladders(Manifest):
    """All ladders and tournaments of a project."""

    ladders: tuple[Ladder, ...]
    tournaments: tuple[Tournament, ...]
    unreadable: tuple[str, ...]
    """Paths of files that this version cannot read."""


def read_ladders(home: Path) -> Ladders:
    """Reads the files below `.zero/ladders` and `.zero/tournaments`."""
    unreadable: list[str] = []
    ladders = _read(home, "ladders/*/ladder.json", Ladder, unreadable)
    tournaments = _read(home, f"{TOURNAMENTS_DIR}/*/{TOURNAMENT_FILE}", Tournament, unreadable)
    return Ladders(ladders=tuple(ladders), tournaments=tuple(tournaments), unreadable=tuple(unreadable))


def _read(home: Path, pattern: str, kind: type[Model], unreadable: list[str]) -> list[Model]:
    found = []
    for path in sorted((home / STATE_FOLDER).glob(pattern)):
        try:
            found.append(kind.model_validate_json(path.read_bytes()))
        except (OSError, ValidationError):
            unreadable.append(str(path.relative_to(home)))
    return found
