"""The databases of a cluster without containers: made once, by the file that makes those of the containers."""

import contextlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from infra.api import HOST
from infra.cluster_parts import POSTGRES_USER, Cluster, as_owner, postgres_folder, postgres_program
from infra.processes import Process, end_processes, read_process
from infra.services import PROJECT_DIR, LocalError

SCRAM = ["--auth-local=scram-sha-256", "--auth-host=scram-sha-256", "--data-checksums"]
DATABASES = PROJECT_DIR / "infra/compose/postgres/databases.sql"
END_SECONDS = 10.0


def make_folder(cluster: Cluster) -> None:
    """Makes the folder of a PostgreSQL whose superuser has a password, unless a whole one is there.

    One that was begun here and has no databases yet is made again; any other is left alone.

    Raises:
      LocalError: the folder is another PostgreSQL's, its user cannot enter it, or `initdb` failed.
    """
    folder, password = postgres_folder(cluster.home), cluster.home.state / "postgres-password"
    if is_whole(cluster):
        return
    if begun(cluster).exists() and folder.exists():
        shutil.rmtree(folder)  # cut short while its databases were made: nothing has been written to them
    if folder.exists() and any(folder.iterdir()):
        raise LocalError(
            f"{folder} is another PostgreSQL's, perhaps that of a cluster in containers, and was not touched; move it "
            "away, or keep this cluster elsewhere (ZERO_HOME)"
        )
    stamp(cluster).unlink(missing_ok=True)
    begun(cluster).touch()
    folder.mkdir(mode=0o700, exist_ok=True)
    password.unlink(missing_ok=True)
    password.touch(mode=0o600)
    password.write_text(cluster.secret("postgres-password"))
    if os.geteuid() == 0:
        owner = pwd.getpwnam(POSTGRES_USER)
        for path in (folder, password):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        entered = subprocess.run(as_owner(["test", "-w", str(folder)]), cwd="/", check=False)
        if entered.returncode:
            raise LocalError(
                f"user {POSTGRES_USER!r}, as which root runs PostgreSQL, cannot enter {folder}; give the folders "
                "above it mode 755, or run this as another user"
            )
    command = [postgres_program("initdb"), f"--username={POSTGRES_USER}", f"--pwfile={password}", "--encoding=UTF8"]
    done = subprocess.run(
        as_owner([*command, "--locale=C.UTF-8", *SCRAM, f"--pgdata={folder}"]),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    password.unlink()
    if done.returncode:
        raise LocalError(f"initdb failed: {done.stderr.strip()}")


def make_databases(cluster: Cluster) -> None:
    """Makes the databases and their users, unless they are there; the server runs.

    Raises:
      LocalError: PostgreSQL refused.
    """
    if is_whole(cluster):
        return
    env = {"PATH": os.environ.get("PATH", os.defpath), "PGPASSWORD": cluster.secret("postgres-password")}
    for name in ("prefect", "mlflow"):
        env[f"{name.upper()}_DATABASE_PASSWORD_FILE"] = str(cluster.secrets / f"{name}-database-password")
    where = [f"--host={HOST}", f"--port={cluster.ports['postgres']}", f"--username={POSTGRES_USER}"]
    words = ["--no-password", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={POSTGRES_USER}"]
    done = subprocess.run(
        [postgres_program("psql"), *where, *words, f"--file={DATABASES}"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LocalError(f"the databases could not be made: {done.stderr.strip()}")
    begun(cluster).replace(stamp(cluster))


def begun(cluster: Cluster) -> Path:
    """File that says that the folder was begun here and has no databases yet; it becomes the stamp."""
    return cluster.home.state / "postgres-begun"


def stamp(cluster: Cluster) -> Path:
    """File that says that the databases are made."""
    return cluster.home.state / "postgres-made"


def is_whole(cluster: Cluster) -> bool:
    """True where the databases are made."""
    return stamp(cluster).exists() and (postgres_folder(cluster.home) / "PG_VERSION").exists()


def end_orphans(cluster: Cluster) -> None:
    """Ends what a killed PostgreSQL left behind: each of its processes is a session of its own, in its folder.

    Its lock file goes as well: PostgreSQL takes the remains of a killed process, which nobody has waited for, for a
    live one.
    """
    folder = postgres_folder(cluster.home)
    end_processes(_processes_in(folder), END_SECONDS)
    (folder / "postmaster.pid").unlink(missing_ok=True)


def _processes_in(folder: Path) -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/cwd") == str(folder) and (process := read_process(int(name))):
                    yield process
