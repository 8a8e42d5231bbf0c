"""A backup of a real repository, PostgreSQL and buckets (folders here), restored into an empty cluster."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cluster.postgres import Postgres, needs_postgres
from tests.end_to_end.project import SOURCE_DIR, git, run
from zero.storage.files import sha256_file

pytestmark = needs_postgres

SHARD = "shards/ab/" + "ab" * 32 + ".parquet"
CACHED = ".zero/dvc-cache/files/md5/ab/cdef"


class Cluster(NamedTuple):
    """A project's folder, its buckets, and how the scripts find them."""

    home: Path
    bucket: Path
    environment: dict[str, str]

    def run(self, script: str, place: Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Runs `infra/backup` or `infra/restore`."""
        return run([str(SOURCE_DIR / "infra" / script), str(place)], SOURCE_DIR, check=check, **self.environment)


class Backup(NamedTuple):
    """A cluster with something in each of its parts, and its backup."""

    cluster: Cluster
    place: Path


def cluster_in(folder: Path, postgres: Postgres) -> Cluster:
    home, bucket = folder / "home", folder / "buckets/zero-store"
    bucket.mkdir(parents=True)
    settings = {"PYTHON": sys.executable, "ZERO_HOME": str(home), "ZERO_BUCKETS": f"file://{bucket}"}
    return Cluster(home, bucket, settings | {"ZERO_DATABASES": "mlflow"} | postgres.environment())


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Backup:
    folder = tmp_path_factory.mktemp("cluster")
    made = cluster_in(folder, postgres)
    made.home.mkdir()
    git(made.home, "init", "--quiet", "--initial-branch=main")
    (made.home / "params.yaml").write_text("seed: 1\n")
    (made.home / ".gitignore").write_text(".zero/\n")
    git(made.home, "add", "--all")
    git(made.home, "commit", "--quiet", "-m", "generation 0")
    git(made.home, "tag", "go9/gen-0000")
    git(made.home, "branch", "lineage/go9")
    git(made.home, "notes", "--ref=zero-costs/go9", "add", "-m", "cost")
    for path, content in ((made.home / CACHED, b"weights"), (made.bucket / SHARD, b"games")):
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    postgres.ask("mlflow", "mlflow", "CREATE TABLE runs (name text); INSERT INTO runs VALUES ('gen-0001')")
    done = made.run("backup", folder / "backups")
    return Backup(made, Path(done.stdout.splitlines()[-1]))


@pytest.fixture
def empty(backup: Backup, tmp_path: Path, postgres: Postgres) -> Cluster:
    """A cluster to restore into."""
    postgres.ask("mlflow", "mlflow", "DROP TABLE IF EXISTS runs")
    return cluster_in(tmp_path, postgres)


def test_what_was_backed_up_is_restored(backup: Backup, empty: Cluster, postgres: Postgres) -> None:
    assert backup.place.stat().st_mode & 0o077 == 0  # what is in the folder keeps its own mode
    empty.run("restore", backup.place)
    assert git(empty.home, "for-each-ref") == git(backup.cluster.home, "for-each-ref")
    assert (empty.home / "params.yaml").read_text() == "seed: 1\n"
    assert git(empty.home, "status", "--porcelain") == ""
    assert git(empty.home, "notes", "--ref=zero-costs/go9", "show", "go9/gen-0000").strip() == "cost"
    assert (empty.home / CACHED).read_bytes() == b"weights"
    assert (empty.bucket / SHARD).read_bytes() == b"games"
    assert postgres.ask("mlflow", "mlflow", "SELECT name FROM runs").stdout.strip() == "gen-0001"


@pytest.mark.parametrize("is_in_manifest", [False, True])
def test_a_damaged_backup_is_refused_before_anything_is_written(
    backup: Backup, empty: Cluster, tmp_path: Path, is_in_manifest: bool
) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(backup.place, damaged)
    with (damaged / "buckets/zero-store/SHA256SUMS").open("a") as sums:
        sums.write("second line of a name\n")
    if is_in_manifest:
        files = sorted(path for path in damaged.rglob("*") if path.is_file() and path.name != "MANIFEST")
        lines = [f"{sha256_file(path)}  ./{path.relative_to(damaged)}\n" for path in files]
        (damaged / "MANIFEST").write_text("".join(lines))
    complaint = "has the line 'second line of a name'" if is_in_manifest else "was damaged"
    assert complaint in empty.run("restore", damaged, check=False).stderr
    assert not empty.home.exists()


def test_what_is_not_empty_is_not_restored_into(backup: Backup, empty: Cluster, postgres: Postgres) -> None:
    refused = backup.cluster.run("restore", backup.place, check=False)
    assert f"{backup.cluster.home} is not empty" in refused.stderr
    (empty.bucket / "something").touch()
    assert "zero-store is not empty" in empty.run("restore", backup.place, check=False).stderr
    (empty.bucket / "something").unlink()
    postgres.ask("mlflow", "mlflow", "CREATE TABLE runs (name text)")
    assert "mlflow has 1 tables" in empty.run("restore", backup.place, check=False).stderr
    assert not empty.home.exists()


RECORDING = """#!/bin/bash
set -e
if [ "$1" = pg_dump ]; then
  cd "$ZERO_HOME"
  echo later >{cached}-later
  echo later >{bucket}/weights-later
  git -c user.name=zero -c user.email=zero@localhost commit --quiet --allow-empty -m "generation 1"
fi
exec "$@"
"""


def test_a_generation_that_is_recorded_meanwhile_is_not_there_without_its_data(backup: Backup, tmp_path: Path) -> None:
    at_work = cluster_in(tmp_path, Postgres(0, tmp_path))
    shutil.copytree(backup.cluster.home, at_work.home)
    recording = tmp_path / "recording"
    recording.write_text(RECORDING.format(cached=at_work.home / CACHED, bucket=at_work.bucket))
    recording.chmod(0o755)
    where = {**backup.cluster.environment, "ZERO_POSTGRES_RUN": str(recording)}
    where |= {name: at_work.environment[name] for name in ("ZERO_HOME", "ZERO_BUCKETS")}
    place = Path(at_work._replace(environment=where).run("backup", tmp_path / "backups").stdout.splitlines()[-1])
    assert git(at_work.home, "log", "-1", "--format=%s").strip() == "generation 1"
    git(tmp_path, "clone", "--quiet", str(place / "git.bundle"), "copy")
    assert git(tmp_path / "copy", "log", "-1", "--format=%s").strip() == "generation 0"
    assert (place / "buckets/zero-store/weights-later").exists()
    assert list((place / "dvc-cache").rglob("*-later"))


def test_a_backup_that_fails_has_no_name(backup: Backup, empty: Cluster, tmp_path: Path) -> None:
    without_bucket = backup.cluster._replace(environment=backup.cluster.environment | {"ZERO_BUCKETS": "file:///none"})
    assert "there is no file:///none" in without_bucket.run("backup", tmp_path / "backups", check=False).stderr
    assert [path.name[:9] for path in (tmp_path / "backups").iterdir()] == [".partial-"]


@pytest.mark.parametrize(
    ("copy", "complaint"),
    [
        ('/bin/cp "$@"; touch {cached}-later', ""),
        ('/bin/cp "$@"; echo more >>{cached}', "the copy of the DVC cache differs"),
        ('/bin/cp "$@"; ln -sf /none {cached}', "the copy of the DVC cache cannot be compared"),
        ('ln -s /none {cached}-lost; /bin/cp "$@"', "dvc-cache cannot be copied"),
    ],
)
def test_the_copy_of_the_cache_is_compared(backup: Backup, tmp_path: Path, copy: str, complaint: str) -> None:
    at_work = cluster_in(tmp_path, Postgres(0, tmp_path))
    shutil.copytree(backup.cluster.home, at_work.home)
    program = tmp_path / "programs/cp"
    program.parent.mkdir()
    program.write_text("#!/bin/bash\n" + copy.format(cached=at_work.home / CACHED))
    program.chmod(0o755)
    where = at_work.environment | {"ZERO_DATABASES": "", "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    done = at_work._replace(environment=where).run("backup", tmp_path / "backups", check=False)
    assert complaint in done.stderr
    assert (done.returncode == 0) is (complaint == "")


def without_servers(cluster: Cluster) -> Cluster:
    """The same for git and the DVC cache alone, which need neither PostgreSQL nor this project's packages."""
    settings = {"ZERO_DATABASES": "", "ZERO_BUCKETS": "", "PYTHON": "/none/bin/python"}
    return cluster._replace(environment=cluster.environment | settings)


@pytest.mark.parametrize("linked", [".zero", ".zero/dvc-cache", ".zero/dvc-cache/files"])
def test_a_cache_behind_a_link_is_backed_up_and_restored(
    backup: Backup, empty: Cluster, tmp_path: Path, linked: str
) -> None:
    at_work = without_servers(backup.cluster._replace(home=tmp_path / "at-work"))
    shutil.copytree(backup.cluster.home, at_work.home)
    (at_work.home / linked).rename(tmp_path / "disk")
    (at_work.home / linked).symlink_to(tmp_path / "disk")
    at_work.environment["ZERO_HOME"] = str(at_work.home)
    place = Path(at_work.run("backup", tmp_path / "backups").stdout.splitlines()[-1])
    assert f"./{Path(CACHED).relative_to('.zero')}\n" in (place / "MANIFEST").read_text()
    (tmp_path / "disk").rename(tmp_path / "lost")
    without_servers(empty).run("restore", place)
    assert (empty.home / CACHED).resolve().is_relative_to(empty.home)
    assert (empty.home / CACHED).read_bytes() == b"weights"


@pytest.mark.parametrize("state", ["absent", "empty", "a link that leads nowhere"])
def test_lineages_without_a_cache_are_not_backed_up(backup: Backup, tmp_path: Path, state: str) -> None:
    at_work = without_servers(backup.cluster._replace(home=tmp_path / "at-work"))
    shutil.copytree(backup.cluster.home, at_work.home, ignore=shutil.ignore_patterns("dvc-cache"))
    at_work.environment["ZERO_HOME"] = str(at_work.home)
    cache = at_work.home / ".zero/dvc-cache"
    if state == "empty":
        cache.mkdir()
    elif state != "absent":
        cache.symlink_to(tmp_path / "not-mounted")
    done = at_work.run("backup", tmp_path / "backups", check=False)
    assert done.returncode == 1
    assert f"error: {cache} has no files, but git has lineages; put it back" in done.stderr
    assert [path.name[:9] for path in (tmp_path / "backups").iterdir()] == [".partial-"]


def test_a_project_without_lineages_needs_no_cache(empty: Cluster, tmp_path: Path) -> None:
    fresh = without_servers(empty)
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(fresh.home))
    git(fresh.home, "commit", "--quiet", "--allow-empty", "-m", "begun")
    place = Path(fresh.run("backup", tmp_path / "backups").stdout.splitlines()[-1])
    restored = fresh._replace(environment=fresh.environment | {"ZERO_HOME": str(tmp_path / "restored")})
    restored.run("restore", place)
    assert git(tmp_path / "restored", "log", "--format=%s").strip() == "begun"


