"""Recomputes generations without stages: the seeded network, and the state restored by a rollback or a branch."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from zero.audit.reproduce.differences import file_difference, first_difference
from zero.audit.reproduce.pipeline import output_of
from zero.audit.reproduce.results import Compared, StageResult
from zero.config.params import PARAMS_FILE
from zero.errors import LineageError
from zero.lineage.rollback import restore_next_state, rewrite_window_manifest
from zero.lineage.workspace import current_generation
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.layout import GENERATION_FILE, STATE_DIRS, workspace_dir
from zero.storage.manifests import LedgerEntry
from zero.storage.vcs import git


def recompute_state(home: Path, clone: Path, entry: LedgerEntry, tag: str) -> Iterator[StageResult]:
    """Recomputes the state of a generation without stages and compares it with the clone's.

    Raises:
      LineageError: it cannot be made, for instance because a rollback's source is missing.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zero-reproduce-") as scratch:
        folder = Path(scratch) / "again"
        if entry.kind == "start":
            made = _new_start(home, clone, entry, tag, folder)
        else:
            made = _new_restored(home, entry, folder)
        outs = (*(_compare(clone, made, out) for out in STATE_DIRS), _compare_generation(clone, made, entry))
    yield StageResult(stage=entry.kind, seconds=time.monotonic() - started, outs=outs)


def _new_start(home: Path, clone: Path, entry: LedgerEntry, tag: str, folder: Path) -> Path:
    """The workspace of a lineage that `zero new` makes, with the code of the recorded one."""
    git(clone, "clone", "--quiet", "--single-branch", "--branch", tag, str(home), str(folder))
    git(folder, "checkout", "--quiet", "--detach", "HEAD^")
    git(folder, "tag", "--delete", *git(folder, "tag", "--list", f"{entry.lineage}/gen-*").split())
    command = ("-m", "zero", "new", entry.lineage, "--params", str(clone / PARAMS_FILE))
    output_of(folder, *command)
    return workspace_dir(folder, entry.lineage)


def _new_restored(home: Path, entry: LedgerEntry, folder: Path) -> Path:
    """A clone at the source of a rollback or a branch, with the restored state."""
    assert entry.source is not None
    restored = restore_next_state(home, entry.source.tag, folder)
    if restored.source != entry.source:
        raise LineageError(
            f"{entry.source.tag} is not the generation that {entry.lineage} names as its source: the tag was moved, or "
            "its ledger is corrupt; `zero audit` reports more"
        )
    if entry.kind == "branch":
        rewrite_window_manifest(folder, entry.lineage, restored)
    return folder


def _compare(clone: Path, made: Path, out: str) -> Compared:
    then, now = ((folder / f"{out}.dvc").read_bytes() for folder in (clone, made))
    first = None
    if then != now:
        first = first_difference(clone / out, made / out) or file_difference(then, now, ".dvc")
    return Compared(path=out, then=_hash(then), now=_hash(now), first=first)


def _compare_generation(clone: Path, made: Path, entry: LedgerEntry) -> Compared:
    """Compares `state/generation.json`: the resignation threshold and the player."""
    now = current_generation(made)
    if entry.kind != "start":
        now = now.model_copy(update={"lineage": entry.lineage, "number": entry.generation})
    texts = canonical_json(current_generation(clone)), canonical_json(now)
    first = None if texts[0] == texts[1] else file_difference(*texts, ".json")
    return Compared(path=GENERATION_FILE, then=sha256_bytes(texts[0]), now=sha256_bytes(texts[1]), first=first)


def _hash(dvc_file: bytes) -> str:
    """The MD5 in a `.dvc` file."""
    return next(line.split()[-1] for line in dvc_file.decode().splitlines() if "md5:" in line)
