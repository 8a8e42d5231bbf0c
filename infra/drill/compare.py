"""What a finished run left behind, and how two runs differ: tags, objects of DVC, shards of the store."""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from infra.drill.moments import LINEAGE
from infra.drill.project import Place, environment_of, git

DVC_OBJECTS = ".zero/dvc-cache/files/md5"
STORE = ".zero/store"
OBJECT = re.compile(r"^[0-9a-f]{30}(\.dir)?$")


class Outcome(NamedTuple):
    """A run at the end of a generation."""

    tags: dict[str, str]
    """Commit of each tag of the lineage: with equal commit ids, all of the commit is equal, its history as well."""
    files: dict[str, str]
    """`tag:path` -> git's hash of the file; to say where two commits differ."""
    objects: dict[str, str]
    """Objects of DVC: name -> MD5 of the content, which must be the name."""
    shards: dict[str, str]
    """Weights and shards of the store: name -> SHA-256 of the content."""
    receipts: dict[str, int]
    """Times that each shard was played, by its key."""


def outcome_of(place: Place) -> Outcome:
    """Reads what is there."""
    refs = git(place, "for-each-ref", "--format=%(refname:short) %(objectname)", f"refs/tags/{LINEAGE}", "refs/heads")
    tags = dict(line.split() for line in refs.splitlines())
    files = {}
    for tag in tags:
        if tag.startswith(f"{LINEAGE}/"):
            for line in git(place, "ls-tree", "-r", tag).splitlines():
                described, name = line.split("\t")
                files[f"{tag}:{name}"] = described.split()[2]
    store = place.home / STORE
    objects = [path for path in (place.home / DVC_OBJECTS).glob("??/*") if OBJECT.match(path.name)]
    receipts: dict[str, int] = {}
    for path in (store / "receipts").glob("??/[0-9a-f]*.json"):
        key = path.name.split(".")[0]
        receipts[key] = receipts.get(key, 0) + 1
    return Outcome(
        tags=tags,
        files=files,
        objects={f"{path.parent.name}{path.name}": _digest(path, "md5") for path in sorted(objects)},
        shards={path.name: _digest(path, "sha256") for path in sorted(_stored(store))},
        receipts=dict(sorted(receipts.items())),
    )


def differences(wanted: Outcome, found: Outcome) -> list[str]:
    """How a run differs from the uninterrupted one; empty where it does not.

    A receipt is written before its shard, so a shard that was killed between the two has two; how often a *finished*
    shard was played again is told by `played_again`.
    """
    said = []
    for name in sorted(wanted.tags.keys() | found.tags.keys()):
        if wanted.tags.get(name) != found.tags.get(name):
            paths = [p for p in wanted.files.keys() | found.files.keys() if p.startswith(f"{name}:")]
            other = sorted(p for p in paths if wanted.files.get(p) != found.files.get(p))
            said.append(f"{name} is {found.tags.get(name)}, not {wanted.tags.get(name)}: {', '.join(other[:5]) or '?'}")
    for kind, before, after in (("DVC", wanted.objects, found.objects), ("store", wanted.shards, found.shards)):
        said += [f"{kind}: {name} is lost" for name in sorted(before.keys() - after.keys())]
        said += [f"{kind}: {name} is not of the uninterrupted run" for name in sorted(after.keys() - before.keys())]
        said += [f"{kind}: {name} was altered" for name in sorted(after) if after[name] not in name.split(".")]
    said += [f"receipt of {key} is lost" for key in sorted(wanted.receipts.keys() - found.receipts.keys())]
    return said


def played_again(place: Place) -> list[str]:
    """Receipts that are younger than the shard in the store: a finished shard was played once more."""
    store = place.home / STORE
    made = {path.name.split(".")[0]: path.stat().st_mtime_ns for path in store.glob("shards/??/[0-9a-f]*.parquet")}
    said = []
    for path in store.glob("receipts/??/[0-9a-f]*.json"):
        key = path.name.split(".")[0]
        if key in made and path.stat().st_mtime_ns > made[key]:
            said.append(f"shard {key[:12]} was finished, and was played again: {path.name}")
    return said


def damage(place: Place) -> list[str]:
    """Errors that git finds in the project and its workspace, and objects that were quarantined in the store."""
    said = []
    for folder in (place.home, place.workspace):
        words = ["git", "fsck", "--no-dangling", "--no-progress"]
        done = subprocess.run(words, cwd=folder, env=environment_of(place), capture_output=True, text=True, check=False)
        if done.returncode or done.stdout:
            said.append(f"git fsck in {folder.name}: {' | '.join((done.stdout + done.stderr).splitlines())}")
    quarantine = place.home / STORE / "quarantine"
    if quarantine.is_dir() and any(quarantine.iterdir()):
        said.append(f"quarantined in the store: {', '.join(sorted(path.name for path in quarantine.iterdir()))}")
    return said


def write_outcome(path: Path, outcome: Outcome) -> None:
    """Keeps an outcome for a later call of the drill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(outcome._asdict(), sort_keys=True))


def read_outcome(path: Path) -> Outcome:
    """An outcome that was kept."""
    return Outcome(**json.loads(path.read_text()))


def _stored(store: Path) -> list[Path]:
    return [*store.glob("weights/[0-9a-f]*.safetensors"), *store.glob("shards/??/[0-9a-f]*.parquet")]


def _digest(path: Path, name: str) -> str:
    return hashlib.new(name, path.read_bytes(), usedforsecurity=False).hexdigest()
