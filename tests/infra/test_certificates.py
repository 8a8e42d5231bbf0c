"""The certificates of a Dask cluster: who can read them, and when they are made again; a real cluster: test_dask.py."""

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.x509 import load_pem_x509_certificate

from infra import certificates
from infra.certificates import ROLES, make_certificates
from tests.end_to_end.project import SOURCE_DIR, run

NAMES = ["ca", *ROLES]


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_command_makes_them_once_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    command = ["python", "-m", "infra.certificates", str(folder), "scheduler", "10.0.0.1"]
    assert run(command, SOURCE_DIR).stdout == f"made in {folder}: ca, scheduler, worker, client\n"
    assert sorted(content(folder)) == sorted(f"{name}{end}.pem" for name in NAMES for end in ("", "-key"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    before = content(folder)
    assert run(command, SOURCE_DIR).stdout == f"the certificates in {folder} are valid\n"
    assert content(folder) == before


@pytest.mark.parametrize(("lost", "made"), [("client.pem", ["client"]), ("ca-key.pem", NAMES)])
def test_a_lost_file_is_made_again_with_what_depends_on_it(tmp_path: Path, lost: str, made: list[str]) -> None:
    make_certificates(tmp_path)
    (tmp_path / lost).unlink()
    assert make_certificates(tmp_path) == made
    assert make_certificates(tmp_path) == []


def test_an_expired_certificate_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short:
        short.setattr(certificates, "ROLE_DAYS", 7)
        make_certificates(tmp_path)
    authority = (tmp_path / "ca.pem").read_bytes()
    assert make_certificates(tmp_path) == list(ROLES)
    assert (tmp_path / "ca.pem").read_bytes() == authority
    certificate = load_pem_x509_certificate((tmp_path / "worker.pem").read_bytes())
    assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=365)
