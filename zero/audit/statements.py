"""Checks of the signed statement: who signed it, that the ledger names it, that all it says is so."""

from collections.abc import Iterator, Mapping

from zero.audit.findings import Drift, differs
from zero.errors import LineageError
from zero.record.attestation import PARENT, PLAYER, SOURCE
from zero.record.generation import DATA_OUTS, Generation
from zero.record.provenance import BUILD_TYPE, Resource, signed_by, statement_digest
from zero.storage.files import sha256_bytes
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    GAMES_DIR,
    KEY_FILE,
    MATCH_DIR,
    METRICS,
    PROVENANCE_FILE,
    REPLAY_DIR,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import MANIFEST_FILE, FileRef


def check_signature(generation: Generation, own_key: bytes | None) -> Iterator[Drift]:
    """The statement is signed with the key of the lineage's first commit, and with the caller's own where one is given.

    Args:
      generation: the evidence.
      own_key: a public key (PEM) that the caller trusts, or None.
    """
    data = generation.file(PROVENANCE_FILE)
    if generation.commit is None:
        return
    remedy = f"restore it from the true tag: `git checkout {generation.tag} -- record`"
    if data is None or generation.envelope is None:
        yield Drift(PROVENANCE_FILE, "signed statement", "none that can be read", "one envelope", remedy)
        return
    first = generation.file(KEY_FILE, generation.history.versions[0].commit)
    if first is None:
        yield Drift(KEY_FILE, "public key", "none in the lineage's first commit", "the key that signed", remedy)
    yield from differs(KEY_FILE, "public key", _print(generation.file(KEY_FILE)), _print(first), remedy)
    for key, name in ((first, f"the key of {generation.lineage}'s first commit"), (own_key, "the key given")):
        if key is None:
            continue
        try:
            held = signed_by(data, key)
        except LineageError as error:
            yield Drift(KEY_FILE, "public key", str(error), "an Ed25519 key", remedy)
            continue
        if not held:
            ids = ", ".join(each[:12] for each in generation.envelope.key_ids) or "nobody"
            yield Drift(PROVENANCE_FILE, "foreign signature", f"no valid one (key {ids})", f"one by {name}", remedy)


def check_statement(generation: Generation) -> Iterator[Drift]:
    """The ledger names the statement, it names the one before, and all hashes in it are those of what is there."""
    entry, envelope = generation.entry, generation.envelope
    if entry is None or envelope is None:
        return
    statement = envelope.statement
    remedy = f"restore it from the true tag: `git checkout {generation.tag} -- record`"

    def compare(what: str, found: object, expected: object) -> list[Drift]:
        return differs(PROVENANCE_FILE, what, found, expected, remedy)

    yield from compare("digest against the ledger", statement_digest(envelope.payload), entry.provenance)
    yield from compare("lineage", statement.asked.lineage, generation.lineage)
    yield from compare("generation", statement.asked.generation, generation.number)
    yield from compare("tag", statement.predicate.run_details.metadata.invocation_id, generation.tag)
    kind = BUILD_TYPE.format(kind=entry.kind)
    yield from compare("kind", statement.predicate.build_definition.build_type, kind)
    source = statement.dependencies.get("source")
    yield from compare("commit of the sources", source.digest.get("gitCommit") if source else None, generation.parent)
    if generation.before is not None and generation.before.entry is not None:
        yield from _named(statement.dependencies, PARENT, generation.before.entry.provenance, remedy)
    if generation.source is not None and generation.source.entry is not None:
        yield from _named(statement.dependencies, SOURCE, generation.source.entry.provenance, remedy)
    for name, sha256 in expected_dependencies(generation).items():
        yield from _named(statement.dependencies, name, sha256, remedy)
    subjects = {each.name: each for each in statement.subject}
    for name, sha256 in expected_subjects(generation).items():
        yield from _named(subjects, name, sha256, remedy)
    for name, digest in expected_byproducts(generation).items():
        yield from _named(statement.byproducts, name, digest, remedy)
    yield from _nothing_else(generation, statement.dependencies, remedy)


def expected_dependencies(generation: Generation) -> dict[str, str]:
    """SHA-256 of what went in, by its name in the statement, as far as the manifests are here."""
    entry, decided = generation.entry, generation.entry.decision if generation.entry else None
    if entry is None:
        return {}
    if decided is None:
        return _files(REPLAY_DIR, generation)
    found = {"champion": decided.champion}
    state = generation.before.after if generation.before and generation.overlap else None
    if state is not None and state.player is not None:
        found[PLAYER] = state.player
    if generation.trainee is not None:
        found |= {"trainee": generation.trainee.trainee.sha256}
        found |= {"trainee-optimizer": generation.trainee.optimizer.sha256}
    return found | _files(GAMES_DIR, generation) | _files(WINDOW_DIR, generation) | _files(MATCH_DIR, generation)


def expected_subjects(generation: Generation) -> dict[str, str]:
    """SHA-256 of what came out, by name."""
    if generation.entry is None:
        return {}
    if generation.entry.kind == "decision":
        return _files(CHALLENGER_DIR, generation)
    return _files(CHAMPION_DIR, generation) | _files(TRAINEE_DIR, generation)


def expected_byproducts(generation: Generation) -> dict[str, str | None]:
    """SHA-256 of the manifests and metrics, by path; None for metrics that are not in git."""
    if generation.entry is None or generation.entry.kind != "decision":
        return {}
    found: dict[str, str | None] = {}
    for path in DATA_OUTS:
        digests = generation.digests(path, MANIFEST_FILE)
        if digests is not None:
            found[f"{path}/{MANIFEST_FILE}"] = digests.sha256
    for name in METRICS:
        content = generation.file(name)
        if content is not None:
            found[name] = sha256_bytes(content)
        elif name in generation.outs:
            found[name] = None
    return found


def _files(path: str, generation: Generation) -> dict[str, str]:
    refs: tuple[FileRef, ...] = generation.references(path)
    return {f"{path}/{ref.path}": ref.sha256 for ref in refs}


def _named(said: Mapping[str, Resource], name: str, expected: str | None, remedy: str) -> list[Drift]:
    found = said[name].sha256 if name in said else None
    return differs(PROVENANCE_FILE, f"digest of {name}", found, expected, remedy)


def _nothing_else(generation: Generation, said: Mapping[str, Resource], remedy: str) -> Iterator[Drift]:
    """Shards that are named and were not used."""
    expected = expected_dependencies(generation)
    for folder in (GAMES_DIR, WINDOW_DIR, MATCH_DIR, REPLAY_DIR):
        if _files(folder, generation):
            for name in sorted(name for name in said if name.startswith(f"{folder}/") and name not in expected):
                yield Drift(PROVENANCE_FILE, f"{name} is no input", said[name].sha256, "nothing", remedy)


def _print(key: bytes | None) -> str | None:
    """A public key's fingerprint."""
    return sha256_bytes(key) if key is not None else None
