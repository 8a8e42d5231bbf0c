"""`zero reproduce`: recomputes a recorded generation with its own code, and compares every digest.

Every stage runs in a clean clone at the tag, without the store of shards. `dvc.lock` must come out the same, byte for
byte; otherwise the first difference in the data is reported. A generation without stages is made again from its inputs:
the seeded network from the parameters, a rollback or a branch from its source.
"""

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from zero.audit.attestation import check_attestation, check_signature
from zero.audit.differences import file_difference, first_difference
from zero.audit.findings import AuditCheck, Finding
from zero.audit.match import check_parent
from zero.audit.recompute import (
    ComparedOutput,
    StageResult,
    check_stages,
    clone_at,
    compute_again,
    fetch_recorded,
    note_done,
    out_hashes,
    play_shard,
    read_notes,
    recorded_lock,
    run_python,
    stages_of,
)
from zero.audit.record import check_code, check_constraints, check_lock, check_tag
from zero.config.params import PARAMS_FILE, load_params
from zero.errors import LineageError, StorageError
from zero.lineage.rollback import restore_next_state, rewrite_window_manifest
from zero.lineage.workspace import current_generation
from zero.record.generation import Generation, required
from zero.record.history import entry_at
from zero.record.lineages import ProjectRecord
from zero.record.provenance import Attestation
from zero.storage.files import canonical_json, checked_path, read_manifest, sha256_bytes
from zero.storage.layout import CHALLENGER_DIR, DVC_LOCK, GENERATION_FILE, SHARD_DIRS, STATE_DIRS, workspace_dir
from zero.storage.manifests import MANIFEST_FILE, GameSet, LedgerEntry, Manifest
from zero.storage.vcs import configure_dvc, dvc, git

CHECKS = (
    (AuditCheck.TAG, check_tag),
    (AuditCheck.LOCK, check_lock),
    (AuditCheck.CODE, check_code),
    (AuditCheck.CONSTRAINTS, check_constraints),
    (AuditCheck.ATTESTATION, check_signature),
    (AuditCheck.ATTESTATION, check_attestation),
)
"""Checks of an audit that must find nothing before anything is computed. `_check_inputs` adds the
parent's. Most of the others read outputs."""
FORGED = "the files are equal, but the record has another digest"
LOST = "the recorded data is neither on this machine nor on the remote, so the place is unknown"
PROFILE_PROGRAM = """
import json
from pathlib import Path
from zero.network.profile import execution_profile
try:
    from zero.config.params import load_params
except ImportError:
    from zero.params import load_params
print(json.dumps(execution_profile(load_params(Path()).profile)))
"""
"""Runs with the code of the tag. Tags before November 2026 have the parameters in `zero.params`."""

Listener = Callable[[str], None]
"""Called with a line of progress for the terminal."""


