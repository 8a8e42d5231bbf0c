"""Makes the attestation of a generation from the workspace in which it was made, and reads it back from a tag."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from zero.config.settings import home_dir
from zero.errors import LineageError, StorageError
from zero.network.profile import execution_profile
from zero.record.generation import Generation, required
from zero.record.history import check_known_tag, open_history
from zero.record.ledger import generation_tag, parse_ledger
from zero.record.provenance import (
    BUILD_TYPE,
    DATASET,
    PARENT,
    PLAYER,
    Attestation,
    BuildDefinition,
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
)
from zero.record.signing import public_pem, signing_key
from zero.storage.files import sha256_bytes, write_atomic
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
    OLD_WINDOW_DIR,
    PLAYER_DIR,
    PROVENANCE_FILE,
    STATE_DIRS,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import MANIFEST_FILE, FileRef, GameSet, LedgerEntry, PromotionDecision, WindowShard
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
    champion, generation_id = required(generation.champion, CHAMPION_DIR), generation.generation_id
    required(generation.trainee, TRAINEE_DIR)
    made = zip(DATA_DIRS, (generation.games, generation.window, generation.challenger, generation.match), strict=True)
    for folder, manifest in made:
        required(manifest, folder)
    player = generation_id.player if generation_id and generation.overlap else None
    parts = decision_parts(generation, previous.provenance, champion.weights.sha256, player)
    engine = {stage: origin.engine for stage, origin in generation.origins.items()}
    return _attestation(generation, "decision", decision.lineage, decision.generation, parts, engine)


def state_attestation(
    generation: Generation, kind: str, lineage: str, number: int, inputs: tuple[Resource, ...] = ()
) -> Attestation:
    """The attestation of a generation without stages: champion, trainee and window of the workspace's state.

    Args:
      generation: the workspace.
      kind: start, rollback or branch.
      lineage: its name.
      number: number of the generation.
      inputs: what it was made of, beside the shards of the window.

    Raises:
      StorageError: a manifest is missing.
    """
    for folder, manifest in zip(
        STATE_DIRS, (generation.champion, generation.trainee, generation.old_window), strict=True
    ):
        required(manifest, folder)
    if generation.generation_id is not None and generation.generation_id.player is not None:
        required(generation.player, PLAYER_DIR)
    parts = state_parts(generation)
    parts = parts._replace(inputs=(*inputs, *parts.inputs))
    return _attestation(generation, kind, lineage, number, parts, engine={})


class Parts(NamedTuple):
    """What an attestation names by digest, beside the sources and the package lock."""

    subject: tuple[Resource, ...]
    """The written weights."""
    inputs: tuple[Resource, ...]
    byproducts: tuple[Resource, ...] = ()
    """Manifests and metrics."""


def decision_parts(generation: Generation, parent: str | None, champion: str, player: str | None) -> Parts:
    """What the attestation of a generation with stages names. The audit compares it with what a tag has.

    Files whose manifest is missing are left out.

    Args:
      generation: the generation.
      parent: digest of the attestation before; None leaves it out.
      champion: SHA-256 of the champion's weights.
      player: SHA-256 of the weights that played the games, if self-play overlapped; otherwise None.
    """
    trainee, window = generation.trainee, generation.window
    # The order here is the order in the signed bytes, and equal generations must have equal attestations.
    named = {PARENT: parent, "champion": champion, PLAYER: player}
    if trainee is not None:
        named |= {"trainee": trainee.continued_weights.sha256, "trainee-optimizer": trainee.optimizer.sha256}
    written = {f"{folder}/{MANIFEST_FILE}": generation.manifest_bytes(folder) for folder in DATA_DIRS}
    written |= {name: generation.file(name) for name in METRICS_FILES}
    return Parts(
        subject=_files(generation, CHALLENGER_DIR),
        inputs=(
            *(Resource(name=name, digest={"sha256": sha256}) for name, sha256 in named.items() if sha256 is not None),
            *_games(GAMES_DIR, generation.games),
            *(_window_shard(WINDOW_DIR, each, skipGames=each.skip_games) for each in (window.shards if window else ())),
            *_games(MATCH_DIR, generation.match),
        ),
        byproducts=tuple(_content(name, data) for name, data in written.items() if data is not None),
    )


def state_parts(generation: Generation) -> Parts:
    """What the attestation of a generation without stages names, beside its source and the attestation before."""
    subject = (*_files(generation, CHAMPION_DIR), *_files(generation, TRAINEE_DIR))
    window = generation.old_window
    dataset = window.origin.inputs.get(DATASET) if window else None
    return Parts(
        subject,
        (
            *((Resource(name=DATASET, digest={"sha256": dataset}),) if dataset else ()),
            *(_window_shard(OLD_WINDOW_DIR, each) for each in (window.shards if window else ())),
        ),
    )


def recorded_attestation(home: Path, tag: str, key: Path | None = None) -> tuple[bytes, bool]:
    """The attestation at a tag, and whether the lineage's key, or the key in a file, signed it.

    Raises:
      LineageError: there is no such generation, or its ledger names another attestation.
      StorageError: the key file cannot be read.
    """
    check_known_tag(home, tag)
    source = f"{tag}:{PROVENANCE_FILE}"
    envelope = read_envelope(git(home, "show", source).encode(), source)
    entry = parse_ledger(git(home, "show", f"refs/tags/{tag}:{LEDGER_FILE}"), f"{tag}:{LEDGER_FILE}")[-1]
    # Tag, ledger and attestation must name the same generation: each of them alone could have been moved.
    names = {envelope.attestation.predicate.run_details.metadata.invocation_id}
    names.add(generation_tag(entry.lineage, entry.generation))
    if names != {tag} or attestation_digest(envelope.payload) != entry.provenance:
        raise LineageError(f"the attestation of {tag} is not the one that its ledger names; `zero audit` reports why")
    try:
        public = key.read_bytes() if key else _lineage_key(home, entry.lineage)
    except OSError as error:
        raise StorageError(f"cannot read the key {key}: {error.strerror}; give a public key file (PEM)") from None
    return envelope.payload, envelope.signed_by(public, str(key) if key else KEY_FILE)


def _lineage_key(home: Path, lineage: str) -> bytes:
    with open_history(home, lineage) as history:
        if history.key is None:
            raise LineageError(f"the first commit of {lineage} has no {KEY_FILE}; name the key with `--key`")
        return history.key


def _attestation(
    generation: Generation, kind: str, lineage: str, number: int, parts: Parts, engine: Mapping[str, str]
) -> Attestation:
    """An attestation with what all kinds share: parameters, profile, commit of the sources, package lock."""
    params = generation.read_params()
    # The commit that the stages ran on; the commit of the generation does not exist yet (docs/decisions/0002).
    head = git(generation.files.repository, "rev-parse", "HEAD").strip()
    constraints = required(generation.file(CONSTRAINTS_FILE), CONSTRAINTS_FILE)
    return Attestation(
        subject=parts.subject,
        predicate=Predicate(
            build_definition=BuildDefinition(
                build_type=BUILD_TYPE.format(kind=kind),
                external_parameters=ExternalParameters(
                    lineage=lineage, generation=number, parameters=params.model_dump(mode="json")
                ),
                internal_parameters=InternalParameters(
                    engine=dict(engine),
                    profile=execution_profile(params.profile),
                    lock=generation.lock_digest,
                ),
                resolved_dependencies=(
                    Resource(name="source", digest={"gitCommit": head}),
                    _content(CONSTRAINTS_FILE, constraints),
                    *parts.inputs,
                ),
            ),
            run_details=RunDetails(
                metadata=Metadata(invocation_id=generation_tag(lineage, number)), byproducts=parts.byproducts
            ),
        ),
    )


def _files(generation: Generation, folder: str) -> tuple[Resource, ...]:
    return tuple(_file(folder, ref) for ref in generation.file_refs(folder))


def _games(folder: str, games: GameSet | None) -> tuple[Resource, ...]:
    return tuple(_file(folder, each.file, key=each.key) for each in (games.shards if games else ()))


def _window_shard(folder: str, each: WindowShard, **annotations: int) -> Resource:
    return _file(folder, each.shard.file, key=each.shard.key, **annotations)


def _file(folder: str, file: FileRef, **annotations: str | int) -> Resource:
    return Resource(name=f"{folder}/{file.path}", digest={"sha256": file.sha256}, annotations=annotations or None)


def _content(name: str, data: bytes) -> Resource:
    return Resource(name=name, digest={"sha256": sha256_bytes(data)})
