"""The tasks that run a stage: games that replay sets aside are played again in the same run, by a real DVC."""

import json
import logging
import sys
from pathlib import Path

import pytest
from prefect.logging import disable_run_logger

from flows import tasks
from flows.players import Interruption
from flows.tasks import playing_ahead, run_stage
from tests.data.test_quarantine import STAGE
from tests.end_to_end.project import dvc, git
from tests.flows.examples import smoke_params
from zero.errors import LineageError
from zero.storage.manifests import GenerationId
from zero.storage.store import Store

TURN = GenerationId(lineage="made", number=3, resign_threshold=-1.0)
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


def make_workspace(folder: Path, bad_tries: int, sets_aside: bool) -> Path:
    """Two stages: games, and a replay that refuses them `bad_tries` times."""
    git(folder, "init", "--quiet")
    dvc(folder, "init", "--quiet")
    (folder / "play.py").write_text(STAGE)
    (folder / "replay.py").write_text(f"BAD_TRIES, SETS_ASIDE = {bad_tries}, {sets_aside}\n{REPLAY}")
    selfplay = {"cmd": f"{sys.executable} play.py", "deps": ["play.py"], "outs": ["data/games"]}
    replay = {"cmd": f"{sys.executable} replay.py", "deps": ["data/games", "replay.py"], "outs": ["data/window"]}
    (folder / "dvc.yaml").write_text(json.dumps({"stages": {"selfplay": selfplay, "replay": replay}}))
    dvc(folder, "repro", "selfplay")
    return folder


def run(folder: Path) -> None:
    with disable_run_logger():
        run_stage.fn(folder, TURN, "replay")


def test_games_that_replay_sets_aside_are_played_again_in_the_same_run(tmp_path):
    workspace = make_workspace(tmp_path, bad_tries=1, sets_aside=True)
    run(workspace)
    assert (workspace / "runs.txt").read_text() == "run\n" * 2
    assert (workspace / "data/window").exists()


def test_games_that_are_bad_again_end_the_run(tmp_path):
    workspace = make_workspace(tmp_path, bad_tries=9, sets_aside=True)
    with pytest.raises(LineageError, match="the games of this test are bad"):
        run(workspace)
    assert (workspace / "tries.txt").read_text() == "tt"


def test_a_replay_that_fails_otherwise_is_not_tried_again(tmp_path):
    workspace = make_workspace(tmp_path, bad_tries=9, sets_aside=False)
    with pytest.raises(LineageError, match="the games of this test are bad"):
        run(workspace)
    assert (workspace / "tries.txt").read_text() == "t"


@pytest.mark.parametrize("ended_in", ["the generation's own steps", "waiting for the games ahead"])
def test_what_ends_a_generation_ends_the_games_played_ahead(tmp_path, monkeypatch, ended_in):
    ended, waiting = [], ended_in != "the generation's own steps"

    class Ahead:
        def __init__(self, interruption: Interruption) -> None:
            interruption.ends(lambda: ended.append("played ahead"))

        def wait(self) -> None:
            if waiting and not ended:
                raise KeyboardInterrupt

    def submit(_workspace, _turn, _store, _executor, interruption: Interruption) -> Ahead:
        return Ahead(interruption)

    params = smoke_params()
    overlapping = params.model_copy(update={"selfplay": params.selfplay.model_copy(update={"overlap": True})})
    monkeypatch.setattr(tasks, "load_params", lambda workspace: overlapping)
    monkeypatch.setattr(tasks.play_ahead, "submit", submit)
    with pytest.raises(KeyboardInterrupt), playing_ahead(tmp_path, TURN, Store(str(tmp_path)), "pool"):
        if not waiting:
            raise KeyboardInterrupt
    assert ended == ["played ahead"]


@pytest.mark.parametrize(
    "code, said",
    [
        ('print(\'a table\'); print(\'{"event": "progress", "done": 4, "total": 4}\')', "4 new evaluations"),
        ("sys.exit('zero: MLflow does not answer')", "failed: MLflow does not answer; run `zero evaluate made`"),
        ("os.kill(os.getpid(), 9)", "was killed; it said nothing; run `zero evaluate made`"),
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
