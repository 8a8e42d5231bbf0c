"""What made a generation, as an in-toto statement with SLSA provenance, signed in a DSSE envelope.

`record/provenance.intoto.jsonl` holds one envelope on one line. Its statement names the weights that came out and
everything that went in by hash, and among it the statement of the generation before: so the last one vouches for all.
It can be checked with the lineage's public key alone, also by other tools, for the formats are public:
https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md, https://slsa.dev/spec/v1.0/provenance.
No time, host or path is in it, so equal generations have equal statements, and Ed25519 makes equal signatures.

Imports securesystemslib only inside functions: it imports boto3, a third of a second, for keys that are kept at Amazon.
"""

import json
from typing import Any, Literal, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from zero.errors import LineageError
from zero.record.signing import read_public_key
from zero.storage.files import sha256_bytes
from zero.storage.layout import KEY_FILE, PROVENANCE_FILE

PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUILD_TYPE = "urn:zero:{kind}:1"
"""What the parameters and dependencies of a statement mean: of a start, a decision, a rollback or a branch."""
BUILDER = "urn:zero:registry"


class _Part(BaseModel):
    """A part of a statement; its names are written as in the specifications, fields without a value not at all."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )


class Resource(_Part):
    """Something by its hashes ('ResourceDescriptor')."""

    name: str
    digest: dict[str, str]
    """By algorithm: `sha256`, or `gitCommit`."""
    annotations: dict[str, Any] | None = None

    @property
    def sha256(self) -> str:
        """Its SHA-256; empty where it has none."""
        return self.digest.get("sha256", "")


class ExternalParameters(_Part):
    """What was asked for."""

    lineage: str
    generation: int
    parameters: dict[str, Any]
    """The whole of params.yaml."""


class InternalParameters(_Part):
    """What was found."""

    engine: dict[str, str]
    """Fingerprint of the sources by stage."""
    profile: dict[str, str]
    """Execution profile."""
    lock: str
    """SHA-256 of dvc.lock; of the empty text where no stage has run."""


class BuildDefinition(_Part):
    """What went in."""

    build_type: str
    external_parameters: ExternalParameters
    internal_parameters: InternalParameters
    resolved_dependencies: tuple[Resource, ...]


class Builder(_Part):
    """Who recorded it."""

    id: str = BUILDER


class Metadata(_Part):
    """Which run it was."""

    invocation_id: str
    """The tag."""


class RunDetails(_Part):
    """What is told of the run beside its outcome."""

    builder: Builder = Builder()
    metadata: Metadata
    byproducts: tuple[Resource, ...]


class Predicate(_Part):
    """SLSA provenance, version 1."""

    build_definition: BuildDefinition
    run_details: RunDetails


class Statement(_Part):
    """An in-toto statement, version 1."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(default="https://in-toto.io/Statement/v1", alias="_type")
    subject: tuple[Resource, ...]
    predicate_type: Literal["https://slsa.dev/provenance/v1"] = "https://slsa.dev/provenance/v1"
    predicate: Predicate

    @property
    def dependencies(self) -> dict[str, Resource]:
        """What went in, by name."""
        return {each.name: each for each in self.predicate.build_definition.resolved_dependencies}

    @property
    def byproducts(self) -> dict[str, Resource]:
        """What came out beside the weights, by name."""
        return {each.name: each for each in self.predicate.run_details.byproducts}

    @property
    def asked(self) -> ExternalParameters:
        """Lineage, generation, parameters."""
        return self.predicate.build_definition.external_parameters

    @property
    def found(self) -> InternalParameters:
        """Fingerprints, profile, lock."""
        return self.predicate.build_definition.internal_parameters


class Envelope(NamedTuple):
    """A signed statement as it was read; whether the signatures hold is for `signed_by`."""

    payload: bytes
    statement: Statement
    key_ids: tuple[str, ...]


def statement_bytes(statement: Statement) -> bytes:
    """The statement as it is signed: JSON with sorted keys and no spaces."""
    tree = statement.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def statement_digest(payload: bytes) -> str:
    """SHA-256 (hex) of a signed statement, by which the ledger and the next generation name it."""
    return sha256_bytes(payload)


def sign(payload: bytes, key: Ed25519PrivateKey) -> bytes:
    """The line of `record/provenance.intoto.jsonl`."""
    from securesystemslib.dsse import Envelope as Dsse
    from securesystemslib.signer import CryptoSigner

    envelope = Dsse(payload, PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(key))
    return (json.dumps(envelope.to_dict(), sort_keys=True) + "\n").encode()


def read_envelope(data: bytes, source: str) -> Envelope:
    """The statement in an envelope.

    Raises:
      LineageError: it is no envelope with a statement of this project.
    """
    from securesystemslib.dsse import Envelope as Dsse

    try:
        envelope = Dsse.from_dict(json.loads(data))
        if envelope.payload_type != PAYLOAD_TYPE:
            raise ValueError(f"payload of type {envelope.payload_type}")
        statement = Statement.model_validate_json(envelope.payload)
    except ValidationError as error:
        fault = error.errors()[0]
        raise _unreadable(source, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(source, str(error)) from None
    return Envelope(envelope.payload, statement, tuple(sorted(envelope.signatures)))


def signed_by(data: bytes, public_key: bytes, source: str = PROVENANCE_FILE) -> bool:
    """Whether an envelope carries a valid signature by that key (PEM).

    Raises:
      LineageError: one of them cannot be read.
    """
    from securesystemslib.dsse import Envelope as Dsse
    from securesystemslib.exceptions import VerificationError

    read_envelope(data, source)
    try:
        Dsse.from_dict(json.loads(data)).verify([read_public_key(public_key, KEY_FILE)], 1)
    except VerificationError:
        return False
    return True


def _unreadable(source: str, reason: str) -> LineageError:
    return LineageError(
        f"{source} holds no signed statement ({reason}); restore it with `git checkout HEAD -- {PROVENANCE_FILE}`"
    )
