"""`zero match` with real players: its output, its files, and its errors."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.project import zero_in_turn
from tests.oracle.gnugo import needs_gnugo
from tests.tracking.server import Server
from zero.config.params import parse_params, preset_text
from zero.data.sgf import read_collection
from zero.errors import ParamsError
from zero.evaluation.match.setup import run_match
from zero.network.weights import new_network, weights_bytes
from zero.players.build import make_player

SMOKE = parse_params(preset_text("smoke"))
INVALID = {
    "random nobody": "unknown lineage 'nobody'",
    "random rollout:0": "'rollout:0': rollout must be an integer from 1 to 1000000, got '0'",
    "random random --games 3": "games = 3 is odd",
    "random random --size 30": "size = 30: Input should be less than or equal to 19",
    "random gtp:no-such-program": "no-such-program",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project folder with parameters and a network."""
    (tmp_path / "params.yaml").write_text(preset_text("smoke"))
    (tmp_path / "weights.safetensors").write_bytes(weights_bytes(new_network(SMOKE.network, SMOKE.game, 1)))
    return tmp_path


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an MLflow server."""
    running = Server(tmp_path_factory.mktemp("mlflow"))
    yield running.uri
    running.stop()


def zero_match(home: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"ZERO_HOME": str(home), "MLFLOW_TRACKING_URI": ""}
    return subprocess.Popen(
        [sys.executable, "-m", "zero", "match", *arguments],
        cwd=home,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_shows_the_result_and_writes_the_games(home):
    match = zero_match(home, "weights.safetensors,simulations=4", "random", "--games", "10", "--openings", "2")
    out, err = match.communicate(timeout=300)
    assert match.returncode == 0, err
    lines = out.splitlines()
    assert lines[0] == "weights.safetensors, 4 simulations against random: 10 games"
    assert "95 % interval" in lines[1] and lines[2].startswith("as Black ")
    folder = Path(lines[-1].removeprefix("games and result: "))
    assert folder.parent == home / ".zero/matches"
    games = read_collection((folder / "games.sgf").read_text())
    assert [game.black_name for game in games[:2]] == ["weights.safetensors, 4 simulations", "random"]
    assert [game.actions[:2] for game in games[::2]] == [game.actions[:2] for game in games[1::2]]
    count = json.loads((folder / "result.json").read_text())["result"]
    assert count["wins"] + count["losses"] + count["draws"] == 10


def test_a_killed_match_is_continued_with_equal_games(home):
    arguments = ("weights.safetensors,simulations=8", "random", "--games", "40", "--at-once", "1")
    killed = zero_match(home, *arguments, "--out", "killed")
    deadline = time.monotonic() + 300
    while len(list(home.glob("killed/games/*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    before = {path.name: path.stat().st_mtime_ns for path in home.glob("killed/games/*.json")}
    assert 3 <= len(before) < 40
    for folder in ("killed", "whole"):
        match = zero_match(home, *arguments, "--out", folder)
        _, err = match.communicate(timeout=300)
        assert match.returncode == 0, err
    assert all((home / "killed/games" / name).stat().st_mtime_ns == then for name, then in before.items())
    for name in ("result.json", "games.sgf"):
        assert (home / "killed" / name).read_bytes() == (home / "whole" / name).read_bytes()


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> "dict[str, subprocess.CompletedProcess[str]]":
    """Runs of `zero match` with invalid arguments."""
    home = tmp_path_factory.mktemp("home")
    (home / "params.yaml").write_text(preset_text("smoke"))
    done = zero_in_turn(home, *(["match", *words.split()] for words in INVALID), ZERO_HOME=str(home))
    return dict(zip(INVALID, done, strict=True))


@pytest.mark.parametrize("words, message", INVALID.items())
def test_an_invalid_match_is_one_line(failed, words, message):
    done = failed[words]
    assert done.returncode == 1
    assert message in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_equal_matches_have_one_folder(home):
    first = run_match(home, ("random", "random"), 4)
    assert run_match(home, ("random", "random"), 4).folder == first.folder
    assert run_match(home, ("random", "random"), 4, seed=2).folder != first.folder
    assert run_match(home, ("random", "random"), 4, komi=1.5).folder != first.folder


def test_each_player_is_made_once_and_closed(home, monkeypatch):
    made, closed = [], []

    def make(participant, rules, games_at_once, seed):
        if participant.spec.text == "rollout:1":
            raise ParamsError("broken")
        player = make_player(participant, rules, games_at_once, seed)
        monkeypatch.setattr(player, "close", lambda: closed.append(player))
        made.append(player)
        return player

    monkeypatch.setattr("zero.evaluation.match.setup.make_player", make)
    run_match(home, ("random", "random"), 2)
    assert len(made) == len(closed) == 2
    run_match(home, ("random", "random"), 2)  # finished: the players are started to report their names
    assert len(made) == len(closed) == 4
    with pytest.raises(ParamsError, match="broken"):
        run_match(home, ("random", "rollout:1"), 2)
    assert len(made) == len(closed) == 5


def test_openings_are_bounded_by_the_board(home):
    with pytest.raises(ParamsError, match="opening_moves must be at most 12 for 25 points, got 13"):
        run_match(home, ("random", "random"), 2, opening_moves=13, folder=home / "match")
    assert not (home / "match").exists()


def test_komi_is_for_go(tmp_path):
    (tmp_path / "params.yaml").write_text(preset_text("gomoku8"))
    with pytest.raises(ParamsError, match=r"komi = 7\.5 is for Go only; gomoku has no komi"):
        run_match(tmp_path, ("random", "random"), 2, komi=7.5)


@needs_gnugo
def test_gnugo_beats_random_without_forfeits(home):
    table = run_match(home, ("gnugo:1", "random"), 8).table
    assert table.result.wins == 8
    assert table.forfeits == (0, 0)


def test_a_match_is_a_run_in_mlflow(home, server):
    from mlflow import MlflowClient

    from zero.evaluation.match.output import track_matches

    played = run_match(home, (f"{home}/weights.safetensors,simulations=2", "random"), 6)
    urls = track_matches([played.folder], server)
    assert track_matches([played.folder], server) == urls, "written once"
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("matches of players")
    runs = client.search_runs([experiment.experiment_id], f"tags.`zero.match` = '{played.spec.key()}'")
    assert len(runs) == 1
    assert runs[0].data.metrics["score"] == played.table.result.score
    assert runs[0].data.metrics["as_black_score_low"] <= runs[0].data.metrics["as_black_score"]
    assert runs[0].data.params["second"] == "random"
    assert runs[0].data.params["first.simulations"] == "2"
    assert {file.path for file in client.list_artifacts(runs[0].info.run_id)} >= {"games.sgf", "result.json"}
