"""The files that `infra/secrets` makes: who may read them, and that none is written over."""

import stat
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.project import SOURCE_DIR, run

SCRIPT = str(SOURCE_DIR / "infra/secrets")


def make(folder: Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
    return run([SCRIPT, str(folder)], SOURCE_DIR, check=check)


def test_only_the_owner_reads_them(secrets: Path) -> None:
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets.iterdir()} == {0o600}


def test_a_second_run_changes_nothing_and_another_cluster_shares_no_password(secrets: Path, tmp_path: Path) -> None:
    make(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    make(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    for path in secrets.iterdir():
        assert path.read_bytes() != before[path.name], path.name


def test_a_damaged_key_of_dask_is_named_with_a_remedy(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "dask-key.pem").write_text("no key")
    for _ in range(2):  # with its certificate and without
        done = make(tmp_path, check=False)
        assert done.returncode == 1
        assert "error: dask-key.pem in" in done.stderr and "delete it and dask.pem" in done.stderr
        (tmp_path / "dask.pem").unlink(missing_ok=True)


def test_a_changed_password_tells_which_files_no_longer_fit(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "mlflow-database-password").unlink()
    done = make(tmp_path, check=False)
    assert done.returncode != 0
    assert "error: mlflow-database-url pgpass mlflow-auth.ini in" in done.stderr
    for name in ("mlflow-database-url", "pgpass", "mlflow-auth.ini"):
        (tmp_path / name).unlink()
    make(tmp_path)


def test_a_changed_key_of_dask_tells_that_the_certificate_no_longer_fits(tmp_path: Path) -> None:
    make(tmp_path)
    before = (tmp_path / "dask.pem").read_bytes()
    (tmp_path / "dask-key.pem").unlink()
    done = make(tmp_path, check=False)
    assert (done.returncode, "error: dask.pem in" in done.stderr) == (1, True)
    (tmp_path / "dask.pem").unlink()
    make(tmp_path)
    assert (tmp_path / "dask.pem").read_bytes() != before


@pytest.mark.parametrize("num_days", [29, 31])
def test_a_certificate_that_expires_soon_is_told(tmp_path: Path, num_days: int) -> None:
    make(tmp_path)
    key, certificate = tmp_path / "dask-key.pem", tmp_path / "dask.pem"
    command = ["openssl", "req", "-x509", "-new", "-key", str(key), "-days", str(num_days), "-subj", "/CN=zero Dask"]
    certificate.write_text(run(command, tmp_path).stdout)
    done = make(tmp_path, check=False)
    told = (
        f"error: dask.pem in {tmp_path} expires within 30 days; delete it, run this again, and restart" in done.stderr
    )
    assert (done.returncode, told) == ((1, True) if num_days < 30 else (0, False))
    certificate.unlink()
    make(tmp_path)


def test_without_openssl_nothing_is_made(tmp_path: Path) -> None:
    programs, folder = tmp_path / "programs", tmp_path / "secrets"
    programs.mkdir()
    for name in ("bash", "dirname"):
        (programs / name).symlink_to(
            next(path for path in (Path("/usr/bin", name), Path("/bin", name)) if path.exists())
        )
    done = run([SCRIPT, str(folder)], SOURCE_DIR, check=False, PATH=str(programs))
    assert (done.returncode, done.stderr[:27]) == (1, "error: there is no openssl,")
    assert not folder.exists()


def test_the_certificates_of_older_versions_are_no_longer_used(tmp_path: Path) -> None:
    (tmp_path / "dask").mkdir()
    assert f"{tmp_path}/dask is no longer used: give other machines dask.pem and dask-key.pem" in make(tmp_path).stdout
    (tmp_path / "dask").rmdir()
    assert "no longer used" not in make(tmp_path).stdout


def test_a_command_gets_a_secret_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("of the file\n")
    wrapper = str(SOURCE_DIR / "infra/images/with-secrets")
    shown = run(
        [wrapper, "env"], tmp_path, SECRET_PREFECT_API_AUTH_STRING=str(tmp_path / "password")
    ).stdout.splitlines()
    assert "PREFECT_API_AUTH_STRING=of the file" in shown
    assert not [line for line in shown if line.startswith("SECRET_")]


@pytest.mark.parametrize(("content", "complaint"), [(None, "cannot read"), ("", "is empty")])
def test_a_command_without_its_secret_does_not_start(tmp_path: Path, content: str | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / "password").write_text(content)
    wrapper = str(SOURCE_DIR / "infra/images/with-secrets")
    done = run([wrapper, "echo", "started"], tmp_path, check=False, SECRET_PASSWORD=str(tmp_path / "password"))
    assert (done.returncode, done.stdout) == (1, "")
    assert complaint in done.stderr
