"""The format of attestations: an in-toto statement with SLSA provenance, signed in a DSSE envelope.

`record/provenance.intoto.jsonl` holds one envelope on one line. The attestation names the weights of a generation and
everything they were made from by digest, the attestation of the generation before included: the last one covers all.
The lineage's public key is enough to check it, also with other tools, because the formats are public:
https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md, https://slsa.dev/spec/v1.0/provenance.
An attestation holds no time, host or path, so equal generations have equal attestations; Ed25519 signatures are
deterministic.

securesystemslib and cryptography are imported inside functions: `zero status` needs neither, and securesystemslib
imports boto3 for keys at Amazon, which takes a third of a second.
"""

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from zero.errors import LineageError
from zero.storage.files import sha256_bytes
from zero.storage.layout import KEY_FILE, PROVENANCE_FILE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from securesystemslib.dsse import Envelope as Dsse

PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUILD_TYPE = "urn:zero:{kind}:1"
"""Meaning of the parameters and dependencies. `kind`: start, decision, rollback or branch."""
BUILDER = "urn:zero:registry"
PARENT = "parent-provenance"
"""Name of the attestation of the generation before, among the dependencies."""
SOURCE = "source-provenance"
"""Name of the attestation of the generation that a rollback or a branch restores."""
DATASET = "dataset"
"""Name of the input that is the manifest of the imported games with which a lineage started."""
PLAYER = "player"
"""Name of the weights that played the games, if self-play overlapped and the state named them."""


class _Part(BaseModel):
    """Part of an attestation. Names are written as in the specifications; fields without a value are left out."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )


class Resource(_Part):
    """A file, commit or attestation by its digests ('ResourceDescriptor')."""

    name: str
    digest: dict[str, str]
    """Digest by algorithm: `sha256` or `gitCommit`."""
    annotations: dict[str, Any] | None = None

    @property
    def sha256(self) -> str:
        """Its SHA-256; empty if it has none."""
        return self.digest.get("sha256", "")


class ExternalParameters(_Part):
    """What the user chose: lineage, generation, parameters."""

    lineage: str
    generation: int
    parameters: dict[str, Any]
    """All of params.yaml."""


class InternalParameters(_Part):
    """What the machine and the code determined."""

    engine: dict[str, str]
    """Code digest by stage."""
    profile: dict[str, str]
    """Execution profile."""
    lock: str
    """SHA-256 of dvc.lock; that of the empty text if no stage ran."""


class BuildDefinition(_Part):
    """Parameters and inputs."""

    build_type: str
    external_parameters: ExternalParameters
    internal_parameters: InternalParameters
    resolved_dependencies: tuple[Resource, ...]


class Builder(_Part):
    """The program that recorded it."""

    id: str = BUILDER


class Metadata(_Part):
    """The run."""

    invocation_id: str
    """Tag of the generation."""


class RunDetails(_Part):
    """The run and what it wrote beside the weights."""

    builder: Builder = Builder()
    metadata: Metadata
    byproducts: tuple[Resource, ...]


class Predicate(_Part):
    """SLSA provenance, version 1."""

    build_definition: BuildDefinition
    run_details: RunDetails


class Attestation(_Part):
    """An in-toto statement, version 1."""

    # in-toto's name is `_type`, which pydantic would take for a private attribute.
    type: Literal["https://in-toto.io/Statement/v1"] = Field(default="https://in-toto.io/Statement/v1", alias="_type")
    subject: tuple[Resource, ...]
    predicate_type: Literal["https://slsa.dev/provenance/v1"] = "https://slsa.dev/provenance/v1"
    predicate: Predicate

    @property
    def dependencies(self) -> dict[str, Resource]:
        """Inputs by name."""
        return {each.name: each for each in self.predicate.build_definition.resolved_dependencies}

    @property
    def byproducts(self) -> dict[str, Resource]:
        """Outputs beside the weights, by name."""
        return {each.name: each for each in self.predicate.run_details.byproducts}

    @property
    def external(self) -> ExternalParameters:
        """Lineage, generation, parameters."""
        return self.predicate.build_definition.external_parameters

    @property
    def internal(self) -> InternalParameters:
        """Code digests, execution profile, lock."""
        return self.predicate.build_definition.internal_parameters


class Envelope(NamedTuple):
    """A signed attestation as it was read. `signed_by` checks the signature."""

    dsse: "Dsse"
    attestation: Attestation

    @property
    def payload(self) -> bytes:
        """The signed bytes."""
        return self.dsse.payload

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Names of the keys of its signatures."""
        return tuple(sorted(self.dsse.signatures))

    def signed_by(self, public_key: bytes, key_source: str = KEY_FILE) -> bool:
        """True if it has a valid signature by a public key (PEM). `key_source` is the key's name in errors.

        Raises:
          LineageError: the key cannot be read.
        """
        from securesystemslib.exceptions import VerificationError

        from zero.record.signing import read_public_key

        try:
            self.dsse.verify([read_public_key(public_key, key_source)], 1)
        except VerificationError:
            return False
        return True


def attestation_bytes(attestation: Attestation) -> bytes:
    """The signed bytes of an attestation: JSON with sorted keys and no spaces."""
    tree = attestation.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def attestation_digest(payload: bytes) -> str:
    """SHA-256 (hex) of a signed attestation. The ledger and the next attestation refer to it by this digest."""
    return sha256_bytes(payload)


def sign(payload: bytes, key: "Ed25519PrivateKey") -> bytes:
    """The content of `record/provenance.intoto.jsonl`: the payload in a signed envelope."""
    from securesystemslib.dsse import Envelope as Dsse
    from securesystemslib.signer import CryptoSigner

    envelope = Dsse(payload, PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(key))
    return (json.dumps(envelope.to_dict(), sort_keys=True) + "\n").encode()


def read_envelope(data: bytes, source: str) -> Envelope:
    """Reads a signed attestation.

    Args:
      data: the envelope.
      source: its name in errors.

    Raises:
      LineageError: it is not an envelope with an attestation of this project.
    """
    from securesystemslib.dsse import Envelope as Dsse

    try:
        envelope = Dsse.from_dict(json.loads(data))
        if envelope.payload_type != PAYLOAD_TYPE:  # a valid signature on another type must not count
            raise ValueError(f"payload of type {envelope.payload_type}")
        attestation = Attestation.model_validate_json(envelope.payload)
    except ValidationError as error:
        fault = error.errors()[0]
        raise _unreadable(source, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(source, str(error)) from None
    return Envelope(envelope, attestation)


def _unreadable(source: str, reason: str) -> LineageError:
    remedy = f"restore it with `git checkout HEAD -- {PROVENANCE_FILE}`"
    if source.endswith(f":{PROVENANCE_FILE}"):  # at a tag, which no checkout changes
        remedy = "`zero audit` reports more"
    return LineageError(f"{source} holds no signed attestation ({reason}); {remedy}")
