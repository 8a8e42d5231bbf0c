"""Every change made by hand on a real MLflow server is detected and named."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.audit.record import LINEAGE, Record, named, tag_of
from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import zero
from tests.infra.servers import free_port
from tests.tracking.server import Server
from zero.audit import Check, Mark
from zero.tracking.pages import run_key

MODEL = f"zero-{LINEAGE}"


@pytest.fixture(scope="module")
def tracked(
    gone_on: Lineage, notebook: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Record, str, Path]]:
    """Two lineages, a server that has all of them and is only read by tests, and the server's folder.

    Tiny is rolled back to generation 1 as number 3, and its generation 4 is refused; kid branches from generation 1.
    """
    folder = Path(shutil.copytree(notebook, tmp_path_factory.mktemp("tracked") / "mlflow"))
    server = Server(folder)
    try:
        yield Record(gone_on.home), server.uri, folder
    finally:
        server.stop()


class Spoiled:
    """A server that each test changes in another place."""

    def __init__(self, record: Record, server: Server, folder: Path) -> None:
        self.record, self.uri, self.folder = record, server.uri, folder
        self.client = server.client()

    def run(self, number: int, stage: str) -> Any:
        experiment = self.client.get_experiment_by_name(LINEAGE)
        wanted = " and ".join(f"tags.`{k}` = '{v}'" for k, v in run_key(LINEAGE, number, stage).items())
        return self.client.search_runs([experiment.experiment_id], wanted)[0]

    def version(self, number: int) -> Any:
        return next(iter(self.client.search_model_versions(f"name = '{MODEL}' and tags.generation = '{number}'")))

    def sees(self, number: int, *words: str) -> None:
        """Checks that the audit reports it as a mismatch of the registry only."""
        found = self.record.mismatches(self.uri)
        named(found, "registry", number, *words)
        assert {finding.check for finding in found} == {"registry"}


@pytest.fixture(scope="module")
def spoiled(tracked: tuple[Record, str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spoiled]:
    """A second server with a copy of the first one's data."""
    record, _, folder = tracked
    copy = tmp_path_factory.mktemp("spoiled") / "mlflow"
    shutil.copytree(folder, copy)
    server = Server(copy)
    try:
        yield Spoiled(record, server, copy)
    finally:
        server.stop()


def test_unchanged_server_agrees(tracked: tuple[Record, str, Path]) -> None:
    record, uri, _ = tracked
    found = record.audit("", uri)
    assert [finding.line() for finding in found.findings] == []
    assert [row.marks[Check.REGISTRY] for row in found.rows] == [Mark.OK] * 7


def test_the_command_checks_the_server_of_the_environment(tracked: tuple[Record, str, Path]) -> None:
    record, uri, _ = tracked
    shown = zero(record.home, "audit", tag_of(2), MLFLOW_TRACKING_URI=uri, COLUMNS="170").stdout
    assert f"no mismatches (MLflow {uri})" in shown and "not checked" not in shown


def test_alias_champion_moved_by_hand(spoiled: Spoiled) -> None:
    spoiled.client.set_registered_model_alias(MODEL, "champion", spoiled.version(2).version)
    spoiled.sees(4, "alias champion: generation: found 2, expected 1")


def test_alias_challenger_deleted(spoiled: Spoiled) -> None:
    spoiled.client.delete_registered_model_alias(MODEL, "challenger")
    spoiled.sees(4, "alias challenger: generation: found nothing, expected 4")


def test_alias_of_a_generation_moved_by_hand(spoiled: Spoiled) -> None:
    spoiled.client.set_registered_model_alias(MODEL, "gen-0001", spoiled.version(2).version)
    spoiled.sees(1, "alias gen-0001: version")


def test_run_deleted(spoiled: Spoiled) -> None:
    run = spoiled.run(1, "gating")
    spoiled.client.delete_run(run.info.run_id)
    spoiled.sees(1, "run gating of tiny/gen-0001: run deleted", f"a deleted run ({run.info.run_id[:12]}")


def test_metric_changed(spoiled: Spoiled) -> None:
    run = spoiled.run(2, "training")
    spoiled.client.log_metric(run.info.run_id, "loss", 0.001, step=24)
    spoiled.sees(2, "run training of tiny/gen-0002", "metric loss: found 0.001 at step")


