"""Makes the attestation of a generation from the workspace in which it was made, and reads it back from a tag."""

from collections.abc import Mapping
from pathlib import Path

from zero.config.settings import home_dir
from zero.errors import LineageError, StorageError
from zero.network.profile import execution_profile
from zero.record.generation import Generation, required
from zero.record.ledger import generation_tag, parse_ledger
from zero.record.provenance import (
    BUILD_TYPE,
    PARENT,
    PLAYER,
    Attestation,
    BuildDefinition,
    Envelope,
    ExternalParameters,
    InternalParameters,
    Metadata,
    Predicate,
    Resource,
    RunDetails,
    attestation_bytes,
    attestation_digest,
    read_envelope,
    sign,
    signed_by,
)
from zero.record.signing import public_pem, signing_key
from zero.storage.files import sha256_file, write_atomic
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    CONSTRAINTS_FILE,
    DATA_DIRS,
    GAMES_DIR,
    KEY_FILE,
    LEDGER_FILE,
    MATCH_DIR,
    METRICS_FILES,
    PLAYER_DIR,
    PROVENANCE_FILE,
    REPLAY_DIR,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import MANIFEST_FILE, Checkpoint, FileRef, LedgerEntry, PromotionDecision
from zero.storage.vcs import git


def check_key(workspace: Path) -> None:
    """Checks that this machine's key signs the lineage.

    Raises:
      LineageError: another key does.
    """
    key = signing_key(home_dir(workspace))
    if git(workspace, "show", f"HEAD:{KEY_FILE}").encode() != public_pem(key):
        raise LineageError(
            f"the lineage in {workspace} is signed with another key than this machine's; set ZERO_SIGNING_KEY to its "
            f"private key (the public one is {KEY_FILE}), or continue under your own key with `zero branch`"
        )


def write_attestation(workspace: Path, attestation: Attestation) -> str:
    """Signs an attestation, writes it and the public key into the record, and returns its digest for the ledger."""
    key = signing_key(home_dir(workspace))
    payload = attestation_bytes(attestation)
    write_atomic(workspace / PROVENANCE_FILE, sign(payload, key))
    if not (path := workspace / KEY_FILE).exists() or path.read_bytes() != public_pem(key):
        write_atomic(path, public_pem(key))
    return attestation_digest(payload)


def decision_attestation(generation: Generation, decision: PromotionDecision, previous: LedgerEntry) -> Attestation:
    """The attestation of a generation whose stages are done: the challenger, and all inputs of its training and match.

    Args:
      generation: the generation in its workspace.
      decision: its decision.
      previous: the ledger's last entry.

    Raises:
      StorageError: a manifest is missing.
    """
    champion, trainee = required(generation.champion, CHAMPION_DIR), required(generation.trainee, TRAINEE_DIR)
    challenger, window = required(generation.challenger, CHALLENGER_DIR), required(generation.window, WINDOW_DIR)
    games, match = required(generation.games, GAMES_DIR), required(generation.match, MATCH_DIR)
    shards = [
        *(_file(GAMES_DIR, each.file, key=each.key) for each in games.shards),
        *(_file(WINDOW_DIR, each.shard.file, key=each.shard.key, skipGames=each.skip_games) for each in window.shards),
        *(_file(MATCH_DIR, each.file, key=each.key) for each in match.shards),
    ]
    folder = generation.files.repository
    written = [*(f"{name}/{MANIFEST_FILE}" for name in DATA_DIRS), *METRICS_FILES]
    return new_attestation(
        generation,
        "decision",
        generation_tag(decision.lineage, decision.generation),
        subject=(_file(CHALLENGER_DIR, challenger.weights), *_other_files(CHALLENGER_DIR, challenger)),
        inputs=(
            Resource(name=PARENT, digest={"sha256": previous.provenance}),
            Resource(name="champion", digest={"sha256": champion.weights.sha256}),
            *_player(generation),
            Resource(name="trainee", digest={"sha256": trainee.trainee.sha256}),
            Resource(name="trainee-optimizer", digest={"sha256": trainee.optimizer.sha256}),
            *shards,
        ),
        byproducts=tuple(_digest_of(folder, name) for name in written if (folder / name).exists()),
        engine={
            "selfplay": games.origin.engine,
            "replay": window.origin.engine,
            "training": challenger.origin.engine,
            "gating": match.origin.engine,
        },
    )


def state_attestation(generation: Generation, kind: str, tag: str, inputs: tuple[Resource, ...] = ()) -> Attestation:
    """The attestation of a generation without stages: champion, trainee and window of the workspace's state.

    Args:
      generation: the workspace.
      kind: start, rollback or branch.
      tag: tag of the generation.
      inputs: what it was made of, beside the shards of the window.

    Raises:
      StorageError: a manifest is missing.
    """
    champion, trainee = required(generation.champion, CHAMPION_DIR), required(generation.trainee, TRAINEE_DIR)
    window = required(generation.replay, REPLAY_DIR)
    shards = tuple(_file(REPLAY_DIR, each.shard.file, key=each.shard.key) for each in window.shards)
    subject = [_file(CHAMPION_DIR, champion.weights), _file(TRAINEE_DIR, trainee.weights)]
    if generation.generation_id is not None and generation.generation_id.player is not None:
        subject.append(_file(PLAYER_DIR, required(generation.player, PLAYER_DIR).weights))
    return new_attestation(
        generation, kind, tag, (*subject, *_other_files(TRAINEE_DIR, trainee)), (*inputs, *shards), (), engine={}
    )