def test_a_clone_without_its_history_is_not_backed_up(empty: Cluster, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main", "source")
    for message in ("first", "second"):
        git(tmp_path / "source", "commit", "--quiet", "--allow-empty", "-m", message)
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{tmp_path}/source", str(empty.home))
    done = without_servers(empty).run("backup", tmp_path / "backups", check=False)
    assert done.returncode == 1 and "is a shallow clone, without the complete history; run git fetch" in done.stderr


@pytest.mark.parametrize(
    ("is_linked", "complaint"),
    [(True, "dvc-cache is a symbolic link, so the backup lacks what it names"), (False, "but no files in dvc-cache")],
)
def test_a_backup_without_the_files_of_the_cache_is_refused_before_anything_is_written(
    backup: Backup, empty: Cluster, tmp_path: Path, is_linked: bool, complaint: str
) -> None:
    """Older versions of `infra/backup` copied a link to the cache instead of the cache."""
    place = tmp_path / "backup"
    shutil.copytree(backup.place, place, ignore=shutil.ignore_patterns("dvc-cache"))
    lines = (backup.place / "MANIFEST").read_text().splitlines(keepends=True)
    (place / "MANIFEST").write_text("".join(line for line in lines if "dvc-cache" not in line))
    if is_linked:
        (place / "dvc-cache").symlink_to(backup.cluster.home / ".zero/dvc-cache")
    done = without_servers(empty).run("restore", place, check=False)
    assert (done.returncode, complaint in done.stderr) == (1, True), done.stderr
    assert not empty.home.exists()


@pytest.mark.parametrize("script", ["backup", "restore"])
def test_a_host_without_the_packages_is_told_before_anything_is_done(
    backup: Backup, empty: Cluster, tmp_path: Path, script: str
) -> None:
    """A host that only runs the containers has no .venv."""
    cluster = backup.cluster if script == "backup" else empty
    without = cluster._replace(environment=cluster.environment | {"PYTHON": str(tmp_path / ".venv/bin/python")})
    place = tmp_path / "backups" if script == "backup" else backup.place
    assert f"there is no {tmp_path}/.venv/bin/python; run make setup" in without.run(script, place, check=False).stderr
    assert not (tmp_path / "backups").exists() and not empty.home.exists()
