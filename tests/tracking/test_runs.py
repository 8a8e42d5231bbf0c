"""Runs of a generation in MLflow: parameters, metrics, tags, files."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.made_generations import recorded_in
from tests.tracking.lineage import CURVES, STEPS, WINDOW_MD5
from tests.tracking.server import history, runs_of
from zero.statistics import wilson_interval
from zero.storage.files import canonical_line, sha256_bytes
from zero.tracking.backfill import track_generation
from zero.tracking.pages import flatten


def test_generation_is_a_parent_run_with_its_stages_as_children(client, go9):
    runs = runs_of(client, "go9")
    parent = runs["1", "generation"]
    assert (parent.info.run_name, parent.info.status) == ("gen-0001", "FINISHED")
    children = {s: r for (n, s), r in runs.items() if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id}
    assert {(stage, child.info.run_name, child.info.status) for stage, child in children.items()} == {
        ("selfplay", "selfplay", "FINISHED"),
        ("training", "training", "FINISHED"),
        ("gating", "gating", "FINISHED"),
    }


def test_generation_0_has_no_stages(client, go9):
    assert {stage for number, stage in runs_of(client, "go9") if number == "0"} == {"generation"}


def test_the_parent_has_all_parameters_and_a_stage_its_own(client, go9):
    runs = runs_of(client, "go9")
    assert runs["1", "generation"].data.params == flatten(go9.params)
    training = runs["1", "training"].data.params
    assert training["training.learning_rate.1.from_step"] == "20000"
    assert {name.partition(".")[0] for name in training} == {"training", "replay", "network"}


@pytest.mark.parametrize("curve", [CURVES[0], CURVES[-1]])
def test_curve_has_every_line_of_the_file(client, go9, curve):
    rows = [line.split(",") for line in (go9.folder(2) / "plots" / "training.csv").read_text().splitlines()]
    column = rows[0].index(curve)
    expected = [(int(row[0]), float(row[column])) for row in rows[1:]]
    runs = runs_of(client, "go9")
    assert len(expected) == STEPS // 2
    assert history(client, runs["2", "training"], curve) == expected
    assert history(client, runs["2", "generation"], f"3-training/{curve}") == expected


def test_a_curve_longer_than_one_call_is_complete(client, server, lineage):
    folder = lineage.add(promoted=True)
    lines = [f"{step},1,1,1,1,1,1" for step in range(1, 402)]  # 2406 values; a call takes 1000
    (folder / "plots" / "training.csv").write_text("\n".join([f"step,{','.join(CURVES)}", *lines]))
    track_generation(recorded_in(folder), server.uri)
    assert len(history(client, runs_of(client, lineage.name)["1", "training"], CURVES[-1])) == 401


def test_parents_are_compared_by_their_match(client, go9):
    runs = runs_of(client, "go9")
    names = ("promoted", "score", "score_low", "score_high", "unique_games", "mean_length")
    numbers = {n: [runs[n, "generation"].data.metrics[f"4-gating/{name}"] for name in names] for n in "12"}
    intervals = wilson_interval(0.75, 15), wilson_interval(0.375, 15)  # over the unique games
    assert numbers == {"1": [1, 0.75, *intervals[0], 15, 31.25], "2": [0, 0.375, *intervals[1], 15, 31.25]}
    assert runs["2", "generation"].data.metrics["1-selfplay/mean_length"] == 37.5
    assert runs["2", "gating"].data.metrics["wins_as_black"] == 3
    assert runs["2", "selfplay"].data.metrics["ended_passes"] == 23


def test_tags_point_to_the_record(client, go9):
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


def test_the_description_shows_the_gate_and_where_to_go_from_there(client, go9, tmp_path):
    run = runs_of(client, "go9")["2", "generation"]
    note = run.data.tags["mlflow.note.content"]
    picture, sentence, *others = note.split("\n\n")
    assert picture == f"![the score and its interval](get-artifact?path=gate.svg&run_uuid={run.info.run_id})"
    score = "37.5% (95 % interval 18.0% to 62.1%) in 16 games against generation 1, 55% was needed"
    assert sentence == f"the challenger scored {score}; the champion stays"
    assert "Champion: generation 1. Play against it: `zero play go9/gen-0002`" in others
    assert f"(#/experiments/{run.info.experiment_id}/runs?viewStateShareKey=generations)" in note
    drawn = Path(client.download_artifacts(run.info.run_id, "gate.svg", str(tmp_path))).read_text()
    texts = [text.text for text in ElementTree.fromstring(drawn) if text.tag.endswith("text")]
    assert texts == ["refused: 37.5% of 16 games (18.0% to 62.1%)", "55% is needed"]


def test_the_view_shows_metrics_and_tags_that_the_runs_have(client, go9):
    experiment = client.get_experiment_by_name("go9")
    view = json.loads(experiment.tags["mlflow.sharedViewState.generations"])
    state = json.loads(view["state"])
    found = client.search_runs([experiment.experiment_id], state["searchFilter"])
    assert {run.info.run_name for run in found} == {"gen-0000", "gen-0001", "gen-0002"}
    run = runs_of(client, "go9")["2", "generation"]
    shown = {name for chart in state["compareRunCharts"] for name in chart["selectedMetricKeys"]}
    of_newer_code = {"3-training/constant_value_loss", "3-training/explained_variance"}  # not in the made curve
    assert shown - of_newer_code <= run.data.metrics.keys() and "4-gating/score" in shown
    sections = {section["uuid"] for section in state["compareRunSections"]}
    assert {chart["metricSectionId"] for chart in state["compareRunCharts"]} == sections


def test_window_is_the_dataset_by_its_digest_in_dvc(client, go9):
    training = runs_of(client, "go9")["1", "training"]
    (data,) = training.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("go9-window", WINDOW_MD5)
    assert json.loads(data.dataset.profile) == {"num_games": 24, "num_positions": 900}
    assert training.data.tags["zero.window"] == "b" * 64


def test_small_files_of_the_record_are_artifacts(client, go9, tmp_path):
    runs = runs_of(client, "go9")
    parent = runs["1", "generation"].info.run_id
    line = Path(client.download_artifacts(parent, "record/ledger-line.json", str(tmp_path))).read_bytes()
    assert line == canonical_line(go9.ledger[1])
    assert {file.path for file in client.list_artifacts(parent)} == {"dvc.lock", "gate.svg", "params.yaml", "record"}
    curve = client.download_artifacts(runs["1", "training"].info.run_id, "plots/training.csv", str(tmp_path))
    assert Path(curve).read_bytes() == (go9.folder(1) / "plots" / "training.csv").read_bytes()


def test_the_ladder_has_one_step_per_generation(client, go9):
    ladder = runs_of(client, "go9")["", "ladder"]
    assert history(client, ladder, "ladder/champion_generation") == [(0, 0), (1, 1), (2, 1)]
    assert history(client, ladder, "ladder/promoted") == [(1, 1), (2, 0)]
    assert history(client, ladder, "ladder/score") == [(1, 0.75), (2, 0.375)]
    assert history(client, ladder, "ladder/total_games") == [(1, 24), (2, 48)]
