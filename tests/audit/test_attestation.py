"""Every change of a signed attestation is detected and named."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.audit.record import Record, cells, named, tag_of
from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import git
from zero.errors import LineageError
from zero.record.attestation import recorded_attestation
from zero.record.provenance import attestation_bytes, read_envelope, sign
from zero.record.signing import public_pem, signing_key
from zero.storage.layout import KEY_FILE, PROVENANCE_FILE


def signed_again(record: Record, key: Ed25519PrivateKey, **edits: object) -> bytes:
    """The attestation of generation 2 with edited fields of its build definition, signed."""
    attestation = read_envelope(record.read(2, PROVENANCE_FILE), "it").attestation
    build = attestation.predicate.build_definition.model_copy(update=edits)
    return sign(
        attestation_bytes(
            attestation.model_copy(
                update={"predicate": attestation.predicate.model_copy(update={"build_definition": build})}
            )
        ),
        key,
    )


def test_attestation_with_a_foreign_signature(record: Record) -> None:
    record.rewrite_newest({PROVENANCE_FILE: signed_again(record, Ed25519PrivateKey.generate())})
    found = record.mismatches()
    assert cells(found) == {("attestation", 2)} and len(found) == 1
    named(found, "attestation", 2, "signature", "the key of tiny's first commit")


def test_key_of_the_record_replaced_too(record: Record) -> None:
    key = Ed25519PrivateKey.generate()
    record.rewrite_newest({PROVENANCE_FILE: signed_again(record, key), KEY_FILE: public_pem(key)})
    found = record.mismatches()
    named(found, "attestation", 2, f"{KEY_FILE}: public key")
    named(found, "attestation", 2, "signature")


def test_record_that_never_had_a_key(record: Record) -> None:
    made = f"{record.commit(0)}^"
    commits = [made := record.rewritten(record.commit(number), {KEY_FILE: None}, made) for number in range(3)]
    record.publish(made, **{f"gen_{number:04d}": commit for number, commit in enumerate(commits)})
    named(record.mismatches(), "attestation", 2, f"{KEY_FILE}: public key: found none in the lineage's first commit")


def test_an_attestation_is_checked_with_the_key_of_the_lineages_first_commit(record: Record) -> None:
    assert all(recorded_attestation(record.home, tag_of(number))[1] for number in range(3))
    key = Ed25519PrivateKey.generate()
    record.rewrite_newest({PROVENANCE_FILE: signed_again(record, key), KEY_FILE: public_pem(key)})
    assert not recorded_attestation(record.home, tag_of(2))[1]


def test_an_attestation_that_the_ledger_does_not_name_is_refused(record: Record) -> None:
    key = Ed25519PrivateKey.generate()
    other = signed_again(record, key, build_type="urn:zero:start:1")
    record.rewrite_newest({PROVENANCE_FILE: other, KEY_FILE: public_pem(key)})
    git(record.home, "tag", "--force", tag_of(1), tag_of(0))
    for number in (1, 2):
        with pytest.raises(LineageError, match=f"the attestation of {tag_of(number)} is not the one"):
            recorded_attestation(record.home, tag_of(number))


def test_key_that_the_caller_trusts_must_have_signed(recorded: Lineage) -> None:
    record = Record(recorded.home)
    assert record.mismatches(own_key=public_pem(signing_key(record.home))) == []
    found = record.mismatches(own_key=public_pem(Ed25519PrivateKey.generate()))
    assert cells(found) == {("attestation", 0), ("attestation", 1), ("attestation", 2)}
    named(found, "attestation", 1, "signature", "the given key")


def test_a_file_that_is_not_a_key_is_named(recorded: Lineage, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("hello")
    with pytest.raises(LineageError, match=rf"^{wrong} is not an Ed25519 public key; give a public key file"):
        recorded_attestation(recorded.home, tag_of(1), wrong)


def test_attestation_edited_without_signing(record: Record) -> None:
    envelope = json.loads(record.read(2, PROVENANCE_FILE))
    other = json.loads(signed_again(record, Ed25519PrivateKey.generate(), build_type="urn:zero:start:1"))
    record.rewrite_newest({PROVENANCE_FILE: json.dumps(envelope | {"payload": other["payload"]}).encode()})
    found = record.mismatches()
    named(found, "attestation", 2, "signature")
    named(found, "attestation", 2, "digest against the ledger")
    named(found, "attestation", 2, "kind", "found urn:zero:start:1")


def test_inputs_of_an_attestation_replaced_and_signed_with_the_true_key(record: Record) -> None:
    names = ("parent-provenance", "champion", "trainee-optimizer", "data/games/shard-0000.parquet")
    attestation = read_envelope(record.read(2, PROVENANCE_FILE), "it").attestation
    dependencies = tuple(
        each.model_copy(update={"digest": {"sha256": "f" * 64}}) if each.name in (*names, "constraints.txt") else each
        for each in attestation.predicate.build_definition.resolved_dependencies
    )
    record.rewrite_newest(
        {PROVENANCE_FILE: signed_again(record, signing_key(record.home), resolved_dependencies=dependencies)}
    )
    found = record.mismatches()
    named(found, "attestation", 2, "digest against the ledger")
    named(found, "constraints", 2, "SHA-256 against the attestation", "f" * 12)
    for name in names:
        named(found, "attestation", 2, f"digest of {name}", "f" * 12)


def test_attestation_missing(record: Record) -> None:
    record.rewrite_newest({PROVENANCE_FILE: b"{}\n"})
    named(record.mismatches(), "attestation", 2, "attestation", "none that can be read")
