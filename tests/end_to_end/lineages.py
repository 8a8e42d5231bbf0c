"""Lineages of the `smoke` preset with real generations, made once per session, and copies that tests may change."""

import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.end_to_end.project import dvc, edit_params, git, make_project, zero, zero_in_turn
from tests.parameters import smoke_text

ON_ONE_SERVER = tuple(
    f"tests/tracking/test_{name}.py" for name in ("catalogue", "evaluation", "refusals", "repetition", "runs")
)
"""Files with tests on the MLflow server that `tests/tracking/conftest.py` starts."""
ON_THE_SERVERS = (
    *("tests/flows/test_generation.py", "tests/flows/test_engine.py"),
    *("tests/infra/test_local.py", "tests/flows/test_ablation.py"),
)
"""Files with tests on what `make up` starts."""
ON_THE_CLUSTER = ("tests/infra/test_access.py",)
"""Files with tests on the cluster of `tests/cluster`."""
SHARED = {"servers": ON_THE_SERVERS, "stack": ON_THE_CLUSTER}
"""Fixtures that processes cannot share, and the files whose tests use them."""
ENDS: dict[str, Callable[[], None]] = {}
"""Functions that stop one of these fixtures before the session ends."""
FIRST = (
    *("tests/audit/test_registry.py", ON_THE_SERVERS[0], ON_THE_CLUSTER[0], "tests/end_to_end/test_crashes.py"),
    *("tests/end_to_end/test_overlap.py", "tests/end_to_end/test_bad_games.py", "tests/end_to_end/test_operations.py"),
    *("tests/end_to_end/test_reproduce.py", "tests/tracking/test_rebuild.py"),
    *("tests/end_to_end/test_supervised.py", "tests/end_to_end/test_dead_training.py"),
    *("tests/stages/test_presets_for_a_gpu.py", "tests/network/test_start_of_training.py"),
    *("tests/games/test_bounds_checks.py", "tests/benchmarks/test_workers.py"),
)
"""Files that take minutes, in the order in which they start, so that the last ones are short.

The first file makes the lineages for which the second line waits. The last three lines have few tests, so they would
come last: the remaining files start in the order of their number of tests, the largest first.
"""
ALWAYS, ONLY_IF_ALL_ARE_WON = 0.0, 1.0
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # tests start hundreds of processes: the second need not compile again
# There are more test processes than cores. With several threads in each, OpenMP's threads spin while they wait for one
# that has no core: a test of the learner took 76 s beside others, 3 s alone. Must be set before torch is imported.
# Stages and sessions set the number of threads of their profile themselves; `pytest_runtest_setup` sets it back.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of a test that sets several sleep while they wait
QUICKLY = {"profile__backend": "openvino"}
"""Parameter of lineages whose games are played by new processes: without torch, a process starts twice as fast."""
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
    params = edit_params(smoke_text(), **QUICKLY, gating__threshold=ALWAYS, executor__num_processes=num_processes)
    (home / "smoke.yaml").write_text(params)
    zero(home, "new", "tiny", "--params", "smoke.yaml")
    return tiny_of(home)


def change_params(lineage: Lineage, **values: object) -> None:
    """Changes parameters of the next generation, such as `gating__threshold=0.5`, and commits them."""
    path = lineage.workspace / "params.yaml"
    path.write_text(edit_params(path.read_text(), **values))
    git(lineage.workspace, "commit", "--quiet", "-m", "parameters", "params.yaml")


def let_the_next_be_refused(lineage: Lineage, **values: object) -> None:
    """Makes the next challenger nearly equal to the champion, and requires it to win every game."""
    change_params(
        lineage,
        gating__threshold=ONLY_IF_ALL_ARE_WON,
        training__learning_rate=HARDLY_ANYTHING,
        verification__shard_fraction=0.0,  # generation 1 has the re-execution check, which starts a worker
        **values,
    )


def make_generation(lineage: Lineage) -> None:
    """Makes and records the next generation."""
    zero(lineage.home, "prepare", lineage.name)
    dvc(lineage.workspace, "repro")
    zero(lineage.home, "advance", lineage.name)


def fill_store_backwards(lineage: Lineage, stage: str, folder: Path) -> int:
    """Plays the shards of a stage one by one, the last first, and returns their number."""
    specs = zero(lineage.workspace, "plan", stage, "--missing").stdout.splitlines()
    play_shards(lineage, specs[::-1], folder)
    assert zero(lineage.workspace, "plan", stage, "--missing").stdout == ""
    return len(specs)


def play_shards(lineage: Lineage, specs: list[str], folder: Path) -> None:
    """Plays the shards one after the other with `zero shard`."""
    paths = [folder / f"shard-{number}.json" for number in range(len(specs))]
    for path, spec in zip(paths, specs, strict=True):
        path.write_text(spec)
    done = zero_in_turn(lineage.workspace, *(["shard", str(path)] for path in paths))
    for spec, played in zip(specs, done, strict=True):
        assert played.returncode == 0, played.stderr
        assert json.loads(played.stdout.splitlines()[-1])["first_game"] == json.loads(spec)["first_game"]


def copy_of(lineage: Lineage, folder: Path) -> Lineage:
    """An independent copy of the complete project."""
    home = folder / "home"
    shutil.copytree(lineage.home, home, symlinks=True)
    copy = Lineage(home, home / ".zero/workspaces" / lineage.name)
    for settings in (".git/config", ".dvc/config.local"):  # origin; the cache, also as a remote
        for file in copy.workspace.parent.glob(f"*/{settings}"):
            file.write_text(file.read_text().replace(str(lineage.home), str(home)))
    return copy


