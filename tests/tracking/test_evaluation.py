"""Ladder, held-out evaluation and matches on a real MLflow server."""

import json

import mlflow.artifacts
import pytest
from mlflow import MlflowClient

from tests.made_games import GO5, LINEAGE
from tests.tracking.server import Server, history
from zero.config.params import preset_text
from zero.errors import ServerError
from zero.evaluation.held_out import Evaluation, GenerationEvaluation, Metrics, track_evaluation
from zero.evaluation.ladder import CurvePoint, Entry, Ladder, LadderRow, Result, Scale
from zero.evaluation.ladder_output import track_ladder, write_ladder
from zero.evaluation.match import RESULT_FILE, run_match, track_matches
from zero.storage.files import write_manifest
from zero.tracking import open_client

KEYS = ("a" * 64, "b" * 64)


def made_ladder(elo: float, lineage: str = LINEAGE) -> Ladder:
    entries = [
        Entry(
            key=key,
            name=f"{lineage}/gen-{k:04d}, 8 simulations",
            kind="network",
            conditions="c",
            simulations=8,
            generation=k,
            text=None,
        )
        for k, key in enumerate(KEYS)
    ]
    ratings = (0.0, elo)
    rows = [
        LadderRow(entry=entry, group=0, elo=rating, low=rating - 90 * k, high=rating + 90 * k, games=20, opponents=1)
        for k, (entry, rating) in enumerate(zip(entries, ratings, strict=True))
    ]
    curve = [
        CurvePoint(
            generation=k, tag=f"{lineage}/gen-{k:04d}", key=key, elo=row.elo, low=row.low, high=row.high, games=24 * k,
            seconds=None,
        )
        for k, (key, row) in enumerate(zip(KEYS, rows, strict=True))
    ]  # fmt: skip
    return Ladder(
        lineage=lineage,
        game=GO5,
        conditions="c",
        simulations=8,
        scales=(Scale(reference=entries[0].name, elo=0.0, is_anchor=False, num_players=2),),
        rows=tuple(rows),
        curve=tuple(curve),
        results=(),
    )


def made_evaluation(generation: int) -> GenerationEvaluation:
    metrics = Metrics(num_positions=9, policy_accuracy=0.5, cross_entropy=2.0, value_error=0.7, entropy=1.5)
    return GenerationEvaluation(
        lineage=LINEAGE,
        generation=generation,
        game=GO5,
        games_digest="d" * 64,
        is_promoted=True,
        evaluations=(
            Evaluation(network="challenger", weights=KEYS[0], games="later-1", games_digest="e" * 64, metrics=metrics),
        ),
    )


def runs_of(server: Server, stage: str):
    client = MlflowClient(tracking_uri=server.uri)
    experiment = client.get_experiment_by_name(LINEAGE)
    found = client.search_runs([experiment.experiment_id], f"tags.`zero.stage` = '{stage}'")
    return client, list(found)


def test_a_ladder_is_written_and_replaces_the_older_one(server, tmp_path):
    first, second = made_ladder(100.0), made_ladder(120.0)
    url = track_ladder(tmp_path, server.uri, first)
    client, (run,) = runs_of(server, "elo")
    assert run.info.run_id in url and run.info.status == "FINISHED"
    assert history(client, run, "ladder/elo") == [(0, 0.0), (1, 100.0)]
    assert history(client, run, "ladder/elo_low") == [(0, 0.0), (1, 10.0)]
    assert history(client, run, "ladder/total_games") == [(0, 0.0), (1, 24.0)]
    assert "ladder/total_seconds" not in run.data.metrics, "costs are not noted"
    mlflow.artifacts.download_artifacts(run_id=run.info.run_id, dst_path=str(tmp_path), tracking_uri=server.uri)
    assert (tmp_path / "ladder.json").read_bytes() == write_ladder(tmp_path, first).read_bytes()

    track_ladder(tmp_path, server.uri, second)
    _, (newer,) = runs_of(server, "elo")
    assert newer.info.run_id != run.info.run_id
    assert history(client, newer, "ladder/elo") == [(0, 0.0), (1, 120.0)]


def matches_on(server: Server, key: str):
    client = MlflowClient(tracking_uri=server.uri)
    experiment = client.get_experiment_by_name("matches of players")
    return list(client.search_runs([experiment.experiment_id], f"tags.`zero.match` = '{key}'")) if experiment else []


def test_matches_of_a_ladder_are_written_and_another_result_is_another_run(server, tmp_path):
    (tmp_path / "params.yaml").write_text(preset_text("smoke"))
    played = run_match(tmp_path, ("rollout:1", "random"), 4)
    counted = {"wins": 2, "losses": 2, "draws": 0, "unique_games": 4, "opening_moves": 0}
    result = Result.model_validate({"source": played.folder.name, "kind": "match", "players": KEYS, **counted})
    ladder = made_ladder(80.0).model_copy(update={"results": (result,)})
    for _ in range(2):
        track_ladder(tmp_path, server.uri, ladder)
    (run,) = matches_on(server, played.spec.key())
    assert run.info.status == "FINISHED" and run.data.metrics["score"] == played.table.result.score
    assert run.data.metrics["as_black_score_low"] <= run.data.metrics["as_black_score"]
    assert (run.data.params["first.playouts"], run.data.params["second"]) == ("1", "random")
    artifacts = MlflowClient(tracking_uri=server.uri).list_artifacts(run.info.run_id)
    assert {file.path for file in artifacts} >= {"games.sgf", "result.json"}
    changed = played.table.model_copy(update={"forfeits": (1, 0)})
    write_manifest(played.folder, changed, RESULT_FILE)
    assert run.info.run_id not in track_matches([played.folder], server.uri)[0]
    assert {each.data.metrics["forfeits_first"] for each in matches_on(server, played.spec.key())} == {0.0, 1.0}


def test_a_version_without_weights_is_named(server):
    client = MlflowClient(tracking_uri=server.uri, registry_uri=server.uri)
    run = client.create_run(client.create_experiment("by hand"))
    client.log_text(run.info.run_id, "no network", "model/notes.txt")
    client.create_registered_model("empty")
    client.create_model_version("empty", f"{run.info.artifact_uri}/model", run.info.run_id)
    with pytest.raises(ServerError, match="version 1 of empty has no weight file"), open_client(server.uri) as client:
        client.model_weights(server.uri, "empty", None, "1")


def test_held_out_evaluation_is_there_once(server, tmp_path):
    results = [made_evaluation(1), made_evaluation(2)]
    track_evaluation(server.uri, LINEAGE, results)
    track_evaluation(server.uri, LINEAGE, results)
    client, (run,) = runs_of(server, "evaluation")
    assert history(client, run, "challenger/later-1/policy_accuracy") == [(1, 0.5), (2, 0.5)]
    mlflow.artifacts.download_artifacts(run_id=run.info.run_id, dst_path=str(tmp_path), tracking_uri=server.uri)
    written = json.loads((tmp_path / "evaluation.json").read_text())
    assert GenerationEvaluation.model_validate(written["gen-0002"]) == results[1]
