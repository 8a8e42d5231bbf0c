"""Attestations and their signatures: only what was signed is accepted."""

import base64
import json
import subprocess
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.made_generations import made_attestation
from zero.errors import LineageError, StorageError
from zero.record.provenance import Attestation, attestation_bytes, attestation_digest, read_envelope, sign
from zero.record.signing import KEY_PATH, public_pem, signing_key
from zero.storage.layout import KEY_FILE

KEY, OTHER_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in (1, 2))


def attestation(generation: int = 3) -> Attestation:
    return made_attestation(generation, seed=1)


def envelope() -> dict[str, Any]:
    signed: dict[str, Any] = json.loads(sign(attestation_bytes(attestation()), KEY))
    return signed


def signed_by(data: bytes, public_key: bytes, key_source: str = KEY_FILE) -> bool:
    return read_envelope(data, "the file").signed_by(public_key, key_source)


def test_an_attestation_is_read_back_as_it_was_signed():
    payload = attestation_bytes(attestation())
    read = read_envelope(sign(payload, KEY), "provenance")
    assert read.payload == payload
    assert read.attestation == attestation()
    assert read.attestation.dependencies["source"].digest == {"gitCommit": f"{3:040x}"}
    assert len(read.key_ids) == 1


def test_the_names_are_those_of_the_specifications():
    tree = json.loads(attestation_bytes(attestation()))
    assert tree["_type"] == "https://in-toto.io/Statement/v1"
    assert tree["predicateType"] == "https://slsa.dev/provenance/v1"
    build = tree["predicate"]["buildDefinition"]
    assert set(build) == {"buildType", "externalParameters", "internalParameters", "resolvedDependencies"}
    assert build["resolvedDependencies"][0] == {"name": "source", "digest": {"gitCommit": f"{3:040x}"}}
    assert tree["predicate"]["runDetails"]["metadata"] == {"invocationId": "go9/gen-0003"}
    line = json.loads(sign(attestation_bytes(attestation()), KEY))
    assert line["payloadType"] == "application/vnd.in-toto+json"


def test_equal_attestations_have_equal_signatures():
    assert sign(attestation_bytes(attestation()), KEY) == sign(attestation_bytes(attestation()), KEY)
    assert attestation_digest(attestation_bytes(attestation(3))) != attestation_digest(
        attestation_bytes(attestation(4))
    )


def test_the_signature_is_valid_for_its_key_only():
    signed = sign(attestation_bytes(attestation()), KEY)
    assert signed_by(signed, public_pem(KEY))
    assert not signed_by(signed, public_pem(OTHER_KEY))


def test_a_payload_put_under_an_old_signature_is_not_signed():
    forged = envelope() | {"payload": base64.b64encode(attestation_bytes(attestation(4))).decode()}
    assert not signed_by(json.dumps(forged).encode(), public_pem(KEY))


def test_a_foreign_signature_under_the_key_id_of_ours_is_not_ours():
    forged = json.loads(sign(attestation_bytes(attestation()), OTHER_KEY))
    forged["signatures"][0]["keyid"] = envelope()["signatures"][0]["keyid"]
    assert not signed_by(json.dumps(forged).encode(), public_pem(KEY))


def test_an_envelope_without_a_signature_is_not_signed():
    assert not signed_by(json.dumps(envelope() | {"signatures": []}).encode(), public_pem(KEY))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"[" * 100_000,
        json.dumps(envelope() | {"payload": "%%%"}).encode(),
        json.dumps(envelope() | {"payloadType": "text/plain"}).encode(),
        json.dumps(envelope() | {"payload": base64.b64encode(b'{"_type": 1}').decode()}).encode(),
        json.dumps(envelope() | {"signatures": 3}).encode(),
    ],
)
def test_data_that_is_not_an_envelope_is_named(data):
    with pytest.raises(LineageError, match=r"^the file holds no signed attestation \(.*\); restore it with"):
        read_envelope(data, "the file")


def test_a_broken_attestation_at_a_tag_has_a_remedy_that_works():
    with pytest.raises(LineageError, match=r"holds no signed attestation \(.*\); `zero audit` reports more$"):
        read_envelope(b"{}", "go9/gen-0003:record/provenance.intoto.jsonl")


def test_a_key_of_the_user_is_named_as_such():
    signed = sign(attestation_bytes(attestation()), KEY)
    with pytest.raises(LineageError, match=r"^mine\.pem is not .* key; give a public key file \(PEM\)$"):
        signed_by(signed, b"nonsense", key_source="mine.pem")


def test_a_text_that_is_not_a_public_key_is_refused():
    with pytest.raises(LineageError, match="is not an Ed25519 public key"):
        signed_by(sign(attestation_bytes(attestation()), KEY), b"-----BEGIN PUBLIC KEY-----\nnonsense\n")


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path):
    first = signing_key(tmp_path)
    path = tmp_path / KEY_PATH
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0
    assert public_pem(signing_key(tmp_path)) == public_pem(first)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_key_of_openssl_that_the_user_names_is_used(tmp_path, monkeypatch):
    path = tmp_path / "mine.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(path)], check=True, capture_output=True)
    public = subprocess.run(["openssl", "pkey", "-in", str(path), "-pubout"], check=True, capture_output=True).stdout
    monkeypatch.setenv("ZERO_SIGNING_KEY", str(path))
    key = signing_key(tmp_path)
    assert public_pem(key) == public
    assert not (tmp_path / KEY_PATH).exists()
    assert signed_by(sign(attestation_bytes(attestation()), key), public)


def test_a_named_key_that_is_missing_is_not_made(tmp_path, monkeypatch):
    monkeypatch.setenv("ZERO_SIGNING_KEY", str(tmp_path / "lost.pem"))
    with pytest.raises(StorageError, match=r"cannot read the signing key .*lost\.pem: No such file"):
        signing_key(tmp_path)


@pytest.mark.parametrize("text", ["", "no key", "-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\n"])
def test_a_file_that_is_not_a_key_is_named_with_the_remedy(tmp_path, monkeypatch, text):
    path = tmp_path / "key.pem"
    path.write_text(text)
    monkeypatch.setenv("ZERO_SIGNING_KEY", str(path))
    with pytest.raises(LineageError, match=r"key\.pem is not an Ed25519 private key .*openssl genpkey"):
        signing_key(tmp_path)
