"""The tasks that run a stage: games that replay sets aside are played again in the same run, by a real DVC."""

import json
import logging
import shutil
import sys
from pathlib import Path
from typing import cast

import pytest
from prefect.context import FlowRunContext
from prefect.logging import disable_run_logger
from prefect.states import Completed
from prefect.utilities.engine import get_state_for_result, link_state_to_task_run_result

from flows import generation, tasks
from flows.engine import Engine
from flows.reports import Progress
from flows.tasks import Turn, run_stage
from tests.data.test_quarantine import STAGE
from tests.end_to_end.project import dvc, git
from tests.flows.examples import smoke_params, spec
from tests.parameters import with_sections
from zero.config.params import Params
from zero.errors import LineageError, WorkerError

TURN = Turn(Path("nowhere"), "made", 3, "a store")
REPLAY = """
import pathlib, sys
from zero.storage.files import read_manifest
from zero.storage.manifests import GameSet
from zero.data.quarantine import quarantine_games
here = pathlib.Path(".")
tries = pathlib.Path("tries.txt")
num_tries = len(tries.read_text()) if tries.exists() else 0
tries.write_text("t" * (num_tries + 1))
if num_tries < BAD_TRIES:
    if SETS_ASIDE:
        quarantine_games(here, "data/games", read_manifest(here / "data/games", GameSet).shards[0], "a test", None)
    sys.exit("zero: the games of this test are bad")
pathlib.Path("data/window").write_text("made")
"""


@pytest.fixture(autouse=True)
def _without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "_publish", lambda self, description: None)


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Path:
    """Two stages, of which the first has made its games."""
    folder = Path(tmp_path_factory.mktemp("played"))
    git(folder, "init", "--quiet")
    dvc(folder, "init", "--quiet")
    (folder / "play.py").write_text(STAGE)
    selfplay = {"cmd": f"{sys.executable} play.py", "deps": ["play.py"], "outs": ["data/games"]}
    replay = {"cmd": f"{sys.executable} replay.py", "deps": ["data/games", "replay.py"], "outs": ["data/window"]}
    (folder / "dvc.yaml").write_text(json.dumps({"stages": {"selfplay": selfplay, "replay": replay}}))
    dvc(folder, "repro", "selfplay")
    return folder


def make_workspace(played: Path, folder: Path, bad_tries: int, sets_aside: bool) -> Path:
    """A copy with a replay that refuses the games `bad_tries` times."""
    shutil.copytree(played, folder, symlinks=True, dirs_exist_ok=True)
    (folder / "replay.py").write_text(f"BAD_TRIES, SETS_ASIDE = {bad_tries}, {sets_aside}\n{REPLAY}")
    return folder


def run(folder: Path) -> None:
    with disable_run_logger():
        run_stage.fn(TURN._replace(workspace=folder), "replay", Progress("made", print))


def test_games_that_replay_sets_aside_are_played_again_in_the_same_run(played, tmp_path):
    workspace = make_workspace(played, tmp_path, bad_tries=1, sets_aside=True)
    run(workspace)
    assert (workspace / "runs.txt").read_text() == "run\n" * 2
    assert (workspace / "data/window").exists()


def test_games_that_are_bad_again_end_the_run(played, tmp_path):
    workspace = make_workspace(played, tmp_path, bad_tries=9, sets_aside=True)
    with pytest.raises(LineageError, match="the games of this test are bad"):
        run(workspace)
    assert (workspace / "tries.txt").read_text() == "tt"


def test_a_replay_that_fails_otherwise_is_not_tried_again(played, tmp_path):
    workspace = make_workspace(played, tmp_path, bad_tries=9, sets_aside=False)
    with pytest.raises(LineageError, match="the games of this test are bad"):
        run(workspace)
    assert (workspace / "tries.txt").read_text() == "t"