class OneProcessAFile(LoadScopeScheduling):  # type: ignore[misc]
    """With several test processes, the tests of one file, or on the same servers, run in one process."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        for file in reversed(FIRST):
            if file in self.workqueue:
                self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        file = _file(nodeid)
        return next((files[0] for files in (*SHARED.values(), ON_ONE_SERVER) if file in files), file)


def pytest_configure() -> None:
    """Tests send Ctrl-C to children. A shell that starts the tests in the background makes all of them ignore it."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three processes per core, because tests wait for servers and for lineages made by another process."""
    return (os.cpu_count() or 1) * 3


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneProcessAFile:
    """Replaces `--dist`."""
    return OneProcessAFile(config, log)


def pytest_runtest_setup() -> None:
    """Each test starts with one thread of torch, whatever the test before it set."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stops servers after their last test: an idle one takes a tenth of a core."""
    if "PYTEST_XDIST_WORKER" not in os.environ or nextitem is None:
        return
    for fixture, files in SHARED.items():
        if fixture in ENDS and _file(item.nodeid) in files and _file(nextitem.nodeid) not in files:
            ENDS.pop(fixture)()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the lists of files complete."""
    for item in items:
        for fixture, files in SHARED.items():
            if fixture in getattr(item, "fixturenames", ()) and _file(item.nodeid) not in files:
                raise pytest.UsageError(f"{item.nodeid} uses the fixture {fixture!r}; name its file in {__name__}")


def _file(nodeid: str) -> str:
    return nodeid.split("::")[0]


def made_once(name: str, make: Callable[[Path], object], factory: pytest.TempPathFactory) -> Path:
    """A folder that one test process fills with `make`, and all of them copy."""
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    made = shared / "made"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(shared, ignore_errors=True)
            shared.mkdir()
            make(shared)
            for folder in shared.rglob(".git"):
                if folder.is_dir():  # packed, a project is half as many files to copy
                    git(folder.parent, "repack", "-adq")
            made.touch()
    return shared


def tiny_of(home: Path) -> Lineage:
    """The lineage `tiny` of a project."""
    return Lineage(home, home / ".zero/workspaces/tiny")


@pytest.fixture(scope="session")
def first_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the next three fixtures."""

    def make(folder: Path) -> None:
        lineage = make_lineage(folder / "home", num_processes=1)
        copy_of(lineage, folder / "begun")
        zero(lineage.home, "prepare", "tiny")
        dvc(lineage.workspace, "repro")
        copy_of(lineage, folder / "unrecorded")
        zero(lineage.home, "advance", "tiny")
        let_the_next_be_refused(lineage)
        make_generation(lineage)

    return made_once("recorded", make, tmp_path_factory)


@pytest.fixture(scope="session")
def recorded(first_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """Generations 0, 1 (promoted) and 2 (refused), played on one process. Only read by tests."""
    return copy_of(tiny_of(first_two / "home"), tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="module")
def begun(first_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """The same lineage at generation 0. The tests of a file may change the rest of the project."""
    return copy_of(tiny_of(first_two / "begun/home"), tmp_path_factory.mktemp("begun"))


@pytest.fixture(scope="module")
def unrecorded(first_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """The same lineage with generation 1 made, but not recorded. The tests of a file may change it."""
    return copy_of(tiny_of(first_two / "unrecorded/home"), tmp_path_factory.mktemp("unrecorded"))


@pytest.fixture(scope="session")
def gone_on(recorded: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """A copy in which `tiny` is rolled back to generation 1 (as number 3) and continues with generation 4.

    Lineage `kid` branches from generation 1 and goes on as `tiny` did, with its generation 2: no game is taken from
    the store, those of self-play are played elsewhere, the last shard first, and the match by two processes. Only read
    by tests.
    """

    def make(folder: Path) -> None:
        lineage = copy_of(recorded, folder)
        zero(lineage.home, "rollback", "tiny", "tiny/gen-0001")
        make_generation(lineage)
        zero(lineage.home, "branch", "tiny", "tiny/gen-0001", "kid")
        let_the_next_be_refused(lineage.named("kid"), executor__num_processes=2)
        shutil.rmtree(lineage.home / ".zero/store/shards")
        zero(lineage.home, "prepare", "kid")
        assert fill_store_backwards(lineage.named("kid"), "selfplay", folder) == 2
        make_generation(lineage.named("kid"))

    made = made_once("gone-on", make, tmp_path_factory)
    return copy_of(tiny_of(made / "home"), tmp_path_factory.mktemp("gone-on"))


@pytest.fixture(scope="session")
def notebook(gone_on: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an MLflow server with `tiny` and `kid`. Tests start another server on a copy."""
    from tests.tracking.server import Server  # seconds, which most processes do without

    def make(folder: Path) -> None:
        (folder / "mlflow").mkdir()
        server = Server(folder / "mlflow")
        try:
            for name in ("tiny", "kid"):
                zero(gone_on.home, "track", name, MLFLOW_TRACKING_URI=server.uri)
        finally:
            server.stop()

    return made_once("notebook", make, tmp_path_factory) / "mlflow"


@pytest.fixture
def lineage(recorded: Lineage, tmp_path: Path) -> Lineage:
    """A copy of `recorded` that a test may change."""
    return copy_of(recorded, tmp_path)
