"""What a killed process leaves, and no later one gets past: locks without an owner, files cut short, drafts.

git leaves its lock files; DVC opens some of its files for writing and fills them after. Called by the one writer of a
workspace before it works. What is taken away here can be made again: outs that DVC's lock does not tell of any more
are made once more by their stage (from the shards in the store), `state/*.dvc` by `dvc add`.
"""

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from zero.storage.layout import DVC_LOCK_FILE, STATE_DIR
from zero.storage.vcs import git

PATIENCE_SECONDS = 2.0
"""A git whose parent was killed may still be at work; a lock that stays longer is nobody's."""
POLL_SECONDS = 0.05

log = logging.getLogger(__name__)


def clear_debris(workspace: Path, lineage: str) -> None:
    """Takes away what killed processes left in a workspace, and what they left of its lineage in the project."""
    locks = [*_workspace_locks(workspace), *_project_locks(workspace, lineage)]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(path.exists() for path in locks) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for path in locks:
        if path.exists():
            log.warning("removed %s, which a killed git left behind", path)
            path.unlink(missing_ok=True)
    for path in (workspace / "record").glob(".*"):  # drafts: git knows no such file
        log.warning("removed %s, which a killed process left half written", path)
        path.unlink()
    _clear_dvc(workspace)


def _workspace_locks(workspace: Path) -> Iterator[Path]:
    folder = workspace / ".git"
    for name in ("index", "HEAD", "config", "packed-refs"):
        if (path := folder / f"{name}.lock").exists():
            yield path
    yield from (folder / "refs").rglob("*.lock")


def _project_locks(workspace: Path, lineage: str) -> Iterator[Path]:
    """Locks that only a push of this lineage makes, where the project is a folder of this machine."""
    origin = Path(git(workspace, "config", "--default", "", "--get", "remote.origin.url").strip())
    folder = origin / ".git" if (origin / ".git").is_dir() else origin
    for kind in ("heads/lineage", "notes/zero-costs"):
        if (path := folder / "refs" / kind / f"{lineage}.lock").exists():
            yield path
    yield from (folder / "refs/tags" / lineage).glob("*.lock")


def _clear_dvc(workspace: Path) -> None:
    rwlock = workspace / ".dvc/tmp/rwlock"
    if rwlock.exists():
        try:
            json.loads(rwlock.read_bytes())
        except ValueError:
            log.warning("removed %s, which a killed DVC left cut short", rwlock)
            rwlock.unlink()
    for path in [workspace / DVC_LOCK_FILE, *sorted((workspace / STATE_DIR).glob("*.dvc"))]:
        if path.exists() and not _is_whole(path.read_bytes()):
            log.warning("%s was cut short by a killed DVC; it is again as it was committed", path)
            path.unlink()
            name = path.relative_to(workspace).as_posix()
            if git(workspace, "ls-tree", "--name-only", "HEAD", "--", name).strip():
                git(workspace, "checkout", "HEAD", "--", name)


def _is_whole(text: bytes) -> bool:
    """True where a file of DVC is not cut short: its last line is complete, and every entry has its hash."""
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
