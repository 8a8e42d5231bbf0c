"""The catalogue of networks: versions, aliases, addresses, loaded players."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import mlflow
import numpy as np
import pytest
from mlflow.exceptions import MlflowException

from tests.made_generations import recorded_in
from tests.oracle.bitboards import pack
from tests.tracking.server import aliases, runs_of
from zero.network.torch_backend import TorchEvaluator
from zero.storage.files import sha256_bytes
from zero.tracking import open_client
from zero.tracking.backfill import track_generation, tracked_generations
from zero.tracking.pages import challenger_version


def test_refusal_leaves_the_champion(client, go9):
    assert aliases(client, "go9") == {"gen-0000": 1, "gen-0001": 2, "gen-0002": 3, "champion": 2, "challenger": 3}


def test_every_challenger_is_a_version_with_its_tags(client, go9):
    versions = {int(v.version): v.tags for v in client.search_model_versions("name = 'zero-go9'")}
    decisions = {number: (tags["generation"], tags["decision"], tags.get("score")) for number, tags in versions.items()}
    assert decisions == {1: ("0", "start", None), 2: ("1", "promoted", "0.7500"), 3: ("2", "refused", "0.3750")}
    assert [versions[number]["sha256"] for number in (1, 2, 3)] == [entry.trainee for entry in go9.ledger]
    assert versions[3]["git_tag"] == "go9/gen-0002"


def test_a_first_generation_without_generation_0_has_a_champion(client, server, lineage):
    track_generation(recorded_in(lineage.add(promoted=False)), server.uri)
    assert aliases(client, lineage.name) == {"gen-0000": 1, "gen-0001": 2, "champion": 1, "challenger": 2}


def test_an_older_generation_does_not_move_the_aliases(client, server, lineage):
    lineage.add(promoted=True)
    track_generation(recorded_in(lineage.add(promoted=True)), server.uri)
    track_generation(recorded_in(lineage.folder(1)), server.uri)
    assert set(tracked_generations(lineage.name, server.uri)) == {1, 2}
    assert aliases(client, lineage.name) == {
        "gen-0000": 3,
        "gen-0001": 1,
        "gen-0002": 2,
        "champion": 2,
        "challenger": 2,
    }


@pytest.mark.parametrize(("alias", "generation"), [("champion", 1), ("challenger", 2), ("gen-0000", 0)])
def test_registered_player_gives_the_priors_and_values_of_its_network(server, go9, monkeypatch, alias, generation):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    player = mlflow.pyfunc.load_model(f"models:/zero-go9@{alias}")
    planes = np.random.default_rng(5).integers(0, 2, (7, 17, 5, 5)).astype(np.float32)
    priors, values = np.empty((7, 26), np.float32), np.empty(7, np.float32)
    evaluator = TorchEvaluator(go9.network(generation), go9.params.profile)
    evaluator.evaluate(pack(planes.reshape(7, 17, 25)), priors, values)
    found = player.predict(planes)
    assert np.array_equal(found["prior"], priors)
    assert np.array_equal(found["value"], values)
    assert len(np.unique(values)) == 7
    assert len(player.predict(planes[:0])["prior"]) == 0


def test_weights_are_read_without_the_variable_and_without_a_local_database(server, go9, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    with open_client(server.uri) as client:
        weights = client.model_weights(server.uri, "zero-go9", "champion", None)
    assert sha256_bytes(weights) == go9.ledger[1].champion
    assert not [*tmp_path.iterdir()]


def test_registered_player_rejects_planes_of_another_board(server, go9, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    player = mlflow.pyfunc.load_model("models:/zero-go9@champion")
    with pytest.raises(MlflowException, match="schema"):
        player.predict(np.zeros((1, 17, 9, 9), np.float32))


def test_registered_player_is_code_and_safetensors(client, server, go9, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    folder = Path(mlflow.artifacts.download_artifacts("models:/zero-go9@champion", dst_path=str(tmp_path)))
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    own = {"player.py", "artifacts/weights.safetensors", "input_example.json", "serving_input_example.json"}
    assert files == own | {"MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt", "registered_model_meta"}
    assert (folder / "requirements.txt").read_text().split() == ["mlflow==3.17.2", "numpy==2.4.6", "torch==2.13.0"]
    assert sha256_bytes((folder / "artifacts" / "weights.safetensors").read_bytes()) == go9.ledger[1].champion


def test_a_version_has_a_model_card(client, go9):
    card = client.get_model_version_by_alias("zero-go9", "gen-0001").description
    for words in (
        "the challenger scored 75.0% (95 % interval 49.7% to 90.1%) in 16 games against generation 0, 55% was needed; "
        "it is the new champion (6 simulations a move)",
        "`zero play models:/zero-go9@gen-0001`",
        "none is stated: the project has no file LICENSE",
        f"attestation `{go9.ledger[1].provenance}`, printed by `zero provenance go9/gen-0001`",
        f"SHA-256 `{go9.ledger[1].champion}`",
    ):
        assert words in card
    assert (
        "the random network, no decision yet" in client.get_model_version_by_alias("zero-go9", "gen-0000").description
    )


def test_the_card_names_the_licence_of_the_project(lineage):
    (lineage.folder(0) / "LICENSE").write_text("The MIT License\n\nCopyright ...\n")
    assert "| licence | The MIT License |" in challenger_version(recorded_in(lineage.folder(0))).note


def test_a_served_player_answers_the_input_example(server, go9, monkeypatch, tmp_path):
    """`mlflow models serve` in a process of its own, as the model card says."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    model = mlflow.artifacts.download_artifacts("models:/zero-go9@champion", dst_path=str(tmp_path))
    body = (Path(model) / "serving_input_example.json").read_bytes()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ("models", "serve", "-m", "models:/zero-go9@champion", "--env-manager", "local", "--port", str(port))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # MLflow starts `uvicorn` by its name
    serving = subprocess.Popen(
        [sys.executable, "-m", "mlflow", *words],
        env=os.environ | {"MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false", "PATH": path},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/ping", serving)
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = json.load(answer)["predictions"]
    finally:
        os.killpg(serving.pid, signal.SIGKILL)
        serving.wait()
    assert np.shape(found["prior"]) == (1, 26) and np.isclose(np.sum(found["prior"]), 1.0)
    assert -1.0 <= found["value"][0] <= 1.0


def wait_for(address: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(address, timeout=5)
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)


def test_a_new_browser_opens_the_pages_for_model_training(client, server, go9, browser):
    page = browser.new_context().new_page()
    page.goto(f"{server.uri}/#/experiments/{client.get_experiment_by_name('go9').experiment_id}")
    page.wait_for_url("**/runs?workflowType=machine_learning*")  # MLflow's own choice is overview/usage
    page.get_by_role("link", name="gen-0002", exact=True).wait_for()
    page.evaluate("localStorage.setItem('mlflow.workflowType_v1', JSON.stringify('genai'))")
    page.goto(f"{server.uri}/")  # a choice of the user is kept
    assert page.evaluate("localStorage.getItem('mlflow.workflowType_v1')") == '"genai"'


def test_the_page_of_a_run_shows_the_gate(server, go9, browser):
    page = browser.new_context().new_page()
    page.goto(go9.urls[2])
    picture = page.locator("img[src*='gate.svg']")
    picture.wait_for()
    page.wait_for_function("image => image.naturalWidth > 0", arg=picture.element_handle())


def test_addresses_are_pages_of_the_server(client, server, go9):
    experiment, run = client.get_experiment_by_name("go9").experiment_id, runs_of(client, "go9")["1", "generation"]
    assert go9.urls[1].startswith(f"{server.uri}/#/experiments/{experiment}/runs/{run.info.run_id}?")
    assert tracked_generations("go9", server.uri + "/") == dict(enumerate(go9.urls))


def test_queries_for_an_unknown_lineage_create_nothing(client, server):
    assert tracked_generations("go99", server.uri) == {}
    assert client.get_experiment_by_name("go99") is None
