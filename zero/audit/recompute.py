"""Runs a tag's own stages, as its `dvc.yaml` names them, in a clone of the project at that tag."""

import contextlib
import graphlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from zero.config.settings import PROGRESS_OFF, STORE_OFF, is_quiet
from zero.errors import LineageError
from zero.lineage.recovery import recover_dvc
from zero.lineage.workspace import WRITER_VARIABLE, checkout_generation
from zero.storage.files import canonical_json, read_manifest, sha256_bytes, write_manifest
from zero.storage.layout import DVC_LOCK, PIPELINE_FILE, STATE_DIRS
from zero.storage.manifests import Manifest
from zero.storage.store import Store, StoredShard
from zero.storage.vcs import dvc, environment, git

NOTES_FILE = "zero-reproduce.json"
OUT_KINDS = ("outs", "metrics", "plots")
HIDDEN = ("MLFLOW_TRACKING_URI", "ZERO_PROGRESS", WRITER_VARIABLE)
"""Environment variables of the project that a command in a clone must not inherit."""


class ComparedOutput(Manifest):
    """One recomputed output."""

    path: str
    then: str
    """Digest in the record; empty if the record has none."""
    now: str
    """Digest of the recomputed output; empty if there is none."""
    first: str | None = None
    """Description of the first difference."""

    @property
    def equal(self) -> bool:
        """True if it came out the same."""
        return self.then == self.now and self.first is None


class StageResult(Manifest):
    """A recomputed stage."""

    stage: str
    seconds: float
    outs: tuple[ComparedOutput, ...]

    @property
    def equal(self) -> bool:
        """True if all its outputs came out the same."""
        return all(out.equal for out in self.outs)


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
        if keep.exists() and not keep.is_dir():
            raise LineageError(f"{keep} is a file; name a new folder, or one that --keep made for {tag}")
        if keep.exists() and any(keep.iterdir()):
            raise LineageError(f"{keep} is not empty; name a new folder, or one that --keep made for {tag}")
        keep.parent.mkdir(parents=True, exist_ok=True)
        building = keep.with_name(f".{keep.name}.part")
        shutil.rmtree(building, ignore_errors=True)
        _new_clone(home, tag, outs, building).rename(keep)
    notes = read_notes(keep)
    if (notes.tag, notes.commit) != (tag, git(home, "rev-parse", f"refs/tags/{tag}^{{commit}}").strip()):
        raise LineageError(
            f"{keep} holds {notes.tag} at {notes.commit[:12]}; name a new folder for {tag}, or remove it"
        )
    recover_dvc(keep)  # an earlier call may have been killed
    yield keep


def read_notes(clone: Path) -> Notes:
    """Progress noted in a clone."""
    return read_manifest(clone / ".git", Notes, NOTES_FILE)


def note_done(clone: Path, result: StageResult) -> None:
    """Notes that a stage is done."""
    notes = read_notes(clone)
    write_manifest(clone / ".git", notes.model_copy(update={"done": (*notes.done, result)}), NOTES_FILE)


def fetch_recorded(home: Path, tag: str, out: str, clone: Path) -> Path | None:
    """A recorded output of a tag; None if its data is neither on this machine nor on the remote.

    Args:
      home: the project's folder.
      tag: the generation.
      out: path of the output.
      clone: folder of a clone for recorded data, which the first call makes. Only a difference needs one.
    """
    if not clone.exists():
        checkout_generation(home, tag, clone, (STATE_DIRS[0],))
    for verb in ("checkout", "pull"):
        if not (clone / out).exists():
            with contextlib.suppress(LineageError):
                dvc(clone, verb, "--quiet", out)
    return clone / out if (clone / out).exists() else None


def stages_of(clone: Path) -> dict[str, tuple[str, ...]]:
    """Outputs of every stage of the tag, in an order in which the stages can run."""
    found = yaml.safe_load((clone / PIPELINE_FILE).read_text()).get("stages") or {}
    outs = {name: tuple(path for kind in OUT_KINDS for path in _paths(each.get(kind))) for name, each in found.items()}
    made_by = {out: name for name, paths in outs.items() for out in paths}
    needs = {name: {made_by[dep] for dep in _paths(each.get("deps")) if dep in made_by} for name, each in found.items()}
    return {name: outs[name] for name in graphlib.TopologicalSorter(needs).static_order()}


