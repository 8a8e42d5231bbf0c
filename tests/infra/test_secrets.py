"""The files that `infra/secrets` makes: who may read them, that none is written over, and what each role may do."""

import configparser
import json
import stat
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.end_to_end.project import SOURCE_DIR, run

SCRIPT = str(SOURCE_DIR / "infra/secrets")
WEIGHTS, SHARD, RECEIPT = "weights/ab.safetensors", "shards/ab/abcd.parquet", "receipts/ab/abcd.json"


def make(folder: Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
    return run([SCRIPT, str(folder)], SOURCE_DIR, check=check)


def credentials(secrets: Path, role: str) -> tuple[str, str]:
    """Access key and secret key of a role, as an AWS client reads them."""
    parser = configparser.ConfigParser()
    parser.read(secrets / f"s3-{role}")
    return parser["default"]["aws_access_key_id"], parser["default"]["aws_secret_access_key"]


def may(secrets: Path, role: str, action: str, bucket: str, name: str) -> bool:
    """What SeaweedFS answers: an action is given for all, for a bucket or for a pattern of names; Admin is each one."""
    identities = json.loads((secrets / "s3-identities.json").read_text())["identities"]
    (allowed,) = [set(entry["actions"]) for entry in identities if entry["name"] == role]
    target = f"{action}:{bucket}/{name}"
    exact = {"Admin", action, f"{action}:{bucket}"} & allowed
    return bool(exact) or any(fnmatchcase(target, pattern) for pattern in allowed if "*" in pattern)


def test_only_the_owner_reads_them(secrets: Path) -> None:
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets.iterdir()} == {0o600}


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    make(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_two_clusters_share_no_password(secrets: Path, tmp_path: Path) -> None:
    make(tmp_path)
    for path in secrets.iterdir():
        assert path.read_bytes() != (tmp_path / path.name).read_bytes(), path.name


def test_a_changed_password_tells_which_files_no_longer_fit(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "mlflow-database-password").unlink()
    done = make(tmp_path, check=False)
    assert done.returncode != 0
    assert "error: mlflow-database-url pgpass mlflow-auth.ini in" in done.stderr
    for name in ("mlflow-database-url", "pgpass", "mlflow-auth.ini"):
        (tmp_path / name).unlink()
    make(tmp_path)


def test_the_store_knows_the_credentials_of_each_role(secrets: Path) -> None:
    identities = json.loads((secrets / "s3-identities.json").read_text())["identities"]
    assert [entry["name"] for entry in identities] == ["admin", "backup", "mlflow", "trainer", "worker"]
    for entry in identities:
        (key,) = entry["credentials"]
        assert (key["accessKey"], key["secretKey"]) == credentials(secrets, entry["name"])


def test_a_worker_has_exactly_these_actions(secrets: Path) -> None:
    identities = json.loads((secrets / "s3-identities.json").read_text())["identities"]
    (worker,) = [entry for entry in identities if entry["name"] == "worker"]
    folders = ("files", "receipts", "shards", "trainings")
    wanted = {f"{verb}:zero-store/{folder}/*" for verb in ("List", "Read", "Write") for folder in folders}
    assert set(worker["actions"]) == wanted | {"Read:zero-store/weights/*"}


@pytest.mark.parametrize(
    ("action", "bucket", "name", "allowed"),
    [
        ("Read", "zero-store", WEIGHTS, True),
        ("Write", "zero-store", WEIGHTS, False),
        ("List", "zero-store", "weights/", False),
        ("Write", "zero-store", SHARD, True),
        ("List", "zero-store", "shards/ab/", True),
        ("Write", "zero-store", RECEIPT, True),
        ("Write", "zero-store", "trainings/ab/a.json", True),
        ("Write", "zero-store", "quarantine/abcd", False),
        ("List", "zero-store", "", False),
        ("Write", "zero-mlflow", "shards/ab/abcd.parquet", False),
        ("Read", "zero-mlflow", "1/model", False),
        ("Admin", "zero-store", "", False),
    ],
)
def test_what_a_worker_may_do(secrets: Path, action: str, bucket: str, name: str, allowed: bool) -> None:
    assert may(secrets, "worker", action, bucket, name) is allowed


def test_mlflow_has_its_own_bucket_and_the_trainer_the_other(secrets: Path) -> None:
    reach = {
        role: {bucket for bucket in ("zero-store", "zero-mlflow") if may(secrets, role, "Write", bucket, "a")}
        for role in ("admin", "backup", "mlflow", "trainer")
    }
    assert reach["admin"] == {"zero-store", "zero-mlflow"}
    assert reach["backup"] == set()
    assert reach["mlflow"] == {"zero-mlflow"}
    assert reach["trainer"] == {"zero-store"}


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
