"""What a run left behind: digests to compare with the undisturbed run, and stale files."""

import hashlib
import json
import re

from tests.end_to_end.project import git, run
from tests.faults.drill.project import LINEAGE, Project
from zero.lineage.recovery import DVC_FOLDERS
from zero.lineage.workspace import WRITER_LOCK_FILE

DVC_OBJECT = re.compile(r"^[0-9a-f]{30}(\.dir)?$")


def digests(project: Project) -> dict[str, str]:
    """Digest of each tag and branch (git's commit id), DVC object, set of weights and shard, and the receipts' keys."""
    refs = git(project.home, "for-each-ref", "--format=%(refname) %(objectname)", f"refs/tags/{LINEAGE}", "refs/heads")
    found = dict(line.split() for line in refs.splitlines())
    for tag in [name for name in found if name.startswith("refs/tags/")]:  # says where two commits differ
        for line in git(project.home, "ls-tree", "-r", tag).splitlines():
            found[f"{tag}:{line.split()[3]}"] = line.split()[2]
    store, cache = project.home / ".zero/store", project.home / ".zero/dvc-cache/files/md5"
    objects = [path for path in cache.glob("??/*") if DVC_OBJECT.match(path.name)]
    for path in (*objects, *store.glob("weights/[0-9a-f]*"), *store.glob("shards/??/[0-9a-f]*")):
        name = path.relative_to(project.home / ".zero").as_posix()
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    receipts = store.glob("receipts/??/[0-9a-f]*.json")  # two, if the worker died between receipt and shard
    return found | {f"receipt of {path.name.split('.')[0]}": "" for path in receipts}


def violations(project: Project, expected: dict[str, str]) -> list[str]:
    """How a run differs from the undisturbed one, and what is stale or damaged; empty if nothing."""
    found = digests(project)
    said = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    said += [f"{name} is not in the undisturbed run" for name in sorted(found.keys() - expected.keys())]
    said += [f"{name} differs" for name in sorted(found.keys() & expected.keys()) if found[name] != expected[name]]
    return said + _replayed(project) + _stale(project) + _damaged(project)


def _replayed(project: Project) -> list[str]:
    """Receipts that are younger than their shard: a finished shard was played again."""
    store = project.home / ".zero/store"
    finished = {path.name.split(".")[0]: path.stat().st_mtime_ns for path in store.glob("shards/??/[0-9a-f]*")}
    receipts = [(path.name.split(".")[0], path) for path in store.glob("receipts/??/[0-9a-f]*.json")]
    return [
        f"shard {key[:12]} was finished, and was played again"
        for key, path in receipts
        if path.stat().st_mtime_ns > finished.get(key, path.stat().st_mtime_ns)
    ]


def _stale(project: Project) -> list[str]:
    """Locks, temporary files and processes that remain. Hidden files of the store may: docs/crashes.md."""
    workspace = project.workspace
    paths = [path for folder in (project.home, workspace) for path in (folder / ".git").rglob("*.lock")]
    paths = [path for path in paths if path.name != WRITER_LOCK_FILE]  # a lock only while a process holds it
    paths += [*workspace.glob("record/.*"), *workspace.glob("state/.*.next"), *workspace.glob(".zero/training-*")]
    paths += [path for name in DVC_FOLDERS for path in (workspace / name).rglob(".*.tmp")]
    rwlock = workspace / ".dvc/tmp/rwlock"
    if rwlock.exists() and any(json.loads(rwlock.read_text()).values()):  # who reads and who writes
        paths.append(rwlock)
    stale = [f"stale: {path.relative_to(project.home)}" for path in paths]
    return stale + [f"still running: {' '.join(process.cmdline()[1:])}" for process in project.processes()]


def _damaged(project: Project) -> list[str]:
    """Errors of git, and objects that the store quarantined."""
    said = [f"quarantined: {path.name}" for path in project.home.glob(".zero/store/quarantine/*")]
    for folder in (project.home, project.workspace):
        done = run(["git", "fsck", "--no-dangling", "--no-progress"], folder, check=False)
        if done.returncode or done.stdout:
            said.append(f"git fsck in {folder.name}: {' | '.join((done.stdout + done.stderr).splitlines())}")
    return said
