"""Checks of the attestation: its signature, the digest in the ledger, and every digest that it names."""

from collections.abc import Iterable, Iterator

from zero.audit.findings import Mismatch, differs, restored
from zero.errors import LineageError
from zero.record.attestation import decision_parts, state_parts
from zero.record.generation import Generation
from zero.record.provenance import BUILD_TYPE, PARENT, SOURCE, Resource, attestation_digest
from zero.storage.files import sha256_bytes
from zero.storage.layout import GAMES_DIR, KEY_FILE, MATCH_DIR, OLD_WINDOW_DIR, PROVENANCE_FILE, WINDOW_DIR


def check_signature(generation: Generation, own_key: bytes | None = None) -> Iterator[Mismatch]:
    """The key of the lineage's first commit signed the attestation, and so did the caller's own key, if given.

    Args:
      generation: the generation.
      own_key: a public key (PEM) that the caller trusts, or None.
    """
    if generation.commit is None:
        return
    remedy = restored(generation.tag, "record")
    if generation.envelope is None:
        yield Mismatch(PROVENANCE_FILE, "attestation", "none that can be read", "a signed envelope", remedy)
        return
    first = generation.history.key
    if first is None:
        yield Mismatch(KEY_FILE, "public key", "none in the lineage's first commit", "the signing key", remedy)
    yield from differs(KEY_FILE, "public key", _key_digest(generation.file(KEY_FILE)), _key_digest(first), remedy)
    for key, name in ((first, f"the key of {generation.lineage}'s first commit"), (own_key, "the given key")):
        if key is None:
            continue
        try:
            is_signed = generation.envelope.signed_by(key)
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
    remedy = restored(generation.tag, "record")

    def compare(what: str, found: object, expected: object) -> list[Mismatch]:
        return differs(PROVENANCE_FILE, what, found, expected, remedy)

    yield from compare("digest against the ledger", attestation_digest(envelope.payload), entry.provenance)
    yield from compare("lineage", attestation.external.lineage, generation.lineage)
    yield from compare("generation", attestation.external.generation, generation.number)
    yield from compare("tag", attestation.predicate.run_details.metadata.invocation_id, generation.tag)
    kind = BUILD_TYPE.format(kind=entry.kind)
    yield from compare("kind", attestation.predicate.build_definition.build_type, kind)
    code = attestation.dependencies.get("source")
    yield from compare("commit of the sources", code.digest.get("gitCommit") if code else None, generation.parent)
    before, source = generation.previous, generation.source
    if entry.decision is None:
        expected = state_parts(generation)
        named = {PARENT: before, SOURCE: source}
        named_digests = {name: each.entry.provenance for name, each in named.items() if each and each.entry}
    else:
        parent = before.entry.provenance if before and before.entry else None
        state = before.next_state if before and generation.overlap else None
        expected = decision_parts(generation, parent, entry.decision.champion, state.player if state else None)
        named_digests = {}
    inputs = named_digests | _digests(expected.inputs)
    for resources, digests in (
        (attestation.subject, _digests(expected.subject)),
        (attestation.dependencies.values(), inputs),
        (attestation.byproducts.values(), _digests(expected.byproducts)),
    ):
        found = _digests(resources)
        for name, sha256 in digests.items():
            yield from compare(f"digest of {name}", found.get(name), sha256)
    for folder in (GAMES_DIR, WINDOW_DIR, MATCH_DIR, OLD_WINDOW_DIR):
        if generation.file_refs(folder):  # otherwise the manifest is missing, and the check of the data reports it
            for name, sha256 in sorted(_digests(attestation.dependencies.values()).items()):
                if name.startswith(f"{folder}/") and name not in inputs:
                    yield Mismatch(PROVENANCE_FILE, f"{name}, which is not an input", sha256, "nothing", remedy)


def _digests(resources: Iterable[Resource]) -> dict[str, str]:
    """SHA-256 of resources by name."""
    return {each.name: each.sha256 for each in resources}


def _key_digest(key: bytes | None) -> str | None:
    """SHA-256 of a public key."""
    return sha256_bytes(key) if key is not None else None
