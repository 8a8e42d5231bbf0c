"""What the statement of a generation says, gathered from the workspace in which it was made."""

from collections.abc import Mapping
from pathlib import Path

from zero.config.params import load_params
from zero.config.settings import home_dir
from zero.errors import LineageError, StorageError
from zero.network.profile import execution_profile
from zero.record.ledger import generation_tag, parse_ledger
from zero.record.provenance import (
    BUILD_TYPE,
    BuildDefinition,
    Envelope,
    ExternalParameters,
    InternalParameters,
    Metadata,
    Predicate,
    Resource,
    RunDetails,
    Statement,
    read_envelope,
    sign,
    signed_by,
    statement_bytes,
    statement_digest,
)
from zero.record.signing import public_pem, signing_key
from zero.storage.files import read_manifest, sha256_bytes, sha256_file, write_atomic
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    CONSTRAINTS_FILE,
    DVC_LOCK_FILE,
    GAMES_DIR,
    GENERATION_FILE,
    KEY_FILE,
    LEDGER_FILE,
    MATCH_DIR,
    METRICS,
    PLAYER_DIR,
    PROVENANCE_FILE,
    REPLAY_DIR,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import (
    Champion,
    Checkpoint,
    FileRef,
    GameSet,
    GenerationId,
    LedgerEntry,
    PromotionDecision,
    Window,
)
from zero.storage.vcs import git

PARENT = "parent-provenance"
SOURCE = "source-provenance"
PLAYER = "player"
"""Who played the games, where self-play overlapped and the state named it."""


def check_key(workspace: Path) -> None:
    """Checks that this machine's key is the one that signs the lineage.

    Raises:
      LineageError: it is another one.
    """
    key = signing_key(home_dir(workspace))
    if git(workspace, "show", f"HEAD:{KEY_FILE}").encode() != public_pem(key):
        raise LineageError(
            f"the lineage in {workspace} is signed with another key than this machine's; set ZERO_SIGNING_KEY to its "
            f"private key (the public one is {KEY_FILE}), or go on under your own key with `zero branch`"
        )


def write_statement(workspace: Path, statement: Statement) -> str:
    """Signs a statement, writes it into the record with the public key, and gives its digest for the ledger."""
    key = signing_key(home_dir(workspace))
    payload = statement_bytes(statement)
    write_atomic(workspace / PROVENANCE_FILE, sign(payload, key))
    if not (path := workspace / KEY_FILE).exists() or path.read_bytes() != public_pem(key):
        write_atomic(path, public_pem(key))
    return statement_digest(payload)


def decision_statement(workspace: Path, decision: PromotionDecision, before: LedgerEntry) -> Statement:
    """Of a generation whose five stages are done: the challenger, and all that went into it and into its match."""
    champion = read_manifest(workspace / CHAMPION_DIR, Champion)
    trainee = read_manifest(workspace / TRAINEE_DIR, Checkpoint)
    challenger = read_manifest(workspace / CHALLENGER_DIR, Checkpoint)
    window = read_manifest(workspace / WINDOW_DIR, Window)
    games, match = read_manifest(workspace / GAMES_DIR, GameSet), read_manifest(workspace / MATCH_DIR, GameSet)
    shards = [
        *(_file(GAMES_DIR, each.file, key=each.key) for each in games.shards),
        *(_file(WINDOW_DIR, each.shard.file, key=each.shard.key, skipGames=each.skip_games) for each in window.shards),
        *(_file(MATCH_DIR, each.file, key=each.key) for each in match.shards),
    ]
    manifests = [f"{name}/manifest.json" for name in (GAMES_DIR, WINDOW_DIR, CHALLENGER_DIR, MATCH_DIR)]
    written = [*manifests, *METRICS]
    return new_statement(
        workspace,
        "decision",
        generation_tag(decision.lineage, decision.generation),
        subject=(_file(CHALLENGER_DIR, challenger.weights), *_others(CHALLENGER_DIR, challenger)),
        inputs=(
            Resource(name=PARENT, digest={"sha256": before.provenance}),
            Resource(name="champion", digest={"sha256": champion.weights.sha256}),
            *_player(workspace),
            Resource(name="trainee", digest={"sha256": trainee.trainee.sha256}),
            Resource(name="trainee-optimizer", digest={"sha256": trainee.optimizer.sha256}),
            *shards,
        ),
        byproducts=tuple(_digest_of(workspace, name) for name in written if (workspace / name).exists()),
        engine={
            "selfplay": games.origin.engine,
            "replay": window.origin.engine,
            "training": challenger.origin.engine,
            "gating": match.origin.engine,
        },
    )


