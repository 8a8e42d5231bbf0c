"""Quarantine of games that must not be used, so that the next `dvc repro` plays them again.

DVC would restore corrupted outputs from its cache instead of running their stage. So the cached copy is also
quarantined, and the copy in the shard store, from which the stage would take the shard.

Files of the workspace and of DVC's cache go to `.zero/quarantine/` of the workspace, the store's copy to `quarantine/`
of the store. Each shard has its reason in a text file beside it. In the workspace, a second violation of a shard
overwrites the earlier copy.
"""

import shutil
from pathlib import Path
from typing import Any

import yaml

from zero.errors import LineageError, StorageError
from zero.storage.files import read_manifest, write_atomic
from zero.storage.layout import DVC_LOCK, QUARANTINE_DIR
from zero.storage.manifests import GameSet, ShardRef
from zero.storage.store import REASON_SUFFIX, Store
from zero.storage.vcs import dvc, git


def quarantine_games(folder: Path, games_dir: str, ref: ShardRef, reason: str, store: Store | None) -> None:
    """Moves a shard of a DVC output into quarantine.

    Args:
      folder: the workspace.
      games_dir: the output, `data/games` or `data/match`.
      ref: the shard.
      reason: the text for the file beside it.
      store: the shard store, if its copy is bad too; None if only the file in the workspace is bad.

    Raises:
      StorageError: a file cannot be moved, or the store does not answer.
    """
    source = folder / games_dir / ref.file.path
    target = folder / QUARANTINE_DIR / f"gen-{ref.generation:04d}-{Path(games_dir).name}-{source.name}"
    # The reason comes first: a crash between the two must not leave a quarantined shard without one.
    write_atomic(target.with_name(f"{target.name}{REASON_SUFFIX}"), f"{reason}\n".encode())
    _move(source, target)
    if store is not None:
        store.quarantine_shard(ref.key, reason)
    # Only the list of the files: the other shards stay in the cache, and DVC recognises them when it saves the output.
    # Not that of a recorded generation, which an audit plays again: the project shares the cache.
    if listing := _cached_listing(folder, games_dir):
        _move(listing, folder / QUARANTINE_DIR / listing.name)


def has_missing_shards(folder: Path, games_dir: str) -> bool:
    """True if a shard of an output is missing, so that its stage has to run again."""
    try:
        games = read_manifest(folder / games_dir, GameSet)
    except StorageError:
        return True
    return not all((folder / games_dir / ref.file.path).exists() for ref in games.shards)


def _cached_listing(folder: Path, out: str) -> Path | None:
    """Path of DVC's list of the files of an output, in its cache; without that list DVC runs the stage.

    None if DVC has not recorded the output, or is not installed: then it cannot restore anything. Also None if the
    output is committed.
    """
    try:
        lock: Any = yaml.safe_load((folder / DVC_LOCK).read_bytes())
        outs = [entry for stage in lock["stages"].values() for entry in stage.get("outs", [])]
        digest = next(str(entry["md5"]) for entry in outs if entry["path"] == out)
        if digest in _committed_lock(folder):
            return None
        cache = Path(dvc(folder, "cache", "dir").strip())
    except (OSError, yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, StopIteration, LineageError):
        return None
    return cache / "files" / "md5" / digest[:2] / digest[2:]


def _committed_lock(folder: Path) -> str:
    """Text of `dvc.lock` at HEAD; empty if there is none, as in the first generation."""
    try:
        return git(folder, "show", f"HEAD:{DVC_LOCK}")
    except LineageError:
        return ""


def _move(source: Path, target: Path) -> None:
    """Moves a file, overwriting an earlier one of the same name. If the file does not exist, the earlier one stays."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not source.exists():
            return
        target.unlink(missing_ok=True)
        # Not a rename: DVC's cache may be on another file system than the workspace.
        shutil.move(source, target)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"cannot move {source} to {target}: {error.strerror}") from None
