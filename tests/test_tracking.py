"""Tracking on a real MLflow server, of generations whose files are in the real formats."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import mlflow
import numpy as np
import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus, Run
from mlflow.exceptions import MlflowException

from tests.oracle.bitboards import pack
from tests.tracking.server import Server
from zero.artifacts import (
    Champion,
    Checkpoint,
    Colours,
    LedgerEntry,
    MatchResult,
    Origin,
    PromotionDecision,
    Window,
    canonical_json,
    canonical_line,
    file_ref,
    sha256_bytes,
    write_manifest,
    write_whole,
)
from zero.errors import LineageError, ServerError, StorageError
from zero.network.torch_backend import TorchEvaluator
from zero.network.weights import new_network, weights_bytes
from zero.params import params_digest, parse_params
from zero.presets import preset_text
from zero.provenance import (
    PROVENANCE_FILE,
    BuildDefinition,
    ExternalParameters,
    InternalParameters,
    Metadata,
    Predicate,
    Resource,
    RunDetails,
    Statement,
    sign,
    statement_bytes,
)
from zero.tracking import TrackingReceipt, champion_url, track_generation, tracked_generations
from zero.tracking.pages import flatten

PROJECT_DIR = Path(__file__).resolve().parents[1]
STEPS = 12
"""Optimiser steps of a generation here; a line of the curve every 2."""
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
WINDOW_MD5 = "0123456789abcdef0123456789abcdef.dir"
CURVES = ("loss", "policy_loss", "value_loss", "learning_rate", "policy_accuracy", "policy_entropy")
WRITING_CALLS = [
    "create_experiment",
    "create_registered_model",
    "create_run",
    "log_batch",
    "log_inputs",
    "log_artifact",
    "set_terminated",
    "create_logged_model",
    "log_model_artifacts",
    "finalize_logged_model",
    "create_model_version",
    "set_registered_model_alias",
    "log_outputs",
    "log_text",
]
"""All calls of the client that write, in the order in which they are first made."""
ANY_SHA256 = "a" * 64


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Server(tmp_path_factory.mktemp("mlflow"))
    yield running
    running.stop()


class Lineage:
    """A lineage whose generations are folders, each as a clone at its tag would be."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self.text = preset_text("smoke")
        self.params = parse_params(self.text)
        self.ledger: list[LedgerEntry] = []
        self.champion = Champion.model_construct()
        self.champion_data = b""
        self.receipts: list[TrackingReceipt] = []

    def folder(self, number: int) -> Path:
        return self.root / f"{self.name}-{number}"

    def tag(self, number: int) -> str:
        return f"{self.name}/gen-{number:04d}"

    def start(self) -> Path:
        folder = self._new_folder(0)
        self._write_champion(folder, 0, self.network(0))
        self._write_ledger(folder, None, self.champion.weights.sha256, 0)
        return folder

    def add(self, promoted: bool) -> Path:
        """The files of the next generation."""
        number = len(self.ledger)
        folder = self._new_folder(number)
        self._write_champion(folder, self.champion.generation, self.champion_data)
        data = self.network(number)
        decision = self._decision(number, promoted, sha256_bytes(data))
        self._write_challenger(folder, number, data)
        self._write_data(folder, number)
        self._write_metrics(folder, number)
        write_manifest(folder / "metrics", decision, "gating.json")
        champion = (number, decision.challenger) if promoted else (self.champion.generation, decision.champion)
        self._write_ledger(folder, decision, champion[1], champion[0])
        self._write_provenance(folder, decision)
        if promoted:
            self.champion_data = data
            self.champion = self.champion.model_copy(update={"generation": number})
        return folder

    def _new_folder(self, number: int) -> Path:
        folder = self.folder(number)
        folder.mkdir(parents=True)
        (folder / "params.yaml").write_text(self.text)
        (folder / "constraints.txt").write_text("aiohttp==3.14.5\nmlflow==3.17.2\nnumpy==2.4.6\ntorch==2.13.0  # CPU\n")
        return folder

    def network(self, number: int) -> bytes:
        return weights_bytes(new_network(self.params.network, self.params.game, 100 * self.params.seed + number))

    def _origin(self, stage: str, number: int) -> Origin:
        return Origin(
            stage=stage,
            lineage=self.name,
            generation=number,
            seed=self.params.seed,
            params_digest=params_digest(self.params),
            engine=ANY_SHA256,
            inputs={},
        )

    def _write_champion(self, folder: Path, generation: int, data: bytes) -> None:
        state = folder / "state" / "champion"
        write_whole(state / "weights.safetensors", data)
        weights = file_ref(state / "weights.safetensors", state)
        self.champion = Champion(generation=generation, network=self.params.network, weights=weights)
        self.champion_data = data
        write_manifest(state, self.champion)

    def _write_challenger(self, folder: Path, number: int, data: bytes) -> None:
        model = folder / "models" / "challenger"
        write_whole(model / "weights.safetensors", data)
        write_whole(model / "optimizer.safetensors", b"momentum")
        checkpoint = Checkpoint(
            origin=self._origin("training", number),
            network=self.params.network,
            step=STEPS * number,
            learning_rate_factor=1.0,
            weights=file_ref(model / "weights.safetensors", model),
            optimizer=file_ref(model / "optimizer.safetensors", model),
        )
        write_manifest(model, checkpoint)

    def _write_data(self, folder: Path, number: int) -> None:
        window = Window(
            origin=self._origin("replay", number), shards=(), num_games=24 * number, num_positions=900 * number
        )
        write_manifest(folder / "data" / "window", window)
        outs = [{"path": "data/window", "hash": "md5", "md5": WINDOW_MD5, "size": 1, "nfiles": 1}]
        lock = {"schema": "2.0", "stages": {"replay": {"cmd": "python -m zero replay", "outs": outs}}}
        (folder / "dvc.lock").write_text(yaml.safe_dump(lock))

    def _write_metrics(self, folder: Path, number: int) -> None:
        selfplay = {
            "num_games": 24,
            "num_positions": 900,
            "mean_length": 37.5,
            "unique_games": 24,
            "ended": {"passes": 23},
        }
        write_whole(folder / "metrics" / "selfplay.json", canonical_json(selfplay))
        steps = range(STEPS * (number - 1) + 2, STEPS * number + 1, 2)
        lines = [f"{s},{5 / s},{4 / s},{1 / s},0.02,{s / 1000},{3 / s}" for s in steps]
        write_whole(folder / "plots" / "training.csv", "\n".join([f"step,{','.join(CURVES)}", *lines, ""]).encode())
        final = dict(zip(CURVES, map(float, lines[-1].split(",")[1:]), strict=True)) | {"step": steps[-1]}
        write_whole(folder / "metrics" / "training.json", canonical_json(final | {"num_samples": 384}))

    def _decision(self, number: int, promoted: bool, challenger: str) -> PromotionDecision:
        wins = 12 if promoted else 6
        match = MatchResult(
            wins=wins,
            losses=16 - wins,
            draws=0,
            as_black=Colours(wins=wins // 2, losses=8 - wins // 2, draws=0),
            as_white=Colours(wins=wins // 2, losses=8 - wins // 2, draws=0),
            unique_games=15,
            score=wins / 16,
            interval=(0.505, 0.898) if promoted else (0.185, 0.614),
            mean_length=31.25,
        )
        return PromotionDecision(
            lineage=self.name,
            generation=number,
            promoted=promoted,
            threshold=self.params.gating.threshold,
            match=match,
            challenger=challenger,
            champion=self.champion.weights.sha256,
        )

    def _write_ledger(self, folder: Path, decision: PromotionDecision | None, champion: str, generation: int) -> None:
        entry = LedgerEntry(
            lineage=self.name,
            generation=len(self.ledger),
            kind="decision" if decision else "start",
            decision=decision,
            champion=champion,
            champion_generation=generation,
            trainee=decision.challenger if decision else champion,
            params_digest=params_digest(self.params),
            lock_digest=sha256_bytes(b""),
            source=None,
            provenance=ANY_SHA256,
            previous=sha256_bytes(canonical_line(self.ledger[-1])) if self.ledger else "0" * 64,
        )
        self.ledger.append(entry)
        write_whole(folder / "record" / "ledger.jsonl", b"".join(canonical_line(line) for line in self.ledger))

    def _write_provenance(self, folder: Path, decision: PromotionDecision) -> None:
        statement = Statement(
            subject=(Resource(name="models/challenger/weights.safetensors", digest={"sha256": decision.challenger}),),
            predicate=Predicate(
                build_definition=BuildDefinition(
                    build_type="urn:zero:decision:1",
                    external_parameters=ExternalParameters(
                        lineage=self.name,
                        generation=decision.generation,
                        parameters=self.params.model_dump(mode="json"),
                    ),
                    internal_parameters=InternalParameters(
                        engine={"selfplay": ANY_SHA256}, profile={"device": "cpu", "isa": "AVX2"}, lock=ANY_SHA256
                    ),
                    resolved_dependencies=(
                        Resource(name="source", digest={"gitCommit": f"{decision.generation:040x}"}),
                    ),
                ),
                run_details=RunDetails(
                    metadata=Metadata(invocation_id=self.tag(decision.generation)),
                    byproducts=(Resource(name="data/window/manifest.json", digest={"sha256": "b" * 64}),),
                ),
            ),
        )
        write_whole(folder / PROVENANCE_FILE, sign(statement_bytes(statement), KEY))


@pytest.fixture
def lineage(tmp_path, request):
    """A lineage named by its test, with generation 0."""
    made = Lineage(tmp_path, request.node.name.removeprefix("test_").replace("_", "-"))
    made.start()
    return made


@pytest.fixture(scope="module")
def go9(server, tmp_path_factory):
    """Generations 0, 1 (promoted) and 2 (refused), tracked; only read by tests."""
    made = Lineage(tmp_path_factory.mktemp("go9"), "go9")
    made.start()
    made.add(promoted=True)
    made.add(promoted=False)
    for number in range(3):
        made.receipts.append(track_generation(made.folder(number), server.uri, made.tag(number)))
    return made


@pytest.fixture
def client(server):
    return MlflowClient(tracking_uri=server.uri, registry_uri=server.uri)


@pytest.fixture
def dead_uri():
    """Address at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"


def runs_of(client: MlflowClient, name: str) -> dict[tuple[str, str], Run]:
    """Runs of a lineage by (generation, stage); the ladder is ("", "ladder")."""
    experiment = client.get_experiment_by_name(name)
    runs = client.search_runs([experiment.experiment_id])
    found = {(r.data.tags.get("zero.generation", ""), r.data.tags["zero.stage"]): r for r in runs}
    assert len(found) == len(runs), "two runs of one stage"
    return found


def history(client: MlflowClient, run: Run, name: str) -> list[tuple[int, float]]:
    return sorted((metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name))


def aliases(client: MlflowClient, name: str) -> dict[str, int]:
    return {alias: int(v) for alias, v in client.get_registered_model(f"zero-{name}").aliases.items()}


def everything(client: MlflowClient, name: str) -> Any:
    """All that the server has of a lineage, but for ids and times."""
    runs = {
        key: (
            run.info.run_name,
            run.info.status,
            sorted(run.data.params),
            sorted(run.data.tags),
            {metric: history(client, run, metric) for metric in run.data.metrics},
            sorted(file.path for file in client.list_artifacts(run.info.run_id)),
            [(data.dataset.digest, [tag.value for tag in data.tags]) for data in run.inputs.dataset_inputs],
            len(client.get_run(run.info.run_id).outputs.model_outputs),
        )
        for key, run in runs_of(client, name).items()
    }
    versions = [(int(v.version), v.tags, v.status) for v in client.search_model_versions(f"name = 'zero-{name}'")]
    models = client.search_logged_models([client.get_experiment_by_name(name).experiment_id])
    return runs, sorted(versions), aliases(client, name), sorted((model.name, model.status) for model in models)


# Runs


def test_generation_is_a_parent_run_with_its_stages_as_children(client, go9):
    runs = runs_of(client, "go9")
    parent = runs["1", "generation"]
    assert (parent.info.run_name, parent.info.status) == ("gen-0001", "FINISHED")
    assert parent.info.run_id == go9.receipts[1].run_id
    children = {s: r for (n, s), r in runs.items() if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id}
    assert {(stage, child.info.run_name, child.info.status) for stage, child in children.items()} == {
        ("selfplay", "selfplay", "FINISHED"),
        ("training", "training", "FINISHED"),
        ("gating", "gating", "FINISHED"),
    }


def test_generation_0_has_no_stages(client, go9):
    assert {stage for number, stage in runs_of(client, "go9") if number == "0"} == {"generation"}


def test_every_parameter_is_on_the_parent_and_its_own_on_a_stage(client, go9):
    runs = runs_of(client, "go9")
    assert runs["1", "generation"].data.params == flatten(go9.params)
    training = runs["1", "training"].data.params
    assert training["training.learning_rate.1.from_step"] == "20000"
    assert {name.partition(".")[0] for name in training} == {"training", "replay", "network"}


@pytest.mark.parametrize("curve", CURVES)
def test_curve_has_every_line_of_the_file(client, go9, curve):
    rows = [line.split(",") for line in (go9.folder(2) / "plots" / "training.csv").read_text().splitlines()]
    column = rows[0].index(curve)
    expected = [(int(row[0]), float(row[column])) for row in rows[1:]]
    runs = runs_of(client, "go9")
    assert len(expected) == STEPS // 2
    assert history(client, runs["2", "training"], curve) == expected
    assert history(client, runs["2", "generation"], f"training/{curve}") == expected


def test_curve_longer_than_one_call_is_whole(client, server, lineage):
    folder = lineage.add(promoted=True)
    lines = [f"{step},1,1,1,1,1,1" for step in range(1, 402)]  # 2406 values; a call takes 1000
    (folder / "plots" / "training.csv").write_text("\n".join([f"step,{','.join(CURVES)}", *lines]))
    track_generation(folder, server.uri, lineage.tag(1))
    assert len(history(client, runs_of(client, lineage.name)["1", "training"], CURVES[-1])) == 401


def test_parents_are_compared_by_their_match(client, go9):
    runs = runs_of(client, "go9")
    names = ("promoted", "score", "score_low", "score_high", "unique_games", "mean_length")
    numbers = {n: [runs[n, "generation"].data.metrics[f"gating/{name}"] for name in names] for n in "12"}
    assert numbers == {"1": [1, 0.75, 0.505, 0.898, 15, 31.25], "2": [0, 0.375, 0.185, 0.614, 15, 31.25]}
    assert runs["2", "generation"].data.metrics["selfplay/mean_length"] == 37.5
    assert runs["2", "gating"].data.metrics["wins_as_black"] == 3
    assert runs["2", "selfplay"].data.metrics["ended_passes"] == 23


def test_tags_lead_back_to_the_record(client, go9):
    tags = runs_of(client, "go9")["2", "generation"].data.tags
    entry = go9.ledger[2]
    assert tags["zero.tag"] == "go9/gen-0002"
    assert tags["zero.decision"] == "refused"
    assert tags["zero.commit"] == tags["mlflow.source.git.commit"] == f"{2:040x}"
    assert tags["zero.params_digest"] == entry.params_digest
    assert tags["zero.lock_digest"] == entry.lock_digest
    assert tags["zero.challenger"] == entry.trainee
    assert tags["zero.opponent"] == tags["zero.champion"] == go9.ledger[1].champion
    assert tags["zero.ledger"] == sha256_bytes(canonical_line(entry))
    assert tags["mlflow.note.content"].startswith(
        "Refused at 0.375 (0.185 to 0.614, threshold 0.55) against generation 1"
    )


def test_window_is_the_dataset_by_its_digest_in_dvc(client, go9):
    training = runs_of(client, "go9")["1", "training"]
    (data,) = training.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("go9-window", WINDOW_MD5)
    assert json.loads(data.dataset.profile) == {"num_games": 24, "num_positions": 900}
    assert training.data.tags["zero.window"] == "b" * 64


def test_small_files_of_the_record_are_kept(client, go9, tmp_path):
    runs = runs_of(client, "go9")
    parent = runs["1", "generation"].info.run_id
    line = Path(client.download_artifacts(parent, "record/ledger-line.json", str(tmp_path))).read_bytes()
    assert line == canonical_line(go9.ledger[1])
    assert {file.path for file in client.list_artifacts(parent)} == {"dvc.lock", "params.yaml", "record"}
    curve = client.download_artifacts(runs["1", "training"].info.run_id, "plots/training.csv", str(tmp_path))
    assert Path(curve).read_bytes() == (go9.folder(1) / "plots" / "training.csv").read_bytes()


def test_sample_of_the_match_is_kept_where_there_is_one(client, server, lineage):
    folder = lineage.add(promoted=True)
    write_whole(folder / "data" / "match" / "sample.sgf", b"(;GM[1])")
    track_generation(folder, server.uri, lineage.tag(1))
    run = runs_of(client, lineage.name)["1", "gating"]
    assert [file.path for file in client.list_artifacts(run.info.run_id, "data/match")] == ["data/match/sample.sgf"]


def test_ladder_has_one_step_a_generation(client, go9):
    ladder = runs_of(client, "go9")["", "ladder"]
    assert history(client, ladder, "ladder/champion_generation") == [(0, 0), (1, 1), (2, 1)]
    assert history(client, ladder, "ladder/promoted") == [(1, 1), (2, 0)]
    assert history(client, ladder, "ladder/score") == [(1, 0.75), (2, 0.375)]
    assert history(client, ladder, "ladder/total_games") == [(1, 24), (2, 48)]


# Repetition and interruption


def test_second_tracking_adds_nothing(client, server, go9):
    before = everything(client, "go9")
    receipts = [track_generation(go9.folder(number), server.uri, go9.tag(number)) for number in range(3)]
    assert receipts == go9.receipts
    assert everything(client, "go9") == before


def test_tracking_killed_after_any_call_is_finished_by_the_next(client, server, go9, lineage, monkeypatch):
    lineage.add(promoted=True)
    for name in WRITING_CALLS:
        real = getattr(MlflowClient, name)

        def killed(self: MlflowClient, *args: Any, real: Any = real, **kwargs: Any) -> None:
            real(self, *args, **kwargs)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(MlflowClient, name, killed)
            track_generation(lineage.folder(1), server.uri, lineage.tag(1))
        assert tracked_generations(lineage.name, server.uri) == set()
    track_generation(lineage.folder(1), server.uri, lineage.tag(1))
    track_generation(lineage.folder(0), server.uri, lineage.tag(0))
    runs, versions, found, models = everything(client, lineage.name)
    expected = everything(client, "go9")
    assert runs == {key: page for key, page in expected[0].items() if key[0] in ("0", "1")} | {("", "ladder"): ANY}
    assert len(versions) == len(models) == 2
    assert found == {"gen-0000": 1, "gen-0001": 2, "champion": 2, "challenger": 2}
    assert {status for _, status in models} == {LoggedModelStatus.READY}


# The catalogue


def test_refusal_leaves_the_champion(client, go9):
    assert aliases(client, "go9") == {"gen-0000": 1, "gen-0001": 2, "gen-0002": 3, "champion": 2, "challenger": 3}
    assert [receipt.version for receipt in go9.receipts] == [1, 2, 3]


def test_every_challenger_is_a_version_with_its_tags(client, go9):
    versions = {int(v.version): v.tags for v in client.search_model_versions("name = 'zero-go9'")}
    decisions = {number: (tags["generation"], tags["decision"], tags.get("score")) for number, tags in versions.items()}
    assert decisions == {1: ("0", "start", None), 2: ("1", "promoted", "0.7500"), 3: ("2", "refused", "0.3750")}
    assert [versions[number]["sha256"] for number in (1, 2, 3)] == [entry.trainee for entry in go9.ledger]
    assert versions[3]["git_tag"] == "go9/gen-0002"


def test_first_generation_tracked_alone_still_has_a_champion(client, server, lineage):
    track_generation(lineage.add(promoted=False), server.uri, lineage.tag(1))
    assert aliases(client, lineage.name) == {"gen-0000": 1, "gen-0001": 2, "champion": 1, "challenger": 2}


def test_generation_caught_up_late_leaves_the_aliases_alone(client, server, lineage):
    lineage.add(promoted=True)
    track_generation(lineage.add(promoted=True), server.uri, lineage.tag(2))
    assert tracked_generations(lineage.name, server.uri) == {2}
    track_generation(lineage.folder(1), server.uri, lineage.tag(1))
    assert tracked_generations(lineage.name, server.uri) == {1, 2}
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


def test_registered_player_refuses_planes_of_another_board(server, go9, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    player = mlflow.pyfunc.load_model("models:/zero-go9@champion")
    with pytest.raises(MlflowException, match="schema"):
        player.predict(np.zeros((1, 17, 9, 9), np.float32))


def test_registered_player_is_code_and_safetensors(client, server, go9, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    folder = Path(mlflow.artifacts.download_artifacts("models:/zero-go9@champion", dst_path=str(tmp_path)))
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    own = {"player.py", "artifacts/weights.safetensors"}
    assert files == own | {"MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt", "registered_model_meta"}
    assert (folder / "requirements.txt").read_text().split() == ["mlflow==3.17.2", "numpy==2.4.6", "torch==2.13.0"]
    assert sha256_bytes((folder / "artifacts" / "weights.safetensors").read_bytes()) == go9.ledger[1].champion


# Addresses


def test_addresses_are_pages_of_the_server(client, server, go9):
    experiment = client.get_experiment_by_name("go9").experiment_id
    receipt = go9.receipts[1]
    assert receipt.url.startswith(f"{server.uri}/#/experiments/{experiment}/runs/{receipt.run_id}?")
    assert champion_url("go9", server.uri + "/").startswith(f"{server.uri}/#/models/zero-go9/versions/2?")


def test_asking_for_an_unknown_lineage_makes_nothing(client, server):
    assert tracked_generations("go99", server.uri) == set()
    with pytest.raises(LineageError, match="no champion of lineage 'go99'"):
        champion_url("go99", server.uri)
    assert client.get_experiment_by_name("go99") is None


# Refusals


def test_another_history_of_the_same_name_is_refused_until_the_first_is_deleted(client, server, lineage, tmp_path):
    track_generation(lineage.folder(0), server.uri, lineage.tag(0))
    before = everything(client, lineage.name)
    other = Lineage(tmp_path / "other", lineage.name)
    other.text = other.text.replace("seed: 1", "seed: 2")
    other.params = parse_params(other.text)
    with pytest.raises(LineageError, match="another history of another-history"):
        track_generation(other.start(), server.uri, other.tag(0))
    assert everything(client, lineage.name) == before
    for run in runs_of(client, lineage.name).values():
        client.delete_run(run.info.run_id)
    with pytest.raises(LineageError, match=r"another network for another-history.*: version 1 of zero-another-history"):
        track_generation(other.folder(0), server.uri, other.tag(0))
    client.delete_registered_model(f"zero-{lineage.name}")
    assert track_generation(other.folder(0), server.uri, other.tag(0)).version == 1
    assert tracked_generations(lineage.name, server.uri) == {0}


def test_experiment_in_the_bin_is_taken_out_again(client, server, lineage):
    track_generation(lineage.folder(0), server.uri, lineage.tag(0))
    client.delete_experiment(client.get_experiment_by_name(lineage.name).experiment_id)
    assert tracked_generations(lineage.name, server.uri) == set()
    track_generation(lineage.folder(0), server.uri, lineage.tag(0))
    assert set(runs_of(client, lineage.name)) == {("0", "generation"), ("", "ladder")}


def test_folder_at_another_tag_is_refused(server, lineage):
    with pytest.raises(LineageError, match=r"is at .*/gen-0000, not at .*/gen-0001"):
        track_generation(lineage.folder(0), server.uri, lineage.tag(1))


def test_altered_weights_are_not_registered(client, server, lineage):
    weights = lineage.folder(0) / "state" / "champion" / "weights.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StorageError, match="was altered"):
        track_generation(lineage.folder(0), server.uri, lineage.tag(0))
    assert aliases(client, lineage.name) == {}
    weights.write_bytes(data)
    assert track_generation(lineage.folder(0), server.uri, lineage.tag(0)).version == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics/training.json", "{}"),
        ("metrics/selfplay.json", "[]"),
        ("plots/training.csv", "step,loss\n1,much\n"),
        ("dvc.lock", "schema: '2.0'"),
    ],
)
def test_damaged_file_is_named(server, lineage, name, text):
    folder = lineage.add(promoted=True)
    (folder / name).write_text(text)
    with pytest.raises(StorageError, match=f"{name} is damaged"):
        track_generation(folder, server.uri, lineage.tag(1))
    (folder / name).unlink()
    with pytest.raises(StorageError, match=f"cannot read .*{name}"):
        track_generation(folder, server.uri, lineage.tag(1))


def test_damaged_ledger_is_named(server, lineage):
    (lineage.folder(0) / "record" / "ledger.jsonl").write_text("{}")
    with pytest.raises(LineageError, match=r"ledger\.jsonl, line 1 is no ledger entry"):
        track_generation(lineage.folder(0), server.uri, lineage.tag(0))


def test_dead_server_is_named_soon(dead_uri, lineage):
    start = time.monotonic()
    with pytest.raises(ServerError, match=f"{dead_uri}, does not answer .*`make up`"):
        track_generation(lineage.folder(0), dead_uri, lineage.tag(0))
    assert time.monotonic() - start < 15


def test_server_that_never_answers_is_given_up(lineage, monkeypatch):
    monkeypatch.setattr("zero.tracking.client.PROBE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ServerError, match=r"does not answer \(ReadTimeout\)"):
            tracked_generations(lineage.name, uri)


def test_address_of_no_server_is_refused(lineage):
    with pytest.raises(ServerError, match=r"'sqlite:///mlflow.db' is no http:// address"):
        track_generation(lineage.folder(0), "sqlite:///mlflow.db", lineage.tag(0))


@pytest.mark.parametrize(("health", "message"), [(404, "is no MLflow server"), (200, "MLflow at .* failed: .*500")])
def test_server_that_is_not_well_is_reported(lineage, monkeypatch, health, message):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(health if self.path == "/health" else 500)
            self.end_headers()
            self.wfile.write(b"OK")

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *args: Any) -> None:
            pass

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with HTTPServer(("127.0.0.1", 0), Handler) as stub:
        thread = threading.Thread(target=stub.serve_forever)
        thread.start()
        try:
            with pytest.raises(ServerError, match=f"{message}.*make up"):
                track_generation(lineage.folder(0), f"http://127.0.0.1:{stub.server_port}", lineage.tag(0))
        finally:
            stub.shutdown()
            thread.join()


# The library


def test_library_is_imported_quietly_and_only_when_a_server_is_asked(tmp_path, dead_uri):
    code = f"""
import sys
import zero.tracking
assert not any(name.partition(".")[0] in ("mlflow", "torch") for name in sys.modules)
try:
    zero.tracking.tracked_generations("go9", "{dead_uri}")
except zero.errors.ServerError as error:
    import mlflow.telemetry
    assert mlflow.telemetry.get_telemetry_client() is None
    print(error)
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=env | {"PYTHONPATH": str(PROJECT_DIR)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []
