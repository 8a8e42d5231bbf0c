"""The Ed25519 key that signs the record: made on first use, or the user's own.

The private key is `<home>/.zero/keys/signing-key.pem` (mode 0600), or the file in `ZERO_SIGNING_KEY`. The public key is
in the record of each lineage from its first commit on, so that the record alone is enough to check a signature.
Signatures are those of DSSE (https://github.com/secure-systems-lab/dsse), by securesystemslib.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from zero.config.settings import STATE_FOLDER, setting
from zero.errors import LineageError, StorageError
from zero.storage.files import write_atomic
from zero.storage.layout import KEY_FILE

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

KEY_PATH = f"{STATE_FOLDER}/keys/signing-key.pem"


def signing_key(home: Path) -> Ed25519PrivateKey:
    """The signing key of this project's folder; made if there is none.

    Raises:
      LineageError: the file is not an Ed25519 key in PEM without a password.
      StorageError: it cannot be read or written.
    """
    given = setting("ZERO_SIGNING_KEY")
    path = Path(given) if given else home / KEY_PATH
    if not given and not path.exists():
        _make_key(path)
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise StorageError(
            f"cannot read the signing key {path}: {error.strerror}; set ZERO_SIGNING_KEY to a key file, or unset it"
        ) from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise LineageError(
            f"{path} is not an Ed25519 private key without password; make one with `openssl genpkey -algorithm ed25519`"
        )
    return key


def public_pem(key: Ed25519PrivateKey) -> bytes:
    """The public key (PEM), as a lineage's record holds it."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_public_key(pem: bytes, source: str) -> "SSlibKey":
    """A public key from its PEM text.

    Raises:
      LineageError: it is not an Ed25519 public key.
    """
    from securesystemslib.signer import SSlibKey

    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        own = source == KEY_FILE
        remedy = f"restore it with `git checkout HEAD -- {source}`" if own else "give a public key file (PEM)"
        raise LineageError(f"{source} is not an Ed25519 public key; {remedy}")
    return SSlibKey.from_crypto(key)


def _make_key(path: Path) -> None:
    """Writes a new key that only its owner can read. If two processes do so at once, the first key stays."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(draft, pem, mode=0o600)
        try:
            # A link fails if the path exists; a rename would replace the key of another process.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    except OSError as error:
        raise StorageError(f"cannot write the signing key {path}: {error.strerror}") from None