class Ahead:
    """An engine that notes its calls."""

    is_local = True

    def __init__(self, error: BaseException | None = None) -> None:
        self.calls: list[str] = []
        self.error = error

    def submit(self, *_: object) -> list[str]:
        self.calls.append("submit")
        return ["a run"]

    def cancel(self, runs: list[str]) -> None:
        self.calls.append(f"cancel {runs}")

    def wait(self, runs: list[str]) -> None:
        self.calls.append(f"wait for {runs}")
        if self.error:
            raise self.error


def overlapping(overlap: bool) -> Params:
    return with_sections(smoke_params(), selfplay={"overlap": overlap})


def play_ahead(engine: Ahead, monkeypatch, overlap: bool = True, ends: BaseException | None = None) -> None:
    monkeypatch.setattr(generation, "plan", lambda turn, stage, wait_for: [spec()])
    monkeypatch.setattr(generation, "get_run_logger", lambda: logging.getLogger("a flow"))
    with generation.playing_ahead(TURN, overlapping(overlap), cast(Engine, engine), after=()):
        engine.calls.append("stages")
        if ends:
            raise ends


def test_the_next_games_are_played_during_the_stages_if_the_parameters_say_so(monkeypatch):
    engine = Ahead()
    play_ahead(engine, monkeypatch)
    assert engine.calls == ["submit", "stages", "wait for ['a run']"]
    engine = Ahead()
    play_ahead(engine, monkeypatch, overlap=False)
    assert engine.calls == ["stages"]


def test_an_exception_in_a_stage_cancels_the_games_played_ahead(monkeypatch):
    engine = Ahead()
    with pytest.raises(KeyboardInterrupt):
        play_ahead(engine, monkeypatch, ends=KeyboardInterrupt())
    assert engine.calls == ["submit", "stages", "cancel ['a run']"]


def test_games_ahead_that_fail_are_a_warning(monkeypatch, caplog):
    play_ahead(Ahead(WorkerError("every worker died")), monkeypatch)
    assert "not all games of the next generation were played: every worker died" in caplog.text


@pytest.mark.parametrize(
    "code, said",
    [
        ('print(\'a table\'); print(\'{"event": "progress", "done": 4, "total": 4}\')', "4 new evaluations"),
        ("sys.exit('zero: MLflow does not answer')", "failed: MLflow does not answer; run `zero evaluate made`"),
        ("os.kill(os.getpid(), 9)", "was killed; (no output); run `zero evaluate made`"),
        ("print('{')", "held-out evaluation is incomplete: "),
    ],
)
def test_missing_evaluations_are_computed_or_a_warning_is_logged(tmp_path, monkeypatch, caplog, code, said):
    (tmp_path / "zero").mkdir()
    (tmp_path / "zero/__init__.py").touch()
    (tmp_path / "zero/__main__.py").write_text(
        f"import os, sys\nassert sys.argv[1:] == ['evaluate', 'made'] and os.environ['ZERO_PROGRESS'] == 'json'\n{code}"
    )
    monkeypatch.setattr(tasks, "get_run_logger", lambda: logging.getLogger("a flow"))
    caplog.set_level("INFO")
    tasks.evaluate.fn(tmp_path, "made")
    (record,) = [record for record in caplog.records if "evaluat" in record.message]
    assert said in record.message and "a table" not in caplog.text
    assert record.levelname == ("INFO" if "new" in said else "WARNING")


def test_what_gets_the_address_of_an_old_plan_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "run_zero", lambda *arguments, **options: [spec()])
    monkeypatch.setattr(tasks, "get_run_logger", lambda: logging.getLogger("test"))
    recycled: list[object] = []
    with FlowRunContext.model_construct(run_results={}):
        planned = tasks.plan.fn(TURN, "selfplay")
        link_state_to_task_run_result(Completed(), planned)
        assert planned == [spec()] and get_state_for_result(planned)
        address, kind = id(planned), type(planned)
        del planned
        # CPython gives an object of the same type the same memory again.
        while len(recycled) < 1000 and address not in map(id, recycled):
            recycled.append(kind())
        assert id(recycled[-1]) == address and get_state_for_result(recycled[-1]) is None
