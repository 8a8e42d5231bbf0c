"""Rebuild of MLflow: runs and catalogue of a real lineage are written again, equal except for ids."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts
from mlflow.entities import Metric

from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import git, zero, zero_in_turn
from tests.tracking.server import Server
from zero.record.ledger import read_ledger
from zero.tracking.backfill import track_summary

OF_THE_SERVER = ("mlflow.log-model.history", "mlflow.user", "mlflow.parentRunId")
"""Tags with ids of the server or the name of the user."""


class Tracked(NamedTuple):
    """A server with the tracked lineages `tiny` and `kid`, and its content."""

    server: Server
    dumps: dict[str, Any]


def track(lineage: Lineage, name: str, server: Server, *options: str) -> None:
    zero(lineage.home, "track", name, *options, MLFLOW_TRACKING_URI=server.uri)


def dump(server: Server, name: str) -> dict[str, Any]:
    """Everything that a server has of a lineage: runs with their content, metrics with times; versions."""
    client = server.client()
    experiment = client.get_experiment_by_name(name)
    found = client.search_runs([experiment.experiment_id], max_results=1000)
    names = {run.info.run_id: title(run) for run in found}
    assert len(set(names.values())) == len(names)
    models = {model.model_id: model for model in client.search_logged_models([experiment.experiment_id])}
    registered = client.get_registered_model(f"zero-{name}")
    return {
        "experiment": experiment.tags,
        "runs": {names[run.info.run_id]: run_dump(client, run, names, models) for run in found},
        "models": sorted((m.name, sorted(m.tags.items()), str(m.status), m.model_type) for m in models.values()),
        "registered": (registered.description, registered.tags, registered.aliases),
        "versions": [
            (int(v.version), v.tags, v.description, names.get(v.run_id), v.status, weights_of(client, v.source))
            for v in sorted(client.search_model_versions(f"name = 'zero-{name}'"), key=lambda v: int(v.version))
        ],
    }


def title(run: Any) -> str:
    return f"{run.data.tags.get('zero.tag', '')} {run.data.tags['zero.stage']}"


def run_dump(client: MlflowClient, run: Any, names: dict[str, str], models: dict[str, Any]) -> dict[str, Any]:
    run_id = run.info.run_id
    outputs = client.get_run(run_id).outputs
    return {
        "name": run.info.run_name,
        "state": (run.info.status, run.info.start_time, run.info.end_time),
        "params": run.data.params,
        "tags": {
            key: value.replace(run_id, "the run").replace(f"experiments/{run.info.experiment_id}/", "")
            for key, value in run.data.tags.items()
            if key not in OF_THE_SERVER
        },
        "parent": names.get(run.data.tags.get("mlflow.parentRunId", "")),
        "metrics": {
            key: sorted((m.step, m.value, m.timestamp) for m in client.get_metric_history(run_id, key))
            for key in run.data.metrics
        },
        "files": files_of(client, run_id),
        "data": [(each.dataset.name, each.dataset.digest, each.dataset.source) for each in run.inputs.dataset_inputs],
        "models": sorted(models[each.model_id].name for each in outputs.model_outputs) if outputs else [],
    }


def files_of(client: MlflowClient, run_id: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        client.download_artifacts(run_id, "", folder)
        paths = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


def weights_of(client: MlflowClient, source: str) -> str:
    """SHA-256 of the only artifact of a version."""
    model_id = source.removeprefix("models:/")
    files = [file.path for file in client.list_logged_model_artifacts(model_id, "artifacts")]
    assert files == ["artifacts/weights.safetensors"]
    with tempfile.TemporaryDirectory() as folder:  # with `models:/...` the library would open a local database
        address = f"{client.get_logged_model(model_id).artifact_location}/{files[0]}"
        path = download_artifacts(address, dst_path=folder, tracking_uri=client.tracking_uri)
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def tracked(notebook: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracked]:
    server = Server(Path(shutil.copytree(notebook, tmp_path_factory.mktemp("tracked") / "mlflow")))
    try:
        yield Tracked(server, {name: dump(server, name) for name in ("tiny", "kid")})
    finally:
        server.stop()


def test_the_run_of_each_generation_has_its_report(tracked: Tracked) -> None:
    runs = tracked.dumps["tiny"]["runs"]
    with_report = {name for name, run in runs.items() if "report.html" in run["files"]}
    assert with_report == {name for name in runs if name.endswith(" generation")} != set()


def test_two_concurrent_processes_fill_an_empty_server(gone_on: Lineage, tracked: Tracked, tmp_path: Path) -> None:
    """Another server with another database and folder gets each run once."""
    server = Server(tmp_path)
    try:
        with ThreadPoolExecutor(2) as both:
            list(both.map(lambda _: track(gone_on, "tiny", server), range(2)))
        assert dump(server, "tiny") == tracked.dumps["tiny"]
    finally:
        server.stop()


def test_corrupt_and_deleted_content_is_rebuilt_and_other_runs_are_kept(gone_on: Lineage, tracked: Tracked) -> None:
    client, before = tracked.server.client(), tracked.dumps["tiny"]
    experiment = client.get_experiment_by_name("tiny")
    runs = {title(run): run for run in client.search_runs([experiment.experiment_id])}
    client.set_tag(runs["tiny/gen-0002 generation"].info.run_id, "zero.decision", "promoted")
    score = runs["tiny/gen-0002 gating"]
    client.log_batch(score.info.run_id, metrics=[Metric("score", 0.99, 1, 2)])
    client.delete_run(runs["tiny/gen-0001 training"].info.run_id)
    client.delete_run(runs["tiny/gen-0001 generation"].info.run_id)
    client.set_registered_model_alias("zero-tiny", "champion", "3")
    client.set_model_version_tag("zero-tiny", "2", "score", "1.0000")
    client.delete_model_version("zero-tiny", "1")
    mine = client.create_run(experiment.experiment_id, run_name="mine", tags={"by": "hand"})
    assert dump_without(tracked.server, mine.info.run_id) != before
    for stage in ("elo", "evaluation"):
        track_summary(tracked.server.uri, "tiny", stage, "of other commands", [], {})
    track(gone_on, "tiny", tracked.server, "--rebuild")
    assert client.get_run(mine.info.run_id).info.lifecycle_stage == "active"
    client.delete_run(mine.info.run_id)
    for stage in ("elo", "evaluation"):
        (kept,) = client.search_runs([experiment.experiment_id], f"tags.`zero.stage` = '{stage}'")
        client.delete_run(kept.info.run_id)
    assert dump(tracked.server, "tiny") == before
    assert dump(tracked.server, "kid") == tracked.dumps["kid"]


def dump_without(server: Server, run_id: str) -> dict[str, Any]:
    """A dump without the run of another program."""
    client = server.client()
    client.delete_run(run_id)
    found = dump(server, "tiny")
    client.restore_run(run_id)
    return found


def test_runs_of_another_lineage_with_the_name_are_not_taken_for_its_own(gone_on: Lineage, tracked: Tracked) -> None:
    client = tracked.server.client()
    experiment = client.get_experiment_by_name("kid")
    wanted = "tags.`zero.tag` = 'kid/gen-0001' and tags.`zero.stage` = 'generation'"
    (run,) = client.search_runs([experiment.experiment_id], wanted)
    client.set_tag(run.info.run_id, "zero.ledger", "0" * 64)
    before = dump(tracked.server, "kid")
    words = ("track", "kid")
    for done in zero_in_turn(gone_on.home, words, (*words, "--rebuild"), MLFLOW_TRACKING_URI=tracked.server.uri):
        assert done.returncode == 1 and "has another history of kid/gen-0001" in done.stderr
    assert dump(tracked.server, "kid") == before
    client.set_tag(run.info.run_id, "zero.ledger", run.data.tags["zero.ledger"])


def test_a_deleted_experiment_is_rebuilt(gone_on: Lineage, tracked: Tracked) -> None:
    client = tracked.server.client()
    client.delete_experiment(client.get_experiment_by_name("kid").experiment_id)
    track(gone_on, "kid", tracked.server, "--rebuild")
    assert dump(tracked.server, "kid") == tracked.dumps["kid"]


def test_runs_end_at_the_commit_and_last_as_long_as_their_work(gone_on: Lineage, tracked: Tracked) -> None:
    recorded = 1000 * int(git(gone_on.home, "log", "-1", "--format=%ct", "tiny/gen-0001"))
    of_all = tracked.dumps["tiny"]["runs"]["tiny/gen-0001 generation"]
    for name, metric in (("generation", "6-cost/seconds"), ("training", "6-cost/3-training/seconds")):
        [(_, seconds, _)] = of_all["metrics"][metric]
        began = recorded - int(1000 * seconds)
        assert tracked.dumps["tiny"]["runs"][f"tiny/gen-0001 {name}"]["state"] == ("FINISHED", began, recorded)
        assert began < recorded


def test_a_rollback_is_a_run_and_moves_the_champion_back(gone_on: Lineage, tracked: Tracked) -> None:
    runs, versions = tracked.dumps["tiny"]["runs"], tracked.dumps["tiny"]["versions"]
    rollback = runs["tiny/gen-0003 generation"]
    assert rollback["tags"]["zero.decision"] == "rollback" and rollback["tags"]["zero.source"] == "tiny/gen-0001"
    assert rollback["metrics"] == {}
    assert [tags["generation"] for _, tags, *_ in versions] == ["0", "1", "2", "4"]
    aliases = {alias: versions[int(number) - 1][1] for alias, number in tracked.dumps["tiny"]["registered"][2].items()}
    assert aliases["challenger"]["generation"] == "4"
    assert aliases["champion"]["sha256"] == read_ledger(gone_on.workspace)[-1].champion
    ladder = next(run for name, run in runs.items() if name.endswith("ladder"))
    assert [step for step, *_ in ladder["metrics"]["ladder/champion_generation"]] == [1, 2, 3, 4]
    assert [value for _, value, _ in ladder["metrics"]["ladder/total_games"]] == [24.0, 48.0, 72.0]


def test_a_branch_starts_with_the_champion_of_its_source(gone_on: Lineage, tracked: Tracked) -> None:
    versions = tracked.dumps["kid"]["versions"]
    start, made = read_ledger(gone_on.named("kid").workspace)
    assert [tags["sha256"] for _, tags, *_ in versions] == [start.champion, made.decision and made.decision.challenger]
    assert [tags["git_tag"] for _, tags, *_ in versions] == ["kid/gen-0001", "kid/gen-0002"]
    assert tracked.dumps["kid"]["runs"]["kid/gen-0001 generation"]["tags"]["zero.source"] == "tiny/gen-0001"
    assert tracked.dumps["kid"]["registered"][2]["champion"] == "1"
