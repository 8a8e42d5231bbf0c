"""Checks the inputs of a reproduction: champion, trainee, window, package lock and `dvc.lock`.

They must agree with their manifests and with the signed attestation of the tag.
"""

import json
from pathlib import Path
from typing import NamedTuple

from zero.audit.record import SOURCES
from zero.audit.reproduce.pipeline import output_of, recorded_lock
from zero.config.params import PARAMS_FILE
from zero.errors import LineageError, StorageError
from zero.record.attestation import check_named, lineage_key
from zero.record.generation import Generation, recorded_in, required
from zero.record.ledger import FIRST_KINDS
from zero.record.provenance import PLAYER, Attestation, read_envelope, signed_by
from zero.storage.files import checked_path, sha256_bytes, sha256_file
from zero.storage.layout import (
    CHAMPION_DIR,
    CONSTRAINTS_FILE,
    DVC_LOCK,
    GENERATION_FILE,
    PLAYER_DIR,
    PROVENANCE_FILE,
    REPLAY_DIR,
    STATE_DIRS,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import MANIFEST_FILE, FileRef, LedgerEntry
from zero.storage.vcs import dvc, git

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


class Inputs(NamedTuple):
    """The record of a tag, after a check against the files in its clone."""

    entry: LedgerEntry
    attestation: Attestation
    num_files: int


def check_inputs(clone: Path, tag: str) -> Inputs:
    """Checks the inputs in a clone at `tag`.

    Raises:
      LineageError: the clone is not at the tag, or its record is corrupt or not signed by the lineage's key.
      StorageError: a file of the state is missing or corrupt, or has another digest in the attestation.
    """
    generation = recorded_in(clone)
    entry, attestation = _record(generation, clone, tag)
    if missing := [out for out in STATE_DIRS if not (clone / out / MANIFEST_FILE).exists()]:
        dvc(clone, "pull", "--quiet", *missing)
    champion = required(generation.champion, clone / CHAMPION_DIR)
    trainee = required(generation.trainee, clone / TRAINEE_DIR)
    window = required(generation.replay, clone / REPLAY_DIR)
    files: list[tuple[str, FileRef, tuple[str, ...]]] = [
        (CHAMPION_DIR, champion.weights, ("champion",)),
        *_player(generation, clone),
        (TRAINEE_DIR, trainee.trainee, ("trainee",)),
        (TRAINEE_DIR, trainee.optimizer, ("trainee-optimizer",)),
        *((TRAINEE_DIR, file, ()) for file in trainee.files),
        *((REPLAY_DIR, each.shard.file, (f"{WINDOW_DIR}/{each.shard.file.path}",)) for each in window.shards),
    ]
    named = attestation.dependencies | {each.name: each for each in attestation.subject}
    for folder, ref, names in files:
        path = checked_path(ref, clone / folder)
        for name in (*names, f"{folder}/{ref.path}"):
            if name in named:
                _check_digest(str(path), ref.sha256, named[name].sha256, tag)
    for name, found, wanted in (
        (CONSTRAINTS_FILE, sha256_file(clone / CONSTRAINTS_FILE), named[CONSTRAINTS_FILE].sha256),
        (DVC_LOCK, sha256_bytes((recorded_lock(clone) or "").encode()), attestation.internal.lock),
    ):
        _check_digest(str(clone / name), found, wanted, tag)
    return Inputs(entry, attestation, len({folder + ref.path for folder, ref, _ in files}) + 2)


def _player(generation: Generation, clone: Path) -> list[tuple[str, FileRef, tuple[str, ...]]]:
    """The network that plays the games, if self-play overlaps."""
    if required(generation.generation_id, clone / GENERATION_FILE).player is None:
        return []
    return [(PLAYER_DIR, required(generation.player, clone / PLAYER_DIR).weights, (PLAYER,))]


def local_profile(clone: Path) -> dict[str, str]:
    """The execution profile of this machine, computed by the clone's own code."""
    profile: dict[str, str] = json.loads(output_of(clone, "-c", PROFILE_PROGRAM))
    return profile


def _record(generation: Generation, clone: Path, tag: str) -> tuple[LedgerEntry, Attestation]:
    entry = generation.entry
    assert entry is not None
    if tag != generation.tag:
        raise LineageError(
            f"tag {tag} is at generation {entry.generation} of {entry.lineage}: it was moved; `zero audit` reports more"
        )
    data = git(clone, "show", f"HEAD:{PROVENANCE_FILE}").encode()
    envelope = read_envelope(data, f"{tag}:{PROVENANCE_FILE}")
    check_named(envelope, entry, tag)
    if not signed_by(data, lineage_key(clone, "HEAD")):
        raise LineageError(f"the attestation of {tag} is not signed by its lineage's key; `zero audit` reports more")
    _check_sources(clone, entry, envelope.attestation, tag)
    return entry, envelope.attestation


def _check_sources(clone: Path, entry: LedgerEntry, attestation: Attestation, tag: str) -> None:
    """Checks that the code at the tag is that of the attested commit, on which the stages ran."""
    ran, source = git(clone, "rev-parse", "HEAD^").strip(), attestation.dependencies.get("source")
    if source is None or source.digest.get("gitCommit") != ran:
        raise LineageError(
            f"{tag} continues from commit {ran[:12]}, which its attestation does not name; `zero audit` reports more"
        )
    names = [name for name in SOURCES if name != PARAMS_FILE or entry.kind not in FIRST_KINDS]
    if changed := git(clone, "diff", "--name-only", ran, "HEAD", "--", *names).split():
        raise LineageError(
            f"{changed[0]} of {tag} differs from that of {ran[:12]}, on which its stages ran; `zero audit` reports more"
        )


def _check_digest(path: str, found: str, wanted: str, tag: str) -> None:
    if found != wanted:
        raise StorageError(
            f"{path} is {found[:12]}, but the attestation of {tag} names {wanted[:12]}; nothing is computed from it"
        )