def test_metric_changed_in_the_middle_of_a_curve(spoiled: Spoiled) -> None:
    """The newest value, which the run shows, is unchanged."""
    spoiled.client.log_metric(spoiled.run(1, "training").info.run_id, "policy_loss", 0.5, step=2)
    spoiled.sees(1, "run training of tiny/gen-0001", "metric policy_loss: found 0.5 at step 2")


def test_metric_that_no_stage_made(spoiled: Spoiled) -> None:
    spoiled.client.log_metric(spoiled.run(2, "gating").info.run_id, "elo", 3000.0)
    spoiled.sees(2, "run gating of tiny/gen-0002", "metric elo: found 3000 at step 0, expected nothing else")


def test_point_of_the_ladder_changed(spoiled: Spoiled) -> None:
    experiment = spoiled.client.get_experiment_by_name(LINEAGE)
    ladder = spoiled.client.search_runs([experiment.experiment_id], "tags.`zero.stage` = 'ladder'")[0]
    spoiled.client.log_metric(ladder.info.run_id, "ladder/score", 0.99, step=1)
    spoiled.sees(1, "run ladder: metric ladder/score: found 0.99 at step 1")


def test_parameter_added(spoiled: Spoiled) -> None:
    spoiled.client.log_param(spoiled.run(2, "selfplay").info.run_id, "search.magic", "7")
    spoiled.sees(2, "run selfplay of tiny/gen-0002", "parameter search.magic: found 7, expected nothing")


def test_tag_of_a_run_changed(spoiled: Spoiled) -> None:
    spoiled.client.set_tag(spoiled.run(1, "selfplay").info.run_id, "zero.champion", "f" * 64)
    spoiled.sees(1, "run selfplay of tiny/gen-0001", "tag zero.champion: found ffffffffffff")


def test_run_opened_again(spoiled: Spoiled) -> None:
    spoiled.client.update_run(spoiled.run(2, "generation").info.run_id, status="RUNNING")
    spoiled.sees(2, "run generation of tiny/gen-0002", "status: found RUNNING, expected FINISHED")


def test_weights_of_a_version_replaced(spoiled: Spoiled) -> None:
    model = spoiled.version(1).source.removeprefix("models:/")
    path = next((spoiled.folder / "artifacts").rglob(f"{model}/**/weights.safetensors"))
    other = spoiled.record.cached(2, "models/challenger", "weights.safetensors")
    path.write_bytes(other.read_bytes())
    spoiled.sees(1, "(tiny/gen-0001): SHA-256 of its weights")


def test_digest_of_a_version_changed(spoiled: Spoiled) -> None:
    spoiled.client.set_model_version_tag(MODEL, spoiled.version(2).version, "sha256", "e" * 64)
    spoiled.sees(2, "(tiny/gen-0002): tag sha256: found eeeeeeeeeeee")


def test_run_of_a_rollback_deleted(spoiled: Spoiled) -> None:
    spoiled.client.delete_run(spoiled.run(3, "generation").info.run_id)
    spoiled.sees(3, "run generation of tiny/gen-0003: run deleted")


def test_version_deleted(spoiled: Spoiled) -> None:
    spoiled.client.delete_model_version(MODEL, spoiled.version(0).version)
    spoiled.sees(0, "version of tiny/gen-0000: version deleted")


def test_lineage_that_was_not_tracked_is_not_a_mismatch(record: Record, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    server = Server(tmp_path / "empty")
    try:
        found = record.audit(LINEAGE, server.uri)
    finally:
        server.stop()
    assert not found.has_mismatch and found.incomplete
    finding = named(list(found.findings), "registry", 1, "not tracked")
    assert finding.mark == Mark.MISSING and "zero track tiny" in finding.remedy
    assert found.rows[0].marks[Check.REGISTRY] == Mark.OK


def test_server_that_does_not_answer_is_not_a_mismatch(record: Record) -> None:
    found = record.audit(LINEAGE, f"http://127.0.0.1:{free_port()}")
    assert not found.has_mismatch and found.incomplete
    assert {row.marks[Check.REGISTRY] for row in found.rows} == {Mark.MISSING}
    assert "does not answer" in named(list(found.findings), "registry", 2, "no answer").remedy


def test_generation_with_missing_files_is_not_compared(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zero.audit.read_catalogue", lambda *_: None)
    record.cached(2, "models/challenger", "manifest.json").unlink()
    found = record.audit(LINEAGE, "http://127.0.0.1:1")
    finding = named(list(found.findings), "registry", 2, "not compared")
    assert finding.mark == Mark.MISSING and "dvc pull" in finding.remedy
