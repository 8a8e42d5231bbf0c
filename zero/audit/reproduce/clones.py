"""The clone in which a generation is recomputed, and the clone with the recorded data."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from zero.audit.reproduce.results import StageResult
from zero.errors import LineageError, StorageError
from zero.lineage.workspace import checkout_generation
from zero.storage.files import read_manifest, write_manifest
from zero.storage.layout import STATE_DIRS
from zero.storage.manifests import Manifest
from zero.storage.vcs import dvc, git

NOTES_FILE = "zero-reproduce.json"


class Notes(Manifest):
    """Progress of a reproduction, kept in the clone's `.git` so that a second call can continue."""

    tag: str
    commit: str
    done: tuple[StageResult, ...]


@contextlib.contextmanager
def clone_at(home: Path, tag: str, outs: Sequence[str], keep: Path | None) -> Iterator[Path]:
    """A clean clone of the project at a tag. Deleted afterwards unless `keep` is given.

    Args:
      home: the project's folder.
      tag: a generation.
      outs: the data to check out.
      keep: folder for the clone. If it holds an unfinished reproduction of the tag, that clone is used.

    Raises:
      LineageError: the tag is unknown, or the folder holds something else.
    """
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="zero-reproduce-") as scratch:
            yield _new_clone(home, tag, outs, Path(scratch) / "clone")
        return
    if not (keep / ".git" / NOTES_FILE).exists():
        if keep.exists() and any(keep.iterdir()):
            raise LineageError(f"{keep} is not empty; name a new folder, or one that --keep made for {tag}")
        keep.parent.mkdir(parents=True, exist_ok=True)
        building = keep.with_name(f".{keep.name}.part")
        shutil.rmtree(building, ignore_errors=True)
        _new_clone(home, tag, outs, building).rename(keep)
    notes = read_notes(keep)
    if (notes.tag, notes.commit) != (tag, git(home, "rev-parse", f"{tag}^{{commit}}").strip()):
        raise LineageError(
            f"{keep} holds {notes.tag} at {notes.commit[:12]}; name a new folder for {tag}, or remove it"
        )
    yield keep


def read_notes(clone: Path) -> Notes:
    """Progress noted in a clone."""
    return read_manifest(clone / ".git", Notes, NOTES_FILE)


def note_done(clone: Path, result: StageResult) -> None:
    """Notes that a stage is done."""
    notes = read_notes(clone)
    write_manifest(clone / ".git", notes.model_copy(update={"done": (*notes.done, result)}), NOTES_FILE)


class Recorded:
    """The recorded data of a tag, fetched on first use: only a difference needs it. A context manager."""

    def __init__(self, home: Path, tag: str) -> None:
        self._home = home
        self._tag = tag
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    def path(self, out: str) -> Path | None:
        """A recorded output; None if its data is neither on this machine nor on the remote."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="zero-recorded-")
            checkout_generation(self._home, self._tag, Path(self._scratch.name) / "clone", (STATE_DIRS[0],))
        clone = Path(self._scratch.name) / "clone"
        for verb in ("checkout", "pull"):
            if not (clone / out).exists():
                with contextlib.suppress(LineageError):
                    dvc(clone, verb, "--quiet", out)
        return clone / out if (clone / out).exists() else None

    def __enter__(self) -> "Recorded":
        return self

    def __exit__(self, *_: object) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()


def _new_clone(home: Path, tag: str, outs: Sequence[str], folder: Path) -> Path:
    checkout_generation(home, tag, folder, outs)
    commit = git(folder, "rev-parse", "HEAD").strip()
    try:
        write_manifest(folder / ".git", Notes(tag=tag, commit=commit, done=()), NOTES_FILE)
    except StorageError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
