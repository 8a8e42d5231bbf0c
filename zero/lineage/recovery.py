"""Crash recovery: removes the stale locks, truncated files and drafts that a killed process leaves behind.

A killed git leaves its lock files. A killed DVC leaves files that it had opened for writing but not filled, and
unfinished entries of its run cache, which all lineages of a project share. The only writer of a workspace calls this
before it works. Everything removed here can be made again: stages repeat outputs that `dvc.lock` no longer lists (from
the shards in the store), and `dvc add` writes `state/*.dvc`.
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

from zero.errors import LineageError
from zero.storage.layout import DVC_LOCK
from zero.storage.vcs import dvc_cache_dir, git

STALE_LOCK_SECONDS = 2.0
"""Seconds after which a lock is stale: a git whose parent was killed may still run for a moment."""
RUNNING_GIT_SECONDS = 20.0
"""Seconds more that a running git is waited for."""
STALE_RUN_SECONDS = 10.0
"""Seconds after which an unfinished entry of DVC's run cache is stale. Another lineage's DVC may be writing it, which
takes milliseconds."""
POLL_SECONDS = 0.05
DVC_FOLDERS = ("data", "metrics", "models", "plots", "state")
"""Folders in which DVC tries links and makes copies under temporary names."""

log = logging.getLogger(__name__)


def recover_from_crash(workspace: Path, lineage: str) -> None:
    """Removes stale files from a workspace; from the project stale locks of its lineage and unfinished runs of DVC.

    Raises:
      LineageError: a git command runs in the workspace, such as a `git commit` whose editor is open.
    """
    locks = [*_workspace_locks(workspace), *_project_locks(workspace, lineage)]
    deadline = time.monotonic() + STALE_LOCK_SECONDS
    # A running git removes its lock itself, unless it waits for an editor.
    while any(path.exists() for path in locks) and time.monotonic() < deadline + RUNNING_GIT_SECONDS:
        if time.monotonic() > deadline and not _git_runs_in(workspace):
            break
        time.sleep(POLL_SECONDS)
    for path in locks:
        if path.exists():
            if _git_runs_in(workspace):
                raise LineageError(f"git is running in {workspace} and holds {path}; wait for it, or close its editor")
            log.warning("removed %s, a stale lock of a killed git", path)
            path.unlink(missing_ok=True)
    remove_drafts(workspace)
    recover_dvc(workspace)
    _recover_run_cache(workspace)


def remove_drafts(workspace: Path) -> None:
    """Removes temporary files from a workspace. A DVC that found the disk full leaves some even if it succeeds."""
    drafts = [*(workspace / "record").glob(".*")]  # git tracks no such file
    for name in DVC_FOLDERS:
        drafts += (workspace / name).rglob(".*.tmp")  # `git add --all` would commit them
    for path in drafts:
        if path.is_dir():  # of another program, such as Jupyter
            continue
        log.warning("removed %s, which another process did not finish", path)
        path.unlink(missing_ok=True)


def _workspace_locks(workspace: Path) -> Iterator[Path]:
    folder = workspace / ".git"
    for name in ("index", "HEAD", "config", "packed-refs"):
        if (path := folder / f"{name}.lock").exists():
            yield path
    yield from (folder / "refs").rglob("*.lock")


def _project_locks(workspace: Path, lineage: str) -> Iterator[Path]:
    """Locks that only a push of this lineage makes, if the project is a folder on this machine."""
    origin = Path(git(workspace, "config", "--default", "", "--get", "remote.origin.url").strip())
    if not origin.is_absolute() or not origin.is_dir():
        return
    folder = origin / git(origin, "rev-parse", "--git-common-dir").strip()  # elsewhere if the project is a worktree
    for kind in ("heads/lineage", "notes/zero-costs"):
        if (path := folder / "refs" / kind / f"{lineage}.lock").exists():
            yield path
    yield from (folder / "refs/tags" / lineage).glob("*.lock")


def recover_dvc(workspace: Path) -> None:
    """Removes the lock and the incomplete files that a killed DVC left in a clone; keeps the committed versions."""
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


def _recover_run_cache(workspace: Path) -> None:
    """Removes stale drafts from DVC's run cache, and the folders in which there is nothing else.

    DVC makes the folder of a run, then a draft, which it renames. It reads the newest file of the folder, whatever it
    is, and fails if there is none: each later `dvc repro` that looks for this run would fail. The cache belongs to all
    lineages of the project, so an entry that is younger than `STALE_RUN_SECONDS` is waited for.
    """
    cache = dvc_cache_dir(workspace)
    folders = [] if cache is None else sorted(cache.glob("runs/*/*"))
    unfinished = {folder: found for folder in folders if (found := _unfinished_in(folder))}
    deadline = time.monotonic() + STALE_RUN_SECONDS
    for folder, before in unfinished.items():
        while (found := _unfinished_in(folder)) and time.monotonic() < deadline and _age_of(found) < STALE_RUN_SECONDS:
            time.sleep(POLL_SECONDS)
        for path in [path for path in found if path in before]:  # another DVC may have begun a draft during the wait
            try:
                path.rmdir() if path.is_dir() else path.unlink()
            except OSError:  # finished at this moment, or of another user
                continue
            log.warning("removed %s, which a killed DVC or a full disk left behind", path)


def _unfinished_in(folder: Path) -> list[Path]:
    """Drafts in a folder of the run cache, then the folder itself if it has no finished entry."""
    try:
        files = list(folder.iterdir())
    except OSError:  # another lineage's recovery has removed it
        return []
    drafts = [path for path in files if path.name.endswith(".tmp")]
    return [*drafts, folder] if len(drafts) == len(files) else drafts


def _age_of(paths: list[Path]) -> float:
    """Seconds since one of these files was changed last."""
    changed = 0.0
    for path in paths:
        with suppress(OSError):  # finished, or removed by another recovery
            changed = max(changed, path.stat().st_mtime)
    return time.time() - changed


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


def _git_runs_in(folder: Path) -> bool:
    found = (process.info for process in psutil.process_iter(["name", "cwd"]))  # no folder if it is another user's
    return any(
        str(each["name"]).startswith("git") and each["cwd"] and Path(each["cwd"]).is_relative_to(folder.resolve())
        for each in found
    )


def _is_complete(text: bytes) -> bool:
    """True if a file of DVC is not truncated: its last line is complete, and every entry has its MD5."""
    try:
        tree = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # the second for a date such as 2020-13-45
        return False
    if not (isinstance(tree, dict) and text.endswith(b"\n")):
        return False
    stages = tree.get("stages", {"": tree})
    if not isinstance(stages, dict) or not all(isinstance(stage, dict) for stage in stages.values()):
        return False
    entries = [entry for stage in stages.values() for key in ("deps", "outs") for entry in stage.get(key) or ()]
    return bool(entries) and all(isinstance(entry, dict) and {"path", "md5"} <= entry.keys() for entry in entries)