def recorded_lock(clone: Path) -> str | None:
    """Text of the tag's `dvc.lock`; None if no stage ran."""
    if not git(clone, "ls-tree", "HEAD", "--", DVC_LOCK).strip():
        return None
    return git(clone, "show", f"HEAD:{DVC_LOCK}")


def out_hashes(lock: str, stage: str) -> dict[str, str]:
    """MD5 of a stage's outputs in the text of a `dvc.lock`, by path."""
    return {out["path"]: out["md5"] for out in yaml.safe_load(lock)["stages"].get(stage, {}).get("outs", [])}


def check_stages(stages: Sequence[str], lock: str) -> None:
    """Checks that the stages to recompute are those in a `dvc.lock`.

    Raises:
      LineageError: they differ, so that equal outputs would not cover the record.
    """
    declared, locked = (", ".join(sorted(names)) or "none" for names in (stages, yaml.safe_load(lock)["stages"]))
    if declared != locked:
        raise LineageError(
            f"{PIPELINE_FILE} has the stages {declared}, {DVC_LOCK} has {locked}, so the record cannot be recomputed "
            "completely; `zero audit` reports more"
        )


def compute_again(clone: Path, stage: str, outs: tuple[str, ...]) -> float:
    """Runs a stage with the clone's own code and without a store of shards, and returns the seconds that it took.

    Raises:
      LineageError: it failed.
    """
    for out in outs:  # removed first, so that all outputs found afterwards were computed
        shutil.rmtree(clone / out, ignore_errors=True)
        (clone / out).unlink(missing_ok=True)
    started = time.monotonic()
    run_python(clone, "-m", "dvc", "repro", "--quiet", "--force", "--single-item", stage, ZERO_STORE=STORE_OFF)
    seconds = time.monotonic() - started
    if missing := [out for out in outs if not (clone / out).exists()]:
        raise LineageError(f"stage {stage} did not write {missing[0]} in {clone}; see its {PIPELINE_FILE}")
    return seconds


def play_shard(clone: Path, stage: str, index: int, store: Path) -> StoredShard:
    """Plays one shard of a stage with the clone's own code.

    Args:
      clone: the clone, with the weights that play.
      stage: selfplay or gating.
      index: index of the shard in the stage's plan.
      store: folder of a store without the shard.

    Raises:
      LineageError: it cannot be played.
    """
    spec = run_python(clone, "-m", "zero", "plan", stage, ZERO_STORE=str(store)).splitlines()[index]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(spec)
        file.flush()
        run_python(clone, "-m", "zero", "shard", file.name, ZERO_STORE=str(store))
    found = Store(str(store)).get_shard(sha256_bytes(canonical_json(json.loads(spec))))
    if found is None:
        raise LineageError(f"shard {index} of {stage} was played in {clone}, but is not in its store")
    return found


def run_python(clone: Path, *command: str, **variables: str) -> str:
    """Output of a Python command that runs with the clone's own code. Its progress and log go to standard error.

    Raises:
      LineageError: it failed.
    """
    inherited = {name: value for name, value in environment().items() if name not in HIDDEN}
    if is_quiet():
        inherited["ZERO_PROGRESS"] = PROGRESS_OFF
    done = subprocess.run(
        [sys.executable, *command],
        cwd=clone,
        env={**inherited, "ZERO_HOME": str(clone), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        shown = " ".join(word if "\n" not in word else "..." for word in command)
        raise LineageError(f"`python {shown}` failed in {clone}; its log is above")
    return done.stdout


def _new_clone(home: Path, tag: str, outs: Sequence[str], folder: Path) -> Path:
    checkout_generation(home, tag, folder, outs)
    commit = git(folder, "rev-parse", "HEAD").strip()
    write_manifest(folder / ".git", Notes(tag=tag, commit=commit, done=()), NOTES_FILE)
    return folder


def _paths(entries: Any) -> list[str]:
    """Paths in a list of dvc.yaml, whose entries are paths or `{path: settings}`."""
    return [str(next(iter(entry))) if isinstance(entry, dict) else str(entry) for entry in entries or []]
