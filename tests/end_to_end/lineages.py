"""Lineages of the `smoke` preset with real generations, made once a session, and copies that a test may spoil."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.end_to_end.project import dvc, edit_params, git, make_project, zero
from zero.presets import preset_text

ON_THE_RECORDED = (
    *("tests/audit/test_audit.py", "tests/audit/test_data.py", "tests/audit/test_git.py", "tests/audit/test_impact.py"),
    *("tests/audit/test_play.py", "tests/audit/test_registry.py", "tests/audit/test_statements.py"),
    *("tests/end_to_end/test_determinism.py", "tests/end_to_end/test_operations.py"),
    *("tests/end_to_end/test_overlap.py", "tests/end_to_end/test_reproduce.py", "tests/end_to_end/test_smoke_loop.py"),
    "tests/tracking/test_rebuild.py",
    *("tests/interop/test_folder.py", "tests/ladder/test_ladder.py", "tests/yardsticks/test_filling.py"),
)
"""Files with tests on the recorded lineage: one process makes it once for all of them."""
ON_ONE_SERVER = tuple(f"tests/tracking/test_{name}.py" for name in ("catalogue", "refusals", "repetition", "runs"))
"""Files with tests on the MLflow server that `tests/tracking/conftest.py` starts."""
ON_THE_SERVERS = ("tests/flows/test_generation.py", "tests/flows/test_plugin.py", "tests/infra/test_local.py")
"""Files with tests on what `make up` starts."""
ON_THE_CLUSTER = ("tests/infra/test_access.py", "tests/infra/test_pool.py", "tests/infra/test_store_roles.py")
"""Files with tests on what `make cluster` starts."""
SHARED = {"recorded": ON_THE_RECORDED, "servers": ON_THE_SERVERS, "stack": ON_THE_CLUSTER}
"""Fixtures that cost much, and the files whose tests use them."""
ALWAYS, ONLY_IF_ALL_ARE_WON = 0.0, 1.0
HARDLY_ANYTHING = [{"from_step": 0, "learning_rate": 1e-6}]


class Lineage(NamedTuple):
    """The lineage `tiny` of a project of its own."""

    home: Path
    workspace: Path

    def named(self, name: str) -> "Lineage":
        """Another lineage of the project."""
        return Lineage(self.home, self.home / ".zero/workspaces" / name)

    @property
    def name(self) -> str:
        """Name of the lineage."""
        return self.workspace.name

    def show(self, tag: str, path: str) -> str:
        """Text of a file at a tag."""
        return git(self.home, "show", f"{tag}:{path}")


def make_lineage(home: Path, num_processes: int) -> Lineage:
    """A lineage at generation 0, in which every challenger is promoted."""
    make_project(home)
    params = edit_params(preset_text("smoke"), gating__threshold=ALWAYS, executor__num_processes=num_processes)
    (home / "smoke.yaml").write_text(params)
    zero(home, "new", "tiny", "--params", "smoke.yaml")
    return Lineage(home, home / ".zero/workspaces/tiny")


def let_the_next_be_refused(lineage: Lineage) -> None:
    """The next challenger is hardly another player than the champion, and would have to win every game."""
    path = lineage.workspace / "params.yaml"
    changes = {"gating__threshold": ONLY_IF_ALL_ARE_WON, "training__learning_rate": HARDLY_ANYTHING}
    path.write_text(edit_params(path.read_text(), **changes))
    git(lineage.workspace, "commit", "--quiet", "-m", "next", "params.yaml")


def make_generation(lineage: Lineage) -> None:
    """Makes and records the next generation."""
    zero(lineage.home, "prepare", lineage.name)
    dvc(lineage.workspace, "repro")
    zero(lineage.home, "advance", lineage.name)


def copy_of(lineage: Lineage, folder: Path) -> Lineage:
    """A copy of the whole project, which shares nothing with it."""
    home = folder / "home"
    shutil.copytree(lineage.home, home, symlinks=True)
    copy = Lineage(home, home / ".zero/workspaces" / lineage.name)
    git(copy.workspace, "remote", "set-url", "origin", str(home))
    cache = str(home / ".zero/dvc-cache")
    dvc(copy.workspace, "config", "--local", "cache.dir", cache)
    dvc(copy.workspace, "remote", "modify", "--local", "record", "url", cache)
    return copy


class OneProcessAFile(LoadScopeScheduling):  # type: ignore[misc]
    """Where tests run in several processes, those of a file share one, as do those on one lineage or servers.

    The latter take minutes, so they are begun with: what is begun last should be short.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        for files in reversed(SHARED.values()):
            if files[0] in self.workqueue:
                self.workqueue.move_to_end(files[0], last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return next((files[0] for files in (*SHARED.values(), ON_ONE_SERVER) if file in files), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneProcessAFile:
    """Takes the place of `--dist`."""
    return OneProcessAFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the lists of files complete."""
    for item in items:
        for fixture, files in SHARED.items():
            if fixture in getattr(item, "fixturenames", ()) and item.nodeid.split("::")[0] not in files:
                raise pytest.UsageError(f"{item.nodeid} uses the fixture {fixture!r}; name its file in {__name__}")


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lineage]:
    """Generations 0, 1 (promoted) and 2 (refused), played on one process. Only read by tests."""
    lineage = make_lineage(tmp_path_factory.mktemp("recorded"), num_processes=1)
    make_generation(lineage)
    let_the_next_be_refused(lineage)
    make_generation(lineage)
    yield lineage


@pytest.fixture(scope="session")
def gone_on(recorded: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """A copy in which `tiny` is rolled back to generation 1 (as number 3) and goes on with generation 4.

    Lineage `kid` branches from generation 1 and goes on as `tiny` did, with its generation 2. Only read by tests.
    """
    lineage = copy_of(recorded, tmp_path_factory.mktemp("gone-on"))
    zero(lineage.home, "rollback", "tiny", "tiny/gen-0001")
    make_generation(lineage)
    zero(lineage.home, "branch", "tiny", "tiny/gen-0001", "kid")
    let_the_next_be_refused(lineage.named("kid"))
    make_generation(lineage.named("kid"))
    return lineage


@pytest.fixture
def lineage(recorded: Lineage, tmp_path: Path) -> Lineage:
    """A copy of it that a test may change."""
    return copy_of(recorded, tmp_path)
