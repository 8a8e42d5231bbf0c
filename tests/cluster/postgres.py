"""PostgreSQL with the cluster's databases, made by the file that makes those of the container: databases.sql."""

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from infra.local import PROJECT_DIR
from infra.processes import LocalError, end_processes
from tests.end_to_end.project import SOURCE_DIR, run
from tests.infra.servers import free_port

OWNER = "postgres"
"""The superuser, and the user of the operating system as which root runs the server."""
DATABASES = PROJECT_DIR / "infra/compose/postgres/databases.sql"
SCRAM = ["--auth-local=scram-sha-256", "--auth-host=scram-sha-256", "--data-checksums"]
"""As in compose.yaml."""
END_SECONDS = 10.0


def postgres_program(name: str) -> str:
    """Path of a program of PostgreSQL: on the PATH, or the newest in Debian's folders.

    Raises:
      LocalError: there is none.
    """
    debian = glob.glob(f"/usr/lib/postgresql/*/bin/{name}")
    newest = sorted(debian, key=lambda path: int(Path(path).parts[4].partition(".")[0]))[-1:]
    found = shutil.which(name) or next(iter(newest), None)
    if found is None:
        raise LocalError(f"PostgreSQL's {name!r} is not installed; on Debian: apt install postgresql")
    return found


def as_owner(command: list[str]) -> list[str]:
    """The command as the user that runs PostgreSQL: this one, but never root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups", *command]


def initialise(folder: Path, secrets: Path) -> None:
    """Makes a data folder, unless `make_databases` has finished in it. The superuser gets the password of the secrets.

    Raises:
      LocalError: `initdb` failed.
    """
    if _stamp(folder).exists():
        return
    shutil.rmtree(folder, ignore_errors=True)  # half-made
    folder.mkdir(mode=0o700)
    password = folder.with_name("postgres-password")
    password.touch(mode=0o600)
    password.write_text((secrets / "postgres-password").read_text())
    if os.geteuid() == 0:
        owner = pwd.getpwnam(OWNER)
        for path in (folder, password):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    command = [postgres_program("initdb"), "--no-sync", f"--username={OWNER}", f"--pwfile={password}", *SCRAM]
    command += ["--encoding=UTF8", "--locale=C.UTF-8", f"--pgdata={folder}"]
    done = subprocess.run(as_owner(command), cwd="/", capture_output=True, text=True, check=False)
    password.unlink()
    if done.returncode:
        raise LocalError(f"initdb failed: {done.stderr.strip()}")


def make_databases(folder: Path, port: int, secrets: Path) -> None:
    """Makes the databases and their users, unless they exist. The server of this data folder runs."""
    if _stamp(folder).exists():
        return
    env = {"PGPASSWORD": (secrets / "postgres-password").read_text().strip()}
    for name in ("prefect", "mlflow"):
        env[f"{name.upper()}_DATABASE_PASSWORD_FILE"] = str(secrets / f"{name}-database-password")
    command = [postgres_program("psql"), "--host=127.0.0.1", f"--port={port}", f"--username={OWNER}", "--no-password"]
    command += ["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", f"--dbname={OWNER}", f"--file={DATABASES}"]
    run(command, SOURCE_DIR, True, **env)
    _stamp(folder).touch()


def _stamp(folder: Path) -> Path:
    return folder.with_name("postgres-made")


def end_orphans(folder: Path) -> None:
    """Ends what a killed server left: each of its processes is a session of its own, but runs in the data folder.

    The lock file is removed too: PostgreSQL takes a zombie for a running server.
    """
    orphans = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder):
                orphans.append(process)
    end_processes(orphans, END_SECONDS)
    (folder / "postmaster.pid").unlink(missing_ok=True)


def is_installed() -> bool:
    """True if PostgreSQL is installed."""
    try:
        return bool(postgres_program("initdb"))
    except LocalError:
        return False


needs_postgres = pytest.mark.skipif(not is_installed(), reason="PostgreSQL (initdb) is not installed")


class Postgres(NamedTuple):
    """A server on loopback that requires a password of every client."""

    port: int
    secrets: Path

    def environment(self) -> dict[str, str]:
        """What tells a client where the server is, and the passwords of its two users."""
        return {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGPASSFILE": str(self.secrets / "pgpass")}

    def ask(
        self, user: str, database: str, query: str, password: str = "", check: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        """Runs SQL as a user, by its password in the file of passwords unless one is given."""
        given = {"PGPASSWORD": password} if password else {}
        words = ["psql", "--no-password", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]
        command = [*words, "--username", user, "--dbname", database, "--command", query]
        return run(command, SOURCE_DIR, check=check, **self.environment(), **given)


@contextmanager
def postgres_server(secrets: Path) -> Iterator[Postgres]:
    """A server with these passwords; its files are deleted afterwards."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # its thousand files take seconds on a busy disk
    folder = Path(tempfile.mkdtemp(prefix="zero-postgres-", dir=memory))
    folder.chmod(0o711)
    data, port, control = folder / "data", free_port(), postgres_program("pg_ctl")
    try:
        initialise(data, secrets)
        options = f"-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        log = f"--log={data}/log"
        _run_as_owner([control, "start", "--wait", f"--pgdata={data}", log, f"--options={options}"])
        try:
            make_databases(data, port, secrets)
            yield Postgres(port, secrets)
        finally:
            _run_as_owner([control, "stop", "--mode=immediate", f"--pgdata={data}"])
    finally:
        shutil.rmtree(folder)


def _run_as_owner(command: list[str]) -> None:
    subprocess.run(as_owner(command), cwd="/", check=True, stdout=subprocess.DEVNULL, timeout=60)