class Reproduction(Manifest):
    """A recomputed generation."""

    tag: str
    commit: str
    kind: str
    """Kind in the ledger: start, decision, rollback or branch."""
    profile_then: dict[str, str]
    profile_now: dict[str, str]
    stages: tuple[StageResult, ...]
    lock_equal: bool | None
    """True if dvc.lock came out the same, byte for byte; None if it was not written again."""
    folder: str | None = None
    """Folder in which everything is kept."""

    @property
    def equal(self) -> bool:
        """True if everything came out the same."""
        return all(stage.equal for stage in self.stages) and self.lock_equal is not False

    @property
    def other_profile(self) -> dict[str, tuple[str, str]]:
        """Differing entries of the profiles by name: then and now."""
        names = [*self.profile_then, *(name for name in self.profile_now if name not in self.profile_then)]
        pairs = {name: (self.profile_then.get(name, "-"), self.profile_now.get(name, "-")) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def reproduce(home: Path, tag: str, listen: Listener, keep: Path | None = None) -> Reproduction:
    """Recomputes a generation and compares it with the record.

    Args:
      home: the project's folder.
      tag: the generation.
      listen: receives lines of progress.
      keep: folder in which everything stays. If an earlier call there was interrupted, this one continues it.

    Raises:
      LineageError: the tag is unknown, or a stage fails.
      StorageError: the record or an input is missing or corrupt; nothing is computed then.
    """
    entry = entry_at(home, tag)
    with clone_at(home, tag, STATE_DIRS, keep) as clone:
        attestation = _check_inputs(home, clone, tag, STATE_DIRS, listen)
        lock = recorded_lock(clone)
        if lock is None:
            stages = [_state_again(home, clone, entry, tag)]
        else:
            stages = [*_stages_again(home, clone, lock, tag, listen)]
        lock_equal = None if lock is None else (clone / DVC_LOCK).read_text() == lock
        folder = None if keep is None else str(clone)
        return _reproduction(clone, attestation, entry, stages, lock_equal, folder)


def sample(home: Path, tag: str, num_shards: int, listen: Listener) -> Reproduction:
    """Plays random shards of a generation's self-play and match again, and compares their SHA-256.

    Args:
      home: the project's folder.
      tag: the generation.
      num_shards: number of shards of each of the two; all if there are fewer.
      listen: receives lines of progress.

    Raises:
      LineageError: the tag is unknown, has no games, or a shard cannot be played.
      StorageError: the record or an input is missing or corrupt.
    """
    entry = entry_at(home, tag)
    if entry.decision is None:
        raise LineageError(f"{tag} has no games; recompute its state with `zero reproduce {tag}`")
    outs = (*STATE_DIRS, CHALLENGER_DIR, *SHARD_DIRS.values())
    with clone_at(home, tag, outs, None) as clone:
        attestation = _check_inputs(home, clone, tag, outs, listen)
        stages = []
        for stage, folder in SHARD_DIRS.items():
            stages.append(_shards_again(clone, attestation, stage, folder, num_shards))
            listen(_progress_line(stages[-1]))
        return _reproduction(clone, attestation, entry, stages)


def _check_inputs(home: Path, clone: Path, tag: str, outs: Sequence[str], listen: Listener) -> Attestation:
    """Checks the record of a tag as an audit does, and the files of the state in its clone. Pulls missing `outs`.

    Returns the attestation.
    """
    with ProjectRecord(home) as record:
        generation = record.generation(tag)
        if missing := [o for o in outs if not (generation.is_here(o) and (clone / o / MANIFEST_FILE).exists())]:
            dvc(clone, "pull", "--quiet", *missing)
        # Champion, trainee and window are inputs of the stages. Without stages they are what is made again.
        parent = ((AuditCheck.PARENT, check_parent),) if recorded_lock(clone) is not None else ()
        for check, function in (*CHECKS, *parent):
            for mismatch in function(generation):
                finding = Finding(tag=tag, check=check, **mismatch._asdict())
                raise StorageError(f"{finding.line()}; nothing is computed from it")
        return _check_files(generation, clone, listen)


def _check_files(generation: Generation, clone: Path, listen: Listener) -> Attestation:
    assert generation.attestation is not None  # the checks above read it
    for out, manifest in zip(STATE_DIRS, (generation.champion, generation.trainee, generation.old_window), strict=True):
        required(manifest, clone / out)
    files = [checked_path(ref, clone / out) for out in STATE_DIRS for ref in generation.file_refs(out)]
    number = len(files) + 2  # constraints.txt and dvc.lock
    listen(f"{number} input files have the digests in their manifests and in the attestation of {generation.tag}")
    return generation.attestation


def _reproduction(
    clone: Path,
    attestation: Attestation,
    entry: LedgerEntry,
    stages: list[StageResult],
    lock_equal: bool | None = None,
    folder: str | None = None,
) -> Reproduction:
    notes = read_notes(clone)
    return Reproduction(
        tag=notes.tag,
        commit=notes.commit,
        kind=entry.kind,
        profile_then=attestation.internal.profile,
        profile_now=json.loads(run_python(clone, "-c", PROFILE_PROGRAM)),
        stages=tuple(stages),
        lock_equal=lock_equal,
        folder=folder,
    )


def _stages_again(home: Path, clone: Path, lock: str, tag: str, listen: Listener) -> Iterator[StageResult]:
    done = {result.stage: result for result in read_notes(clone).done}
    stages = stages_of(clone)
    check_stages([*stages], lock)
    with tempfile.TemporaryDirectory(prefix="zero-recorded-") as scratch:
        for stage, outs in stages.items():
            if stage in done:
                listen(f"{stage}: done by an earlier call")
                yield done[stage]
                continue
            seconds = compute_again(clone, stage, outs)
            then, now = out_hashes(lock, stage), out_hashes((clone / DVC_LOCK).read_text(), stage)
            compared = []
            for out in dict.fromkeys((*then, *outs, *now)):
                first = None
                if then.get(out) != now.get(out):
                    recorded = fetch_recorded(home, tag, out, Path(scratch) / "clone")
                    first = LOST if recorded is None else first_difference(recorded, clone / out) or FORGED
                compared.append(ComparedOutput(path=out, then=then.get(out, ""), now=now.get(out, ""), first=first))
            result = StageResult(stage=stage, seconds=seconds, outs=tuple(compared))
            note_done(clone, result)
            listen(_progress_line(result))
            yield result


def _shards_again(clone: Path, attestation: Attestation, stage: str, folder: str, num_shards: int) -> StageResult:
    started = time.monotonic()
    recorded = attestation.dependencies
    shards = read_manifest(clone / folder, GameSet).shards
    chosen = sorted(random.SystemRandom().sample(range(len(shards)), min(num_shards, len(shards))))
    outs = []
    with tempfile.TemporaryDirectory(prefix="zero-store-") as store:
        for index in chosen:
            name = f"{folder}/{shards[index].file.path}"
            shard = play_shard(clone, stage, index, Path(store))
            first = file_difference((clone / name).read_bytes(), shard.data, Path(name).suffix)
            outs.append(ComparedOutput(path=name, then=recorded[name].sha256, now=shard.sha256, first=first))
    return StageResult(stage=stage, seconds=time.monotonic() - started, outs=tuple(outs))


def _state_again(home: Path, clone: Path, entry: LedgerEntry, tag: str) -> StageResult:
    """Makes the state of a generation without stages again, and compares it with the clone's."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zero-reproduce-") as scratch:
        folder = Path(scratch) / "again"
        if entry.kind == "start":
            made = _new_start(home, clone, entry, tag, folder)
        else:
            made = _new_restored(home, entry, folder)
        outs = [_compare_out(clone, made, out) for out in STATE_DIRS]
        # the resignation threshold and the player
        now = current_generation(made)
        if entry.kind != "start":  # the file is that of its source
            now = now.model_copy(update={"lineage": entry.lineage, "number": entry.generation})
        texts = canonical_json(current_generation(clone)), canonical_json(now)
        first, digests = file_difference(*texts, ".json"), [sha256_bytes(text) for text in texts]
        outs.append(ComparedOutput(path=GENERATION_FILE, then=digests[0], now=digests[1], first=first))
    return StageResult(stage=entry.kind, seconds=time.monotonic() - started, outs=tuple(outs))


def _new_start(home: Path, clone: Path, entry: LedgerEntry, tag: str, folder: Path) -> Path:
    """The workspace of a lineage that `zero new` makes, with the code of the recorded one."""
    git(clone, "clone", "--quiet", "--single-branch", "--branch", tag, str(home), str(folder))
    git(folder, "checkout", "--quiet", "--detach", "HEAD^")
    git(folder, "tag", "--delete", *git(folder, "tag", "--list", f"{entry.lineage}/gen-*").split())
    if dataset := load_params(clone).dataset.rstrip("/"):
        configure_dvc(folder, home)
        dvc(folder, "pull", "--quiet", f"{dataset}.dvc")
        git(folder, "checkout", "--quiet", "--", ".dvc")  # the remote that `configure_dvc` wrote
    run_python(folder, "-m", "zero", "new", entry.lineage, "--params", str(clone / PARAMS_FILE))
    return workspace_dir(folder, entry.lineage)


def _new_restored(home: Path, entry: LedgerEntry, folder: Path) -> Path:
    """A clone at the source of a rollback or a branch, with the restored state."""
    assert entry.source is not None
    restored = restore_next_state(home, entry.source.tag, folder)
    if restored.source != entry.source:
        raise LineageError(
            f"{entry.source.tag} is not the generation that {entry.lineage} names as its source: the tag was moved, or "
            "its ledger is corrupt; `zero audit` reports more"
        )
    if entry.kind == "branch":
        rewrite_window_manifest(folder, entry.lineage, restored)
    return folder


def _compare_out(clone: Path, made: Path, out: str) -> ComparedOutput:
    """Compares a folder of the state by the MD5 in its `.dvc` file."""
    texts = ((folder / f"{out}.dvc").read_text() for folder in (clone, made))
    then, now = (yaml.safe_load(text)["outs"][0]["md5"] for text in texts)
    first = None if then == now else first_difference(clone / out, made / out)
    return ComparedOutput(path=out, then=then, now=now, first=first)


def _progress_line(result: StageResult) -> str:
    verdict = "equal" if result.equal else "DIFFERS"
    return f"{result.stage}: {verdict} after {result.seconds:.1f} s"
