"""Lineages on a real MLflow server, which is started once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.made_generations import recorded_in
from tests.tracking.lineage import Lineage
from tests.tracking.server import Server
from tests.web.browsing import browser as browser
from zero.tracking.backfill import track_generation


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An MLflow server for all tests; each lineage except `go9` belongs to one test."""
    running = Server(tmp_path_factory.mktemp("mlflow"))
    yield running
    running.stop()


@pytest.fixture
def client(server: Server) -> MlflowClient:
    return server.client()


@pytest.fixture
def lineage(tmp_path: Path, request: pytest.FixtureRequest) -> Lineage:
    """A lineage with the name of its test, with generation 0."""
    made = Lineage(tmp_path, request.node.name.removeprefix("test_").replace("_", "-"))
    made.start()
    return made


@pytest.fixture(scope="session")
def go9(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """Generations 0, 1 (promoted) and 2 (refused), tracked; tests only read it."""
    made = Lineage(tmp_path_factory.mktemp("go9"), "go9")
    made.start()
    made.add(promoted=True)
    made.add(promoted=False)
    for number in range(3):
        made.urls.append(track_generation(recorded_in(made.folder(number)), server.uri))
    return made
