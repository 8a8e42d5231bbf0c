"""`infra/compose/prepare`: what a first `docker compose up` needs, made by the user that the containers shall have."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.project import SOURCE_DIR

USER = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A copy of infra/ that the user owns."""
    folder = Path(tempfile.mkdtemp(prefix="zero-prepare-"))
    shutil.copytree(SOURCE_DIR / "infra", folder / "infra", ignore=shutil.ignore_patterns("__pycache__", ".env"))
    owner = pwd.getpwnam(USER)
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    yield folder
    shutil.rmtree(folder)


def prepare(checkout: Path, user: str = USER) -> "subprocess.CompletedProcess[str]":
    become = ["setpriv", f"--reuid={user}", "--clear-groups"] if user != pwd.getpwuid(os.geteuid()).pw_name else []
    return subprocess.run(
        [*become, str(checkout / "infra/compose/prepare")], cwd=checkout, capture_output=True, text=True, check=False
    )


def test_the_user_owns_secrets_and_folders_which_a_second_run_leaves(checkout: Path) -> None:
    done = prepare(checkout)
    assert done.returncode == 0, done.stderr
    lines = (checkout / "infra/compose/.env").read_text().splitlines()
    owner = pwd.getpwnam(USER)
    assert f"ZERO_UID={owner.pw_uid}" in lines
    for name in (
        "secrets/s3-worker",
        "secrets/dask-key.pem",
        "containers/postgres",
        "containers/store",
        "containers/trainings",
    ):
        assert (checkout / ".zero" / name).stat().st_uid == owner.pw_uid
    before = {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()}
    assert prepare(checkout).returncode == 0  # a second time changes nothing
    assert {path: path.read_bytes() for path in checkout.rglob("*") if path.is_file()} == before


def test_the_trainers_mount_points_are_in_the_project_wherever_the_folders_are(checkout: Path) -> None:
    settings = (checkout / "infra/compose/.env.example").read_text()
    for name, place in (("PROJECT", "project"), ("SECRETS", "elsewhere/secrets"), ("DATA", "elsewhere/data")):
        settings = re.sub(rf"(?m)^ZERO_{name}=.*", f"ZERO_{name}={checkout}/{place}", settings)
    (checkout / "infra/compose/.env").write_text(settings)
    done = prepare(checkout)
    assert done.returncode == 0, done.stderr
    for name in ("secrets", "containers"):
        assert not list((checkout / "project/.zero" / name).iterdir())
        assert (checkout / "project/.zero" / name).stat().st_uid == pwd.getpwnam(USER).pw_uid
    assert (checkout / "elsewhere/secrets/s3-worker").exists() and (checkout / "elsewhere/data/store").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try")
def test_root_is_refused(checkout: Path) -> None:
    done = prepare(checkout, "root")
    assert (done.returncode, done.stderr[:7]) == (1, "error: ")
    assert not (checkout / ".zero").exists()