def state_statement(workspace: Path, kind: str, tag: str, inputs: tuple[Resource, ...] = ()) -> Statement:
    """Of a generation without stages: champion, trainee and window as they lie in the workspace's state."""
    champion = read_manifest(workspace / CHAMPION_DIR, Champion)
    trainee = read_manifest(workspace / TRAINEE_DIR, Checkpoint)
    window = read_manifest(workspace / REPLAY_DIR, Window)
    shards = tuple(_file(REPLAY_DIR, each.shard.file, key=each.shard.key) for each in window.shards)
    subject = [_file(CHAMPION_DIR, champion.weights), _file(TRAINEE_DIR, trainee.weights)]
    if _generation(workspace).player is not None:
        subject.append(_file(PLAYER_DIR, read_manifest(workspace / PLAYER_DIR, Champion).weights))
    return new_statement(
        workspace, kind, tag, (*subject, *_others(TRAINEE_DIR, trainee)), (*inputs, *shards), (), engine={}
    )


def recorded_statement(home: Path, tag: str, key: Path | None = None) -> tuple[bytes, bool]:
    """The statement at a tag, and whether it is signed by the lineage's key, or by that of a file.

    Raises:
      LineageError: there is no such generation, or its statement is not the one that its ledger names.
      StorageError: the key file cannot be read.
    """
    if not git(home, "tag", "--list", tag).strip():
        raise LineageError(f"unknown generation {tag!r}; `git tag --list '*/gen-*'` shows those there are")
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
    """Checks that a statement is of that tag, and the one that the last line of the tag's ledger names.

    Raises:
      LineageError: it is not.
    """
    tags = {envelope.statement.predicate.run_details.metadata.invocation_id}
    tags.add(generation_tag(entry.lineage, entry.generation))
    if tags != {tag} or statement_digest(envelope.payload) != entry.provenance:
        raise LineageError(f"the statement of {tag} is not the one that its ledger names; `zero audit` says more")


def lineage_key(folder: Path, revision: str) -> bytes:
    """The public key (PEM) of the lineage that a revision is of: that of its first commit, not the one beside it.

    Raises:
      LineageError: there is none, or no commit began the ledger that the revision has.
    """
    text = git(folder, "show", f"{revision}:{LEDGER_FILE}")
    first = parse_ledger(text, f"{revision}:{LEDGER_FILE}")[0]
    since = ("--first-parent", "--reverse", "--format=%H", f"-S{first.provenance}")
    commit = next(iter(git(folder, "log", *since, revision, "--", LEDGER_FILE).split()), revision)
    if git(folder, "show", f"{commit}:{LEDGER_FILE}") != text.splitlines(keepends=True)[0]:
        raise LineageError(f"the ledger of {revision} does not go back to its first line; `zero audit` says more")
    return git(folder, "show", f"{commit}:{KEY_FILE}").encode()


def new_statement(
    workspace: Path,
    kind: str,
    tag: str,
    subject: tuple[Resource, ...],
    inputs: tuple[Resource, ...],
    byproducts: tuple[Resource, ...],
    engine: Mapping[str, str],
) -> Statement:
    """A statement with what all kinds say alike: parameters, profile, commit of the sources, package lock."""
    params = load_params(workspace)
    lineage, _, number = tag.rpartition("/gen-")
    lock = workspace / DVC_LOCK_FILE
    return Statement(
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
                    lock=sha256_file(lock) if lock.exists() else sha256_bytes(b""),
                ),
                resolved_dependencies=(
                    Resource(name="source", digest={"gitCommit": git(workspace, "rev-parse", "HEAD").strip()}),
                    _digest_of(workspace, CONSTRAINTS_FILE),
                    *inputs,
                ),
            ),
            run_details=RunDetails(metadata=Metadata(invocation_id=tag), byproducts=byproducts),
        ),
    )


def _player(workspace: Path) -> tuple[Resource, ...]:
    player = _generation(workspace).player
    if player is None or not load_params(workspace).selfplay.overlap:
        return ()
    return (Resource(name=PLAYER, digest={"sha256": player}),)


def _generation(workspace: Path) -> GenerationId:
    return read_manifest(workspace, GenerationId, GENERATION_FILE)


def _others(folder: str, checkpoint: Checkpoint) -> tuple[Resource, ...]:
    return tuple(_file(folder, file) for file in checkpoint.files if file != checkpoint.weights)


def _file(folder: str, file: FileRef, **annotations: str | int) -> Resource:
    return Resource(name=f"{folder}/{file.path}", digest={"sha256": file.sha256}, annotations=annotations or None)


def _digest_of(workspace: Path, name: str) -> Resource:
    return Resource(name=name, digest={"sha256": sha256_file(workspace / name)})