def recorded_attestation(home: Path, tag: str, key: Path | None = None) -> tuple[bytes, bool]:
    """The attestation at a tag, and whether the lineage's key, or the key in a file, signed it.

    Raises:
      LineageError: there is no such generation, or its ledger names another attestation.
      StorageError: the key file cannot be read.
    """
    if not git(home, "tag", "--list", tag).strip():
        raise LineageError(f"unknown generation {tag!r}; `git tag --list '*/gen-*'` lists the known ones")
    data = git(home, "show", f"{tag}:{PROVENANCE_FILE}").encode()
    try:
        public = key.read_bytes() if key else lineage_key(home, tag)
    except OSError as error:
        raise StorageError(f"cannot read the key {key}: {error.strerror}") from None
    source = f"{tag}:{PROVENANCE_FILE}"
    envelope = read_envelope(data, source)
    entry = parse_ledger(git(home, "show", f"{tag}:{LEDGER_FILE}"), f"{tag}:{LEDGER_FILE}")[-1]
    check_named(envelope, entry, tag)
    return envelope.payload, signed_by(data, public, source)


def check_named(envelope: Envelope, entry: LedgerEntry, tag: str) -> None:
    """Checks that an attestation belongs to a tag, and that the last entry of the tag's ledger names it.

    Raises:
      LineageError: it does not.
    """
    tags = {envelope.attestation.predicate.run_details.metadata.invocation_id}
    tags.add(generation_tag(entry.lineage, entry.generation))
    if tags != {tag} or attestation_digest(envelope.payload) != entry.provenance:
        raise LineageError(f"the attestation of {tag} is not the one that its ledger names; `zero audit` reports why")


def lineage_key(folder: Path, revision: str) -> bytes:
    """The public key (PEM) of a revision's lineage, from the lineage's first commit.

    The key file beside the revision is not used: whoever replaces an attestation can replace that file too.

    Raises:
      LineageError: the first commit has no key, or no commit began the revision's ledger.
    """
    text = git(folder, "show", f"{revision}:{LEDGER_FILE}")
    first = parse_ledger(text, f"{revision}:{LEDGER_FILE}")[0]
    since = ("--first-parent", "--reverse", "--format=%H", f"-S{first.provenance}")
    commit = next(iter(git(folder, "log", *since, revision, "--", LEDGER_FILE).split()), revision)
    if git(folder, "show", f"{commit}:{LEDGER_FILE}") != text.splitlines(keepends=True)[0]:
        raise LineageError(f"no commit began the ledger of {revision} with its first entry; `zero audit` reports why")
    return git(folder, "show", f"{commit}:{KEY_FILE}").encode()


def new_attestation(
    generation: Generation,
    kind: str,
    tag: str,
    subject: tuple[Resource, ...],
    inputs: tuple[Resource, ...],
    byproducts: tuple[Resource, ...],
    engine: Mapping[str, str],
) -> Attestation:
    """An attestation with the parts that all kinds share: parameters, profile, commit of the sources, package lock."""
    params = generation.read_params()
    lineage, _, number = tag.rpartition("/gen-")
    folder = generation.files.repository
    return Attestation(
        subject=subject,
        predicate=Predicate(
            build_definition=BuildDefinition(
                build_type=BUILD_TYPE.format(kind=kind),
                external_parameters=ExternalParameters(
                    lineage=lineage, generation=int(number), parameters=params.model_dump(mode="json")
                ),
                internal_parameters=InternalParameters(
                    engine=dict(engine),
                    profile=execution_profile(params.profile),
                    lock=generation.lock_digest,
                ),
                resolved_dependencies=(
                    Resource(name="source", digest={"gitCommit": git(folder, "rev-parse", "HEAD").strip()}),
                    _digest_of(folder, CONSTRAINTS_FILE),
                    *inputs,
                ),
            ),
            run_details=RunDetails(metadata=Metadata(invocation_id=tag), byproducts=byproducts),
        ),
    )


def _player(generation: Generation) -> tuple[Resource, ...]:
    """The weights that played the games, if self-play overlapped."""
    player = generation.generation_id.player if generation.generation_id else None
    if player is None or not generation.overlap:
        return ()
    return (Resource(name=PLAYER, digest={"sha256": player}),)


def _other_files(folder: str, checkpoint: Checkpoint) -> tuple[Resource, ...]:
    """The files of a checkpoint beside its weights."""
    return tuple(_file(folder, file) for file in checkpoint.files if file != checkpoint.weights)


def _file(folder: str, file: FileRef, **annotations: str | int) -> Resource:
    return Resource(name=f"{folder}/{file.path}", digest={"sha256": file.sha256}, annotations=annotations or None)


def _digest_of(folder: Path, name: str) -> Resource:
    return Resource(name=name, digest={"sha256": sha256_file(folder / name)})
