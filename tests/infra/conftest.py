"""What the tests of the cluster share: one set of secrets, one PostgreSQL, one whole cluster."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.postgres import Postgres, postgres_server
from tests.cluster.stack import Stack, cluster_stack
from tests.end_to_end.lineages import ENDS
from tests.end_to_end.project import SOURCE_DIR, run


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that `infra/secrets` makes."""
    folder = tmp_path_factory.mktemp("secrets")
    run([str(SOURCE_DIR / "infra/secrets"), str(folder)], SOURCE_DIR)
    return folder


@pytest.fixture(scope="session")
def postgres(secrets: Path) -> Iterator[Postgres]:
    """A PostgreSQL with the databases of the cluster."""
    with postgres_server(secrets) as server:
        yield server


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """A cluster with one worker; one process runs the tests of all files that use it, so that one is started."""
    with contextlib.ExitStack() as stopped:
        started = stopped.enter_context(cluster_stack(num_workers=1))
        ENDS["stack"] = stopped.close
        yield started
