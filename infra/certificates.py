"""TLS certificates of a Dask cluster: its own authority, and a certificate each for scheduler, workers and clients.

    python -m infra.certificates FOLDER [HOST...]      writes ca.pem, {scheduler,worker,client}.pem and their keys

Dask authenticates both ends of a connection by the authority: whoever has a key may run code on every worker. Valid
certificates are kept, expired ones are replaced; restart what uses them. HOST is a name or address of the scheduler.
"""

import argparse
import contextlib
import ipaddress
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ROLES = ("scheduler", "worker", "client")
AUTHORITY = "ca"
AUTHORITY_DAYS, ROLE_DAYS = 3650, 730
RENEWAL_DAYS = 30
"""A certificate with less time left is replaced."""

Key = ec.EllipticCurvePrivateKey
Pair = tuple[x509.Certificate, Key]


def make_certificates(folder: Path, hosts: Sequence[str] = ()) -> list[str]:
    """Makes the missing and the expired certificates; returns their names."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = []
    authority = _valid_pair(folder, AUTHORITY, None)
    if authority is None:
        authority = _write_pair(folder, AUTHORITY, None, ())
        made.append(AUTHORITY)
    for role in ROLES:
        if _valid_pair(folder, role, authority) is None:
            _write_pair(folder, role, authority, hosts)
            made.append(role)
    return made


def _valid_pair(folder: Path, name: str, authority: Pair | None) -> Pair | None:
    """A certificate and its key; without an authority, that of the authority itself.

    Returns:
      None if one is missing, if they do not belong together, if the authority did not sign the certificate, or if it
      expires soon.
    """
    try:
        certificate = x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes())
        key = load_pem_private_key((folder / f"{name}-key.pem").read_bytes(), password=None)
        certificate.verify_directly_issued_by(authority[0] if authority else certificate)
    except (OSError, ValueError, TypeError, InvalidSignature):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    is_current = certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=RENEWAL_DAYS)
    return (certificate, key) if is_current else None


def _write_pair(folder: Path, name: str, authority: Pair | None, hosts: Sequence[str]) -> Pair:
    """Makes a key and its certificate; without an authority, that of the authority itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"zero Dask {name}")])
    issuer, signing_key = (authority[0].subject, authority[1]) if authority else (subject, key)
    now = datetime.now(UTC)
    is_authority = authority is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # the clocks of other machines may be behind
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS if is_authority else ROLE_DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(_key_usage(is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    if not is_authority:
        names = [_general_name(host) for host in dict.fromkeys((*hosts, "localhost", "127.0.0.1"))]
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]  # a worker listens and connects
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    certificate = builder.sign(signing_key, SHA256())
    _write(folder / f"{name}-key.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    _write(folder / f"{name}.pem", certificate.public_bytes(Encoding.PEM))
    return certificate, key


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


def _write(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, completely or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def main() -> int:
    """Makes what is missing; an error is one message and exit status 1."""
    parser = argparse.ArgumentParser(prog="infra.certificates", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="name or address of the scheduler")
    options = parser.parse_args()
    try:
        made = make_certificates(options.folder, options.hosts)
    except (OSError, ValueError) as error:
        print(f"error: {options.folder}: {error}", file=sys.stderr)
        return 1
    print(f"made in {options.folder}: {', '.join(made)}" if made else f"the certificates in {options.folder} are valid")
    return 0


if __name__ == "__main__":
    sys.exit(main())
