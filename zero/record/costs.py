"""Costs of a generation as a git note on its commit. `zero.stages.costs` measures them.

Costs are never part of a hashed output or of a commit: two equal runs take different times.
"""

import contextlib
import functools
import logging
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from zero.errors import LineageError
from zero.storage.files import canonical_line
from zero.storage.manifests import Manifest
from zero.storage.vcs import git

log = logging.getLogger(__name__)


class StageCosts(Manifest, extra="ignore"):  # older notes have an energy, `joules`
    """Costs of a stage, on all machines and over all attempts."""

    seconds: float
    """Wall-clock time during which any part of the stage ran."""
    cpu_seconds: float
    gpu_seconds: float
    """Wall-clock seconds of the processes that computed on a GPU, summed: two that share a GPU count twice."""
    games: int
    evaluations: int
    """Positions that a network evaluated in self-play or in the match."""
    shards: int
    shards_without_receipt: int
    """Shards of unknown costs: the store was off, or another one was used."""
    workers: tuple[str, ...]


class GenerationCosts(Manifest):
    """Costs of a generation by stage."""

    lineage: str
    generation: int
    stages: dict[str, StageCosts]

    def total(self) -> StageCosts:
        """Sum over all stages."""
        stages = self.stages.values()
        sums: dict[str, Any] = {
            name: sum(getattr(stage, name) for stage in stages) for name in StageCosts.model_fields if name != "workers"
        }
        return StageCosts(**sums, workers=tuple(sorted({worker for stage in stages for worker in stage.workers})))


def notes_ref(lineage: str) -> str:
    """The git reference of a lineage's cost notes."""
    return f"refs/notes/zero-costs/{lineage}"


def fetch_notes(folder: Path, lineage: str) -> None:
    """Fetches a lineage's new notes into a clone: `git clone` does not copy notes. Notes of the clone are never lost.

    Raises:
      LineageError: the folder is not a clone.
    """
    ref = notes_ref(lineage)
    if "origin" not in git(folder, "remote").split():
        return
    with contextlib.suppress(LineageError):  # the origin has no note yet, is not reachable, or lacks notes of the clone
        git(folder, "fetch", "--quiet", "origin", f"{ref}:{ref}")


_fetch_notes_once = functools.cache(fetch_notes)
"""Fetches only once per process: a command may read the costs of many generations that have no note."""


def write_note(folder: Path, commit: str, costs: GenerationCosts) -> None:
    """Writes the costs of a generation as a note on its commit. Replaces an earlier note; does not push.

    Raises:
      LineageError: git fails.
    """
    ref = notes_ref(costs.lineage)
    fetch_notes(folder, costs.lineage)
    git(folder, "notes", f"--ref={ref}", "add", "--force", "-m", canonical_line(costs).decode().strip(), commit)


def read_note(folder: Path, lineage: str, commit: str, offline: bool = False) -> GenerationCosts | None:
    """Costs of a generation, found by its commit or tag; None without a note that can be read.

    A missing note is fetched first, unless `offline` is set.
    """
    note = _note(folder, lineage, commit)
    if note is None and not offline:
        with contextlib.suppress(LineageError):  # not a clone
            _fetch_notes_once(folder, lineage)
        note = _note(folder, lineage, commit)
    try:
        return None if note is None else GenerationCosts.model_validate_json(note)
    except ValidationError:
        log.warning("cannot read the costs noted on %s", commit)
        return None


def _note(folder: Path, lineage: str, commit: str) -> str | None:
    try:
        return git(folder, "notes", f"--ref={notes_ref(lineage)}", "show", f"{commit}^{{commit}}")
    except LineageError:
        return None
