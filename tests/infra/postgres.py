"""A real PostgreSQL server with the cluster's databases, made as its container makes them: by databases.sql."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from infra.cluster_parts import postgres_program
from infra.services import LocalError
from tests.end_to_end.project import SOURCE_DIR, run
from tests.infra.servers import free_port

OWNER = "postgres"
DATABASES = SOURCE_DIR / "infra/compose/postgres/databases.sql"


def is_installed() -> bool:
    """True where a PostgreSQL can be started."""
    try:
        return bool(postgres_program("initdb"))
    except LocalError:
        return False


needs_postgres = pytest.mark.skipif(not is_installed(), reason="PostgreSQL (initdb) is not installed")


class Postgres(NamedTuple):
    """A server on loopback that asks everybody for a password."""

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

    def govern(self, query: str) -> None:
        """Runs SQL as the superuser."""
        self.ask(OWNER, OWNER, query, (self.secrets / "postgres-password").read_text())


@contextmanager
def postgres_server(secrets: Path) -> Iterator[Postgres]:
    """A server with these passwords; its files are deleted afterwards."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # its thousand files take seconds on a busy disk
    folder = Path(tempfile.mkdtemp(prefix="zero-postgres-", dir=memory))
    port = free_port()
    try:
        password = folder / "password"
        password.write_text((secrets / "postgres-password").read_text())
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            owner = pwd.getpwnam(OWNER)
            for path in (folder, password):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        data = folder / "data"
        scram = ["--auth-local=scram-sha-256", "--auth-host=scram-sha-256", "--data-checksums"]  # as in compose.yaml
        make, control = postgres_program("initdb"), postgres_program("pg_ctl")
        _as_owner([make, "--no-sync", f"--username={OWNER}", f"--pwfile={password}", *scram, f"--pgdata={data}"])
        options = f"-c port={port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        _as_owner([control, "start", "--wait", f"--pgdata={data}", f"--log={folder}/log", f"--options={options}"])
        try:
            server = Postgres(port, secrets)
            given = {"PGPASSWORD": password.read_text(), **server.environment()}
            for name in ("prefect", "mlflow"):
                given[f"{name.upper()}_DATABASE_PASSWORD_FILE"] = str(secrets / f"{name}-database-password")
            command = ["psql", "--no-password", "--set=ON_ERROR_STOP=1", "--quiet", "--username", OWNER]
            run([*command, "--dbname", OWNER, "--file", str(DATABASES)], SOURCE_DIR, True, **given)
            yield server
        finally:
            _as_owner([control, "stop", "--mode=immediate", f"--pgdata={data}"])
    finally:
        shutil.rmtree(folder)


def _as_owner(command: list[str]) -> None:
    before = ["setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups"] if os.geteuid() == 0 else []
    subprocess.run([*before, *command], cwd="/", check=True, stdout=subprocess.DEVNULL, timeout=60)
