"""Crash recovery: removes the stale locks, truncated files and drafts that a killed process leaves behind.

A killed git leaves its lock files. A killed DVC leaves files that it had opened for writing but not filled. The only
writer of a workspace calls this before it works. Everything removed here can be made again: stages repeat outputs that
`dvc.lock` no longer lists (from the shards in the store), and `dvc add` writes `state/*.dvc`.
"""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import psutil
import yaml

from zero.storage.layout import DVC_CACHE_DIR, DVC_LOCK
from zero.storage.vcs import git

STALE_LOCK_SECONDS = 2.0
"""Seconds after which a lock or a draft is stale: a git whose parent was killed may still run for a moment."""
POLL_SECONDS = 0.05
DVC_FOLDERS = ("data", "metrics", "models", "plots", "state")
"""Folders in which DVC tries links and makes copies under temporary names."""

log = logging.getLogger(__name__)


def recover_from_crash(workspace: Path, lineage: str) -> None:
    """Removes stale files from a workspace, and from the project stale locks of its lineage and drafts of DVC."""
    origin = Path(git(workspace, "config", "--default", "", "--get", "remote.origin.url").strip())
    locks = [*_workspace_locks(workspace), *_project_locks(origin, lineage)]
    runs = set(_unfinished_runs(origin))
    deadline = time.monotonic() + STALE_LOCK_SECONDS
    # A running git removes its lock itself, and a running DVC finishes its draft; what is left after this wait has no
    # owner.
    while (runs or any(path.exists() for path in locks)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        runs &= set(_unfinished_runs(origin))
    for path in locks:
        if path.exists():
            log.warning("removed %s, a stale lock of a killed git", path)
            path.unlink(missing_ok=True)
    drafts = [*(workspace / "record").glob(".*")]  # git tracks no such file
    for name in DVC_FOLDERS:
        drafts += (workspace / name).rglob(".*.tmp")  # `git add --all` would commit them
    for path in drafts:
        log.warning("removed %s, which a killed process did not finish", path)
        path.unlink(missing_ok=True)
    for path in sorted(runs, reverse=True):  # the drafts in a folder before the folder
        log.warning("removed %s, which a killed DVC or a full disk left behind", path)
        if path.is_dir():
            with suppress(OSError):  # another lineage's DVC has filled it
                path.rmdir()
        else:
            path.unlink(missing_ok=True)
    _recover_dvc(workspace)


def _workspace_locks(workspace: Path) -> Iterator[Path]:
    folder = workspace / ".git"
    for name in ("index", "HEAD", "config", "packed-refs"):
        if (path := folder / f"{name}.lock").exists():
            yield path
    yield from (folder / "refs").rglob("*.lock")


def _project_locks(origin: Path, lineage: str) -> Iterator[Path]:
    """Locks that only a push of this lineage makes, if the project is a folder on this machine."""
    folder = origin / ".git" if (origin / ".git").is_dir() else origin
    for kind in ("heads/lineage", "notes/zero-costs"):
        if (path := folder / "refs" / kind / f"{lineage}.lock").exists():
            yield path
    yield from (folder / "refs/tags" / lineage).glob("*.lock")


def _unfinished_runs(origin: Path) -> Iterator[Path]:
    """Drafts in DVC's run cache, and folders there without a finished entry.

    DVC makes the folder of a run, then a draft, and renames that. It reads the newest file of the folder, whatever it
    is, and fails if there is none: a `dvc repro` that needs this run would always fail.
    """
    for folder in (origin / DVC_CACHE_DIR / "runs").glob("*/*"):
        try:
            files = list(folder.iterdir())
        except OSError:  # another lineage's recovery has removed it
            continue
        drafts = [path for path in files if path.name.startswith(".")]
        yield from drafts
        if len(drafts) == len(files):
            yield folder


def _recover_dvc(workspace: Path) -> None:
    rwlock = workspace / ".dvc/tmp/rwlock"
    if rwlock.exists() and _is_stale(rwlock.read_bytes(), workspace):
        log.warning("removed %s, which a killed DVC left behind", rwlock)
        rwlock.unlink()
    for path in [workspace / DVC_LOCK, *sorted((workspace / "state").glob("*.dvc"))]:
        if path.exists() and not _is_complete(path.read_bytes()):
            # Removed also if HEAD does not have it: a generation in progress can have the first `dvc.lock` of its
            # lineage.
            path.unlink()
            name = path.relative_to(workspace).as_posix()
            committed = bool(git(workspace, "ls-tree", "--name-only", "HEAD", "--", name).strip())
            if committed:
                git(workspace, "checkout", "HEAD", "--", name)
            done = "restored the committed version" if committed else "removed it"
            log.warning("%s was truncated by a killed DVC; %s", path, done)


def _is_stale(rwlock: bytes, workspace: Path) -> bool:
    """True if DVC's table of readers and writers is truncated, or has only processes that no longer work here.

    DVC itself looks only whether a process has that number. After a restart of the machine or the container another
    process has it, and DVC would wait for that one.
    """
    try:
        table = json.loads(rwlock)
    except ValueError:
        return True
    entries = [*chain.from_iterable(table.get("read", {}).values()), *table.get("write", {}).values()]
    return bool(entries) and not any(_works_in(int(entry["pid"]), workspace) for entry in entries)


def _works_in(pid: int, folder: Path) -> bool:
    try:
        return Path(psutil.Process(pid).cwd()).is_relative_to(folder.resolve())
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:  # another user's; it may be one that works here
        return True


def _is_complete(text: bytes) -> bool:
    """True if a file of DVC is not truncated: its last line is complete, and every entry has its MD5."""
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    if not (isinstance(tree, dict) and text.endswith(b"\n")):
        return False
    stages = tree.get("stages", {"": tree})
    if not isinstance(stages, dict) or not all(isinstance(stage, dict) for stage in stages.values()):
        return False
    entries = [entry for stage in stages.values() for key in ("deps", "outs") for entry in stage.get(key) or ()]
    return bool(entries) and all(isinstance(entry, dict) and {"path", "md5"} <= entry.keys() for entry in entries)
