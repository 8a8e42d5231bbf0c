"""Runs a tag's own stages, as its `dvc.yaml` and `dvc.lock` name them, in a clone."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from zero.config.settings import STORE_OFF
from zero.errors import LineageError
from zero.progress import progress_of
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.layout import DVC_LOCK, PIPELINE_FILE
from zero.storage.store import Store, StoredShard
from zero.storage.vcs import environment, git

UNITS = {"training": "steps"}
"""Unit of a stage's progress, if it is not games."""
OUT_KINDS = ("outs", "metrics", "plots")
NUM_TAIL_LINES = 30
NO_LOCK = f"{DVC_LOCK} cannot be read; restore it with `git checkout` at the tag"


def stages_of(clone: Path) -> dict[str, tuple[str, ...]]:
    """Outputs of every stage of the tag, in an order in which the stages can run.

    Raises:
      LineageError: its `dvc.yaml` cannot be read.
    """
    found = _tree(clone, PIPELINE_FILE).get("stages", {})
    outs = {name: tuple(path for kind in OUT_KINDS for path in _paths(each.get(kind))) for name, each in found.items()}
    needs = {name: set(_paths(each.get("deps"))) for name, each in found.items()}
    ordered: dict[str, tuple[str, ...]] = {}
    while waiting := [name for name in outs if name not in ordered]:
        ready = [n for n in waiting if not any(needs[n] & set(outs[other]) for other in waiting if other != n)]
        if not ready:
            raise LineageError(f"the stages {', '.join(waiting)} of {clone}/{PIPELINE_FILE} depend on each other")
        ordered[ready[0]] = outs[ready[0]]
    return ordered


def recorded_lock(clone: Path) -> str | None:
    """Text of the tag's `dvc.lock`; None if no stage ran."""
    if not git(clone, "ls-tree", "HEAD", "--", DVC_LOCK).strip():
        return None
    return git(clone, "show", f"HEAD:{DVC_LOCK}")


def out_hashes(lock: str, stage: str) -> dict[str, str]:
    """MD5 of a stage's outputs in the text of a `dvc.lock`, by path.

    Raises:
      LineageError: the text is not a lock file.
    """
    try:
        return {out["path"]: out["md5"] for out in _locked(lock).get(stage, {}).get("outs", [])}
    except (AttributeError, KeyError, TypeError):
        raise LineageError(NO_LOCK) from None


def check_stages(stages: Iterable[str], lock: str) -> None:
    """Checks that the stages to recompute are those in a `dvc.lock`.

    Raises:
      LineageError: they differ, so that equal outputs would not cover the record; or the text is not a lock file.
    """
    declared, locked = (", ".join(sorted(names)) or "none" for names in (stages, _locked(lock)))
    if declared != locked:
        raise LineageError(
            f"{PIPELINE_FILE} has the stages {declared}, {DVC_LOCK} has {locked}, so the record cannot be recomputed "
            "completely; `zero audit` reports more"
        )


def compute_again(clone: Path, stage: str, outs: tuple[str, ...]) -> float:
    """Runs a stage with the clone's own code and without a store of shards.

    Its outputs are removed first, so that all outputs found afterwards were computed.

    Returns:
      Seconds that it took.

    Raises:
      LineageError: it failed; the message holds the end of its log.
    """
    for out in outs:
        path = clone / out
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    started = time.monotonic()
    lines = _watch(clone, stage, ("-m", "dvc", "repro", "--force", "--single-item", stage), STORE_OFF)
    seconds = time.monotonic() - started
    if missing := [out for out in outs if not (clone / out).exists()]:
        raise LineageError(f"stage {stage} did not write {missing[0]} in {clone}: {_log_tail(lines)}")
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
    spec = output_of(clone, "-m", "zero", "plan", stage, ZERO_STORE=str(store)).splitlines()[index]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(spec)
        file.flush()
        _watch(clone, stage, ("-m", "zero", "shard", file.name), str(store))
    found = Store(str(store)).get_shard(sha256_bytes(canonical_json(json.loads(spec))))
    if found is None:
        raise LineageError(f"shard {index} of {stage} was played in {clone}, but is not in its store")
    return found


def output_of(clone: Path, *command: str, **variables: str) -> str:
    """Output of a Python command that runs with the clone's own code.

    Raises:
      LineageError: it failed; the message holds the end of its log.
    """
    done = subprocess.run(
        [sys.executable, *command],
        cwd=clone,
        env=_environment(clone, **variables),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        shown = " ".join(word if len(word) < NUM_TAIL_LINES else "..." for word in command)
        raise LineageError(f"`python {shown}` failed in {clone}: {_log_tail(done.stderr.strip().splitlines())}")
    return done.stdout


def _watch(clone: Path, stage: str, command: Sequence[str], store: str) -> list[str]:
    """Runs a Python command in the clone, shows its progress, and returns the end of its log."""
    tail: list[str] = []
    with (
        progress_of(stage, UNITS.get(stage, "games")) as progress,
        subprocess.Popen(
            [sys.executable, *command],
            cwd=clone,
            env=_environment(clone, ZERO_STORE=store, ZERO_PROGRESS="json"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout
        try:
            for line in process.stdout:
                event = _event(line)
                if event is not None:
                    progress(int(event["done"]), int(event["total"]))
                elif line.strip():
                    tail = [*tail, line.strip()][-NUM_TAIL_LINES:]
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise LineageError(f"stage {stage} failed in {clone}: {_log_tail(tail)}")
    return tail


def _environment(clone: Path, **variables: str) -> dict[str, str]:
    """Environment of a command in the clone, without the project's servers and settings."""
    hidden = ("MLFLOW_TRACKING_URI", "ZERO_PROGRESS", "ZERO_WRITER")
    return {**{k: v for k, v in environment().items() if k not in hidden}, "ZERO_HOME": str(clone), **variables}


def _event(line: str) -> Mapping[str, Any] | None:
    if not line.startswith('{"event"'):
        return None
    event: Mapping[str, Any] = json.loads(line)
    return event if event["event"] == "progress" else None


def _locked(lock: str) -> dict[str, Any]:
    try:
        stages: dict[str, Any] = dict((yaml.safe_load(lock) or {}).get("stages", {}))
        return stages
    except (yaml.YAMLError, AttributeError, TypeError, ValueError):
        raise LineageError(NO_LOCK) from None


def _tree(clone: Path, name: str) -> dict[str, Any]:
    try:
        tree = yaml.safe_load((clone / name).read_text())
    except (OSError, yaml.YAMLError):
        tree = None
    if not isinstance(tree, dict):
        raise LineageError(f"{clone / name} cannot be read; the tag is not a generation of this program")
    return tree


def _paths(entries: Any) -> list[str]:
    """Paths in a list of dvc.yaml, whose entries are paths or `{path: settings}`."""
    return [os.fspath(next(iter(entry))) if isinstance(entry, dict) else str(entry) for entry in entries or []]


def _log_tail(lines: list[str]) -> str:
    ours = [line.removeprefix("zero: ") for line in lines if line.startswith("zero: ")]
    errors = [line for line in lines if line.lower().startswith(("error", "fatal"))]
    return (ours or errors or lines or ["(no output)"])[-1]
