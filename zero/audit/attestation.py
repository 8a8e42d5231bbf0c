"""Checks of the attestation: its signature, the digest in the ledger, and every digest that it names."""

from collections.abc import Iterator, Mapping

from zero.audit.findings import Mismatch, differs
from zero.errors import LineageError
from zero.record.generation import Generation
from zero.record.provenance import BUILD_TYPE, PARENT, PLAYER, SOURCE, Resource, attestation_digest, signed_by
from zero.storage.files import sha256_bytes
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    DATA_DIRS,
    GAMES_DIR,
    KEY_FILE,
    MATCH_DIR,
    METRICS_FILES,
    PROVENANCE_FILE,
    REPLAY_DIR,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import MANIFEST_FILE, FileRef


def check_signature(generation: Generation, own_key: bytes | None) -> Iterator[Mismatch]:
    """The key of the lineage's first commit signed the attestation, and so did the caller's own key, if given.

    Args:
      generation: the generation.
      own_key: a public key (PEM) that the caller trusts, or None.
    """
    data = generation.file(PROVENANCE_FILE)
    if generation.commit is None:
        return
    remedy = f"restore it from the recorded tag: `git checkout {generation.tag} -- record`"
    if data is None or generation.envelope is None:
        yield Mismatch(PROVENANCE_FILE, "attestation", "none that can be read", "a signed envelope", remedy)
        return
    first = generation.history.reader.read(f"{generation.history.versions[0].commit}:{KEY_FILE}")
    if first is None:
        yield Mismatch(KEY_FILE, "public key", "none in the lineage's first commit", "the signing key", remedy)
    yield from differs(KEY_FILE, "public key", _key_digest(generation.file(KEY_FILE)), _key_digest(first), remedy)
    for key, name in ((first, f"the key of {generation.lineage}'s first commit"), (own_key, "the given key")):
        if key is None:
            continue
        try:
            is_signed = signed_by(data, key)
        except LineageError as error:
            yield Mismatch(KEY_FILE, "public key", str(error), "an Ed25519 key", remedy)
            continue
        if not is_signed:
            ids = ", ".join(each[:12] for each in generation.envelope.key_ids) or "none"
            yield Mismatch(PROVENANCE_FILE, "signature", f"none by {name} (signed by {ids})", "a valid one", remedy)


def check_attestation(generation: Generation) -> Iterator[Mismatch]:
    """The ledger names the attestation, which names the one before and the digests of all stored files."""
    entry, envelope = generation.entry, generation.envelope
    if entry is None or envelope is None:
        return
    attestation = envelope.attestation
    remedy = f"restore it from the recorded tag: `git checkout {generation.tag} -- record`"

    def compare(what: str, found: object, expected: object) -> list[Mismatch]:
        return differs(PROVENANCE_FILE, what, found, expected, remedy)

    yield from compare("digest against the ledger", attestation_digest(envelope.payload), entry.provenance)
    yield from compare("lineage", attestation.external.lineage, generation.lineage)
    yield from compare("generation", attestation.external.generation, generation.number)
    yield from compare("tag", attestation.predicate.run_details.metadata.invocation_id, generation.tag)
    kind = BUILD_TYPE.format(kind=entry.kind)
    yield from compare("kind", attestation.predicate.build_definition.build_type, kind)
    source = attestation.dependencies.get("source")
    yield from compare("commit of the sources", source.digest.get("gitCommit") if source else None, generation.parent)
    if generation.previous is not None and generation.previous.entry is not None:
        yield from _check_digest(attestation.dependencies, PARENT, generation.previous.entry.provenance, remedy)
    if generation.source is not None and generation.source.entry is not None:
        yield from _check_digest(attestation.dependencies, SOURCE, generation.source.entry.provenance, remedy)
    for name, sha256 in expected_dependencies(generation).items():
        yield from _check_digest(attestation.dependencies, name, sha256, remedy)
    subjects = {each.name: each for each in attestation.subject}
    for name, sha256 in expected_subjects(generation).items():
        yield from _check_digest(subjects, name, sha256, remedy)
    for name, digest in expected_byproducts(generation).items():
        yield from _check_digest(attestation.byproducts, name, digest, remedy)
    yield from _check_extra(generation, attestation.dependencies, remedy)


def expected_dependencies(generation: Generation) -> dict[str, str]:
    """SHA-256 of the inputs by their name in the attestation, as far as the manifests are on this machine."""
    entry, decided = generation.entry, generation.entry.decision if generation.entry else None
    if entry is None:
        return {}
    if decided is None:
        return _files(REPLAY_DIR, generation)
    found = {"champion": decided.champion}
    state = generation.previous.next_state if generation.previous and generation.overlap else None
    if state is not None and state.player is not None:
        found[PLAYER] = state.player
    if generation.trainee is not None:
        found |= {"trainee": generation.trainee.trainee.sha256}
        found |= {"trainee-optimizer": generation.trainee.optimizer.sha256}
    return found | _files(GAMES_DIR, generation) | _files(WINDOW_DIR, generation) | _files(MATCH_DIR, generation)


def expected_subjects(generation: Generation) -> dict[str, str]:
    """SHA-256 of the written weights, by name."""
    if generation.entry is None:
        return {}
    if generation.entry.kind == "decision":
        return _files(CHALLENGER_DIR, generation)
    return _files(CHAMPION_DIR, generation) | _files(TRAINEE_DIR, generation)


def expected_byproducts(generation: Generation) -> dict[str, str | None]:
    """SHA-256 of the manifests and metrics by path; None for metrics that git lacks."""
    if generation.entry is None or generation.entry.kind != "decision":
        return {}
    found: dict[str, str | None] = {}
    for path in DATA_DIRS:
        digests = generation.digests(path, MANIFEST_FILE)
        if digests is not None:
            found[f"{path}/{MANIFEST_FILE}"] = digests.sha256
    for name in METRICS_FILES:
        content = generation.file(name)
        if content is not None:
            found[name] = sha256_bytes(content)
        elif name in generation.outs:
            found[name] = None
    return found


def _files(path: str, generation: Generation) -> dict[str, str]:
    refs: tuple[FileRef, ...] = generation.file_refs(path)
    return {f"{path}/{ref.path}": ref.sha256 for ref in refs}


def _check_digest(named: Mapping[str, Resource], name: str, expected: str | None, remedy: str) -> list[Mismatch]:
    found = named[name].sha256 if name in named else None
    return differs(PROVENANCE_FILE, f"digest of {name}", found, expected, remedy)


def _check_extra(generation: Generation, named: Mapping[str, Resource], remedy: str) -> Iterator[Mismatch]:
    """The attestation names no shards that were not used."""
    expected = expected_dependencies(generation)
    for folder in (GAMES_DIR, WINDOW_DIR, MATCH_DIR, REPLAY_DIR):
        if _files(folder, generation):
            for name in sorted(name for name in named if name.startswith(f"{folder}/") and name not in expected):
                yield Mismatch(PROVENANCE_FILE, f"{name}, which is not an input", named[name].sha256, "nothing", remedy)


def _key_digest(key: bytes | None) -> str | None:
    """SHA-256 of a public key."""
    return sha256_bytes(key) if key is not None else None
