"""What a generation is computed again from, checked by hash: champion, trainee, window, package lock and `dvc.lock`.

Checked against their manifests and against the signed statement of the tag.
"""

import json
from pathlib import Path
from typing import NamedTuple

from zero.audit.record import SOURCES
from zero.audit.reproduce.pipeline import output_of, recorded_lock
from zero.config.params import PARAMS_FILE
from zero.errors import LineageError, StorageError
from zero.record.attestation import PLAYER, check_named, lineage_key
from zero.record.ledger import FIRST_KINDS, generation_tag, read_ledger
from zero.record.provenance import Statement, read_envelope, signed_by
from zero.storage.files import checked_path, read_manifest, sha256_bytes, sha256_file
from zero.storage.layout import (
    CHAMPION_DIR,
    CONSTRAINTS_FILE,
    DVC_LOCK_FILE,
    GENERATION_FILE,
    PLAYER_DIR,
    PROVENANCE_FILE,
    REPLAY_DIR,
    STATE_OUTS,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import Champion, Checkpoint, FileRef, GenerationId, LedgerEntry, Window
from zero.storage.vcs import dvc, git

PROFILE_PROGRAM = """
import json
from pathlib import Path
from zero.network.profile import execution_profile
from zero.config.params import load_params
print(json.dumps(execution_profile(load_params(Path()).profile)))
"""


class Inputs(NamedTuple):
    """The record of a tag, found to agree with the files in its clone."""

    entry: LedgerEntry
    statement: Statement
    num_files: int


def check_inputs(clone: Path, tag: str) -> Inputs:
    """Checks what a clone at `tag` begins with.

    Raises:
      LineageError: the clone is not at the tag, or its record is altered or not signed by the lineage's key.
      StorageError: a file of the state is missing or altered, or is not the one that the statement names.
    """
    entry, statement = _record(clone, tag)
    if missing := [out for out in STATE_OUTS if not (clone / out / "manifest.json").exists()]:
        dvc(clone, "pull", "--quiet", *missing)
    champion = read_manifest(clone / CHAMPION_DIR, Champion)
    trainee = read_manifest(clone / TRAINEE_DIR, Checkpoint)
    window = read_manifest(clone / REPLAY_DIR, Window)
    named: list[tuple[str, FileRef, tuple[str, ...]]] = [
        (CHAMPION_DIR, champion.weights, ("champion",)),
        *_player(clone),
        (TRAINEE_DIR, trainee.trainee, ("trainee",)),
        (TRAINEE_DIR, trainee.optimizer, ("trainee-optimizer",)),
        *((TRAINEE_DIR, file, ()) for file in trainee.files),
        *((REPLAY_DIR, each.shard.file, (f"{WINDOW_DIR}/{each.shard.file.path}",)) for each in window.shards),
    ]
    said = statement.dependencies | {each.name: each for each in statement.subject}
    for folder, ref, names in named:
        path = checked_path(ref, clone / folder)
        for name in (*names, f"{folder}/{ref.path}"):
            if name in said:
                _check_said(str(path), ref.sha256, said[name].sha256, tag)
    for name, found, wanted in (
        (CONSTRAINTS_FILE, sha256_file(clone / CONSTRAINTS_FILE), said[CONSTRAINTS_FILE].sha256),
        (DVC_LOCK_FILE, sha256_bytes((recorded_lock(clone) or "").encode()), statement.found.lock),
    ):
        _check_said(str(clone / name), found, wanted, tag)
    return Inputs(entry, statement, len({folder + ref.path for folder, ref, _ in named}) + 2)


def _player(clone: Path) -> list[tuple[str, FileRef, tuple[str, ...]]]:
    """Who plays the games where self-play overlaps."""
    if read_manifest(clone, GenerationId, GENERATION_FILE).player is None:
        return []
    return [(PLAYER_DIR, read_manifest(clone / PLAYER_DIR, Champion).weights, (PLAYER,))]


def profile_here(clone: Path) -> dict[str, str]:
    """The execution profile of this machine, as the clone's own code tells it."""
    profile: dict[str, str] = json.loads(output_of(clone, "-c", PROFILE_PROGRAM))
    return profile


def _record(clone: Path, tag: str) -> tuple[LedgerEntry, Statement]:
    entry = read_ledger(clone)[-1]
    if tag != generation_tag(entry.lineage, entry.generation):
        raise LineageError(
            f"tag {tag} is at generation {entry.generation} of {entry.lineage}: it was moved; `zero audit` says more"
        )
    data = git(clone, "show", f"HEAD:{PROVENANCE_FILE}").encode()
    envelope = read_envelope(data, f"{tag}:{PROVENANCE_FILE}")
    check_named(envelope, entry, tag)
    if not signed_by(data, lineage_key(clone, "HEAD")):
        raise LineageError(f"the statement of {tag} is not signed by its lineage's key; `zero audit` says more")
    _check_sources(clone, entry, envelope.statement, tag)
    return entry, envelope.statement


def _check_sources(clone: Path, entry: LedgerEntry, statement: Statement, tag: str) -> None:
    """Checks that the code at the tag is that of the commit that the statement names, on which the stages ran."""
    ran, source = git(clone, "rev-parse", "HEAD^").strip(), statement.dependencies.get("source")
    if source is None or source.digest.get("gitCommit") != ran:
        raise LineageError(
            f"{tag} goes on from commit {ran[:12]}, which its signed statement does not name; `zero audit` says more"
        )
    names = [name for name in SOURCES if name != PARAMS_FILE or entry.kind not in FIRST_KINDS]
    if changed := git(clone, "diff", "--name-only", ran, "HEAD", "--", *names).split():
        raise LineageError(
            f"{changed[0]} of {tag} is not that of {ran[:12]}, on which its stages ran; `zero audit` says more"
        )


def _check_said(path: str, found: str, wanted: str, tag: str) -> None:
    if found != wanted:
        raise StorageError(
            f"{path} is {found[:12]}, the signed statement of {tag} says {wanted[:12]}; nothing is computed from it"
        )
