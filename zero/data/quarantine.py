"""Games that must not be used are set aside, so that the next `dvc repro` plays them again.

A stage whose outs were altered is not simply run again by DVC: it restores what it keeps of them, the same games. So
what it keeps of that out is set aside as well, and the shard store's copy, out of which the stage would take the shard.
What lay in the workspace, and DVC's list, go to `.zero/set-aside/` of the workspace, the store's copy to the store's
`set-aside/`, each shard with the reason in a text file beside it; a second fault of one shard replaces its earlier copy
in the workspace.
"""

import shutil
from pathlib import Path
from typing import Any

import yaml

from zero.errors import LineageError, StorageError
from zero.storage.files import read_manifest, write_whole
from zero.storage.manifests import GameSet, ShardRef
from zero.storage.store import REASON_SUFFIX, Store
from zero.storage.vcs import dvc

SET_ASIDE_DIR = ".zero/set-aside"


def set_aside_games(folder: Path, games_dir: str, ref: ShardRef, reason: str, store: Store | None) -> None:
    """Takes a shard of an out of DVC out of use.

    Args:
      folder: the workspace.
      games_dir: the out, `data/games` or `data/match`.
      ref: the shard in it.
      reason: why, for the file beside it.
      store: the shard store, where its copy is to blame too; None where only the file is.

    Raises:
      StorageError: a file cannot be moved, or the store does not answer.
    """
    source = folder / games_dir / ref.file.path
    target = folder / SET_ASIDE_DIR / f"gen-{ref.generation:04d}-{Path(games_dir).name}-{source.name}"
    write_whole(target.with_name(f"{target.name}{REASON_SUFFIX}"), f"{reason}\n".encode())
    _move(source, target)
    if store is not None:
        store.set_aside_shard(ref.key, reason)
    if listing := _cached_listing(folder, games_dir):
        _move(listing, folder / SET_ASIDE_DIR / listing.name)


def lacks_games(folder: Path, games_dir: str) -> bool:
    """True where a shard of an out is not there, so that its stage has to be run again."""
    try:
        games = read_manifest(folder / games_dir, GameSet)
    except StorageError:
        return True
    return not all((folder / games_dir / ref.file.path).exists() for ref in games.shards)


def _cached_listing(folder: Path, out: str) -> Path | None:
    """DVC's list of the files of an out, in its cache; None where it keeps none. Without it the stage is run."""
    try:
        lock: Any = yaml.safe_load((folder / "dvc.lock").read_bytes())
        outs = [entry for stage in lock["stages"].values() for entry in stage.get("outs", [])]
        digest = next(str(entry["md5"]) for entry in outs if entry["path"] == out)
        cache = Path(dvc(folder, "cache", "dir").strip())
    except (OSError, yaml.YAMLError, LookupError, TypeError, AttributeError, StopIteration, LineageError):
        return None  # never recorded, or no DVC here: then there is nothing to restore
    return cache / "files" / "md5" / digest[:2] / digest[2:]


def _move(source: Path, target: Path) -> None:
    """Moves a file where it is there; what an earlier time set aside under the name is written over."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.move(source, target)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"cannot set {source} aside to {target}: {error.strerror}") from None
