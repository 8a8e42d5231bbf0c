"""Ways to change a signed statement unseen: each is seen, and named."""

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.audit.record import Record, cells, named, tag_of
from tests.end_to_end.project import git
from zero.errors import LineageError
from zero.record.attestation import recorded_statement
from zero.record.provenance import read_envelope, sign, statement_bytes
from zero.record.signing import public_pem, signing_key
from zero.storage.layout import KEY_FILE, PROVENANCE_FILE


def signed_again(record: Record, key: Ed25519PrivateKey, **edits: object) -> bytes:
    """The statement of generation 2 with fields of its second part edited, signed."""
    statement = read_envelope(record.read(2, PROVENANCE_FILE), "it").statement
    build = statement.predicate.build_definition.model_copy(update=edits)
    return sign(
        statement_bytes(
            statement.model_copy(
                update={"predicate": statement.predicate.model_copy(update={"build_definition": build})}
            )
        ),
        key,
    )


def test_statement_with_a_foreign_signature(record: Record) -> None:
    record.rewrite_newest({PROVENANCE_FILE: signed_again(record, Ed25519PrivateKey.generate())})
    found = record.drifts()
    assert cells(found) == {("statement", 2)} and len(found) == 1
    named(found, "statement", 2, "foreign signature", "the key of tiny's first commit")


def test_key_of_the_record_replaced_too(record: Record) -> None:
    key = Ed25519PrivateKey.generate()
    record.rewrite_newest({PROVENANCE_FILE: signed_again(record, key), KEY_FILE: public_pem(key)})
    found = record.drifts()
    named(found, "statement", 2, f"{KEY_FILE}: public key")
    named(found, "statement", 2, "foreign signature")


def test_record_that_never_had_a_key(record: Record) -> None:
    made = f"{record.commit(0)}^"
    commits = [made := record.rewritten(record.commit(number), {KEY_FILE: None}, made) for number in range(3)]
    record.publish(made, **{f"gen_{number:04d}": commit for number, commit in enumerate(commits)})
    named(record.drifts(), "statement", 2, f"{KEY_FILE}: public key: found none in the lineage's first commit")


def test_a_statement_is_held_against_the_key_of_the_lineages_first_commit(record: Record) -> None:
    assert all(recorded_statement(record.home, tag_of(number))[1] for number in range(3))
    key = Ed25519PrivateKey.generate()
    record.rewrite_newest({PROVENANCE_FILE: signed_again(record, key), KEY_FILE: public_pem(key)})
    assert not recorded_statement(record.home, tag_of(2))[1]


def test_a_statement_that_the_ledger_does_not_name_is_refused(record: Record) -> None:
    key = Ed25519PrivateKey.generate()
    other = signed_again(record, key, build_type="urn:zero:start:1")
    record.rewrite_newest({PROVENANCE_FILE: other, KEY_FILE: public_pem(key)})
    git(record.home, "tag", "--force", tag_of(1), tag_of(0))
    for number in (1, 2):
        with pytest.raises(LineageError, match=f"the statement of {tag_of(number)} is not the one"):
            recorded_statement(record.home, tag_of(number))


def test_key_that_the_caller_trusts_is_asked_for(record: Record) -> None:
    assert record.drifts(own_key=public_pem(signing_key(record.home))) == []
    found = record.drifts(own_key=public_pem(Ed25519PrivateKey.generate()))
    assert cells(found) == {("statement", 0), ("statement", 1), ("statement", 2)}
    named(found, "statement", 1, "foreign signature", "the key given")


def test_statement_edited_without_signing(record: Record) -> None:
    envelope = json.loads(record.read(2, PROVENANCE_FILE))
    other = json.loads(signed_again(record, Ed25519PrivateKey.generate(), build_type="urn:zero:start:1"))
    record.rewrite_newest({PROVENANCE_FILE: json.dumps(envelope | {"payload": other["payload"]}).encode()})
    found = record.drifts()
    named(found, "statement", 2, "foreign signature")
    named(found, "statement", 2, "digest against the ledger")
    named(found, "statement", 2, "kind", "found urn:zero:start:1")


@pytest.mark.parametrize(
    "name", ["parent-provenance", "champion", "trainee-optimizer", "data/games/shard-0000.parquet", "constraints.txt"]
)
def test_input_of_a_statement_replaced_and_signed_with_the_true_key(record: Record, name: str) -> None:
    statement = read_envelope(record.read(2, PROVENANCE_FILE), "it").statement
    dependencies = tuple(
        each.model_copy(update={"digest": {"sha256": "f" * 64}}) if each.name == name else each
        for each in statement.predicate.build_definition.resolved_dependencies
    )
    record.rewrite_newest(
        {PROVENANCE_FILE: signed_again(record, signing_key(record.home), resolved_dependencies=dependencies)}
    )
    found = record.drifts()
    named(found, "statement", 2, "digest against the ledger")
    if name == "constraints.txt":
        named(found, "constraints", 2, "SHA-256 against the statement", "f" * 12)
    else:
        named(found, "statement", 2, f"digest of {name}", "f" * 12)


def test_statement_gone(record: Record) -> None:
    record.rewrite_newest({PROVENANCE_FILE: b"{}\n"})
    named(record.drifts(), "statement", 2, "signed statement", "none that can be read")
