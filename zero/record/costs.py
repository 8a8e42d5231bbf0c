"""What a generation cost, as a git note on its commit. How it is measured: `zero.stages.costs`.

Costs are never in a hashed output or in a commit, because two equal runs cost different hours.
"""

import contextlib
import logging
from pathlib import Path

from pydantic import ValidationError

from zero.errors import LineageError
from zero.storage.files import canonical_line
from zero.storage.manifests import Manifest
from zero.storage.vcs import git

log = logging.getLogger(__name__)


class StageCosts(Manifest, extra="ignore"):  # older notes have an energy, `joules`
    """What a stage cost, on all machines and in all attempts."""

    seconds: float
    """Wall clock with anything of it at work."""
    cpu_seconds: float
    gpu_seconds: float
    games: int
    evaluations: int
    """Positions that a network judged in self-play or in the match."""
    shards: int
    shards_without_receipt: int
    """Shards whose costs are not known: the store was off, or is another one."""
    workers: tuple[str, ...]


class GenerationCosts(Manifest):
    """What a generation cost, by stage."""

    lineage: str
    generation: int
    stages: dict[str, StageCosts]

    def total(self) -> StageCosts:
        """All stages together."""
        stages = self.stages.values()
        return StageCosts(
            seconds=sum(stage.seconds for stage in stages),
            cpu_seconds=sum(stage.cpu_seconds for stage in stages),
            gpu_seconds=sum(stage.gpu_seconds for stage in stages),
            games=sum(stage.games for stage in stages),
            evaluations=sum(stage.evaluations for stage in stages),
            shards=sum(stage.shards for stage in stages),
            shards_without_receipt=sum(stage.shards_without_receipt for stage in stages),
            workers=tuple(sorted({worker for stage in stages for worker in stage.workers})),
        )


def notes_ref(lineage: str) -> str:
    """The git reference that a lineage's costs are under."""
    return f"refs/notes/zero-costs/{lineage}"


def fetch_notes(folder: Path, lineage: str) -> None:
    """Fetches a lineage's notes into a clone that does not have them yet: `git clone` leaves notes behind.

    Raises:
      LineageError: the folder is no clone.
    """
    ref = notes_ref(lineage)
    if git(folder, "for-each-ref", ref).strip() or "origin" not in git(folder, "remote").split():
        return
    with contextlib.suppress(LineageError):  # nothing was noted yet
        git(folder, "fetch", "--quiet", "origin", f"{ref}:{ref}")


def write_note(folder: Path, commit: str, costs: GenerationCosts) -> None:
    """Writes the costs of a generation as a note on its commit, in place of an earlier one; pushes nothing.

    Raises:
      LineageError: git fails.
    """
    ref = notes_ref(costs.lineage)
    fetch_notes(folder, costs.lineage)
    git(folder, "notes", f"--ref={ref}", "add", "--force", "-m", canonical_line(costs).decode().strip(), commit)


def read_note(folder: Path, lineage: str, commit: str) -> GenerationCosts | None:
    """Costs of a generation by its commit or tag; None where nobody has noted them."""
    ref = notes_ref(lineage)
    try:
        fetch_notes(folder, lineage)
        return GenerationCosts.model_validate_json(git(folder, "notes", f"--ref={ref}", "show", f"{commit}^{{commit}}"))
    except LineageError:
        return None
    except ValidationError:
        log.warning("the costs noted on %s cannot be read", commit)
        return None
