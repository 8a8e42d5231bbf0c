"""Every change made by hand on a real MLflow server is detected and named."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.audit.record import LINEAGE, Record, named, tag_of
from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import git, zero
from tests.infra.servers import free_port
from tests.tracking.server import Server
from zero.audit import Audit, AuditCheck, Finding, Mark, audit, registry
from zero.record.lineages import ProjectRecord
from zero.tracking.audit import read_catalogue
from zero.tracking.pages import run_key

MODEL = f"zero-{LINEAGE}"


class Spoiled:
    """A server whose data is changed by hand."""

    def __init__(self, record: Record, server: Server, folder: Path) -> None:
        self.record, self.uri, self.folder = record, server.uri, folder
        self.client = server.client()

    def run(self, number: int, stage: str) -> Any:
        experiment = self.client.get_experiment_by_name(LINEAGE)
        wanted = " and ".join(f"tags.`{k}` = '{v}'" for k, v in run_key(LINEAGE, number, stage).items())
        return self.client.search_runs([experiment.experiment_id], wanted)[0]

    def version(self, number: int) -> Any:
        return next(iter(self.client.search_model_versions(f"name = '{MODEL}' and tags.generation = '{number}'")))


def move_alias_champion(server: Spoiled) -> tuple[int, str]:
    server.client.set_registered_model_alias(MODEL, "champion", server.version(2).version)
    return 4, "alias champion: generation: found 2, expected 1"


def delete_alias_challenger(server: Spoiled) -> tuple[int, str]:
    server.client.delete_registered_model_alias(MODEL, "challenger")
    return 4, "alias challenger: generation: found nothing, expected 4"


def move_alias_of_a_generation(server: Spoiled) -> tuple[int, str]:
    server.client.set_registered_model_alias(MODEL, "gen-0001", server.version(2).version)
    return 1, "alias gen-0001: version"


def delete_run(server: Spoiled) -> tuple[int, str]:
    run = server.run(1, "gating")
    server.client.delete_run(run.info.run_id)
    return 1, f"run gating of tiny/gen-0001: run deleted: found a deleted run ({run.info.run_id[:12]}"


def delete_run_of_a_rollback(server: Spoiled) -> tuple[int, str]:
    server.client.delete_run(server.run(3, "generation").info.run_id)
    return 3, "run generation of tiny/gen-0003: run deleted"


def change_metric(server: Spoiled) -> tuple[int, str]:
    server.client.log_metric(server.run(2, "training").info.run_id, "loss", 0.001, step=24)
    return 2, "metric loss: found 0.001 at step"


def change_metric_in_the_middle_of_a_curve(server: Spoiled) -> tuple[int, str]:
    """The newest value, which the run shows, is unchanged."""
    server.client.log_metric(server.run(1, "training").info.run_id, "policy_loss", 0.5, step=2)
    return 1, "metric policy_loss: found 0.5 at step 2"


def add_metric(server: Spoiled) -> tuple[int, str]:
    server.client.log_metric(server.run(2, "gating").info.run_id, "elo", 3000.0)
    return 2, "metric elo: found 3000 at step 0, expected nothing else"


def change_point_of_the_ladder(server: Spoiled) -> tuple[int, str]:
    experiment = server.client.get_experiment_by_name(LINEAGE)
    ladder = server.client.search_runs([experiment.experiment_id], "tags.`zero.stage` = 'ladder'")[0]
    server.client.log_metric(ladder.info.run_id, "ladder/score", 0.99, step=1)
    return 1, "run ladder: metric ladder/score: found 0.99 at step 1"


def add_parameter(server: Spoiled) -> tuple[int, str]:
    server.client.log_param(server.run(2, "selfplay").info.run_id, "search.magic", "7")
    return 2, "parameter search.magic: found 7, expected nothing"


def change_tag_of_a_run(server: Spoiled) -> tuple[int, str]:
    server.client.set_tag(server.run(1, "selfplay").info.run_id, "zero.champion", "f" * 64)
    return 1, "tag zero.champion: found ffffffffffff"


def open_run_again(server: Spoiled) -> tuple[int, str]:
    server.client.update_run(server.run(2, "generation").info.run_id, status="RUNNING")
    return 2, "status: found RUNNING, expected FINISHED"


def replace_weights_of_a_version(server: Spoiled) -> tuple[int, str]:
    model = server.version(1).source.removeprefix("models:/")
    path = next((server.folder / "artifacts").rglob(f"{model}/**/weights.safetensors"))
    path.write_bytes(server.record.cached(2, "models/challenger", "weights.safetensors").read_bytes())
    return 1, "(tiny/gen-0001): SHA-256 of its weights"


def change_digest_of_a_version(server: Spoiled) -> tuple[int, str]:
    server.client.set_model_version_tag(MODEL, server.version(2).version, "sha256", "e" * 64)
    return 2, "(tiny/gen-0002): tag sha256: found eeeeeeeeeeee"


def delete_version(server: Spoiled) -> tuple[int, str]:
    server.client.delete_model_version(MODEL, server.version(0).version)
    return 0, "version of tiny/gen-0000: version deleted"


CHANGES: tuple[Callable[[Spoiled], tuple[int, str]], ...] = (
    *(move_alias_champion, delete_alias_challenger, move_alias_of_a_generation, delete_run, delete_run_of_a_rollback),
    *(change_metric, change_metric_in_the_middle_of_a_curve, add_metric, change_point_of_the_ladder, add_parameter),
    *(change_tag_of_a_run, open_run_again, replace_weights_of_a_version, change_digest_of_a_version, delete_version),
)
"""Each changes one thing, and returns the number of the generation and a text of the finding."""


class Audited(NamedTuple):
    """Audits of one server."""

    unchanged: Audit
    without_data: Audit
    """The data of a generation is not on this machine."""
    shown: str
    """Output of the command."""
    of_an_unknown_lineage: object
    """What the server has of it."""
    of_tiny: tuple[object, object]
    """What the server has of tiny, and the same if it lacks the call of MLflow's own pages."""
    wanted: dict[str, tuple[int, str]]
    """Number and text of the finding of each change."""
    found: list[Finding]
    """Findings after all changes."""


@pytest.fixture(scope="module")
def audited(gone_on: Lineage, notebook: Path, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """Tiny is rolled back to generation 1 as number 3, and its generation 4 is refused; kid branches from 1."""
    folder = Path(shutil.copytree(notebook, tmp_path_factory.mktemp("spoiled") / "mlflow"))
    record, server, expected_of = Record(gone_on.home), Server(folder), registry._expected_of
    try:
        unchanged = record.audit("", server.uri)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(registry, "_expected_of", lambda each: None if each.tag == tag_of(1) else expected_of(each))
            without_data = record.audit("", server.uri)
        shown = zero(record.home, "audit", tag_of(2), MLFLOW_TRACKING_URI=server.uri, COLUMNS="170").stdout
        unknown, tiny = (read_catalogue(name, server.uri) for name in ("unknown", "tiny"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("zero.tracking.audit.HISTORY_PATH", "/ajax-api/2.0/mlflow/metrics/no-such-call")
            of_tiny = tiny, read_catalogue("tiny", server.uri)
        spoiled = Spoiled(record, server, folder)
        wanted = {change.__name__: change(spoiled) for change in CHANGES}
        return Audited(unchanged, without_data, shown, unknown, of_tiny, wanted, record.mismatches(server.uri))
    finally:
        server.stop()


def test_unchanged_server_agrees(audited: Audited) -> None:
    assert [finding.line() for finding in audited.unchanged.findings] == []
    assert [row.marks[AuditCheck.REGISTRY] for row in audited.unchanged.rows] == [Mark.OK] * 7
    assert f"no mismatches (MLflow {audited.unchanged.mlflow})" in audited.shown and "not checked" not in audited.shown


def test_a_server_without_the_call_of_mlflows_pages_is_read_by_the_public_one(audited: Audited) -> None:
    one, other = audited.of_tiny
    assert one == other is not None


def test_data_that_is_not_here_is_missing_and_no_mismatch(audited: Audited) -> None:
    """The ladder adds up the games of all generations before."""
    (finding,) = audited.without_data.findings
    assert (finding.tag, finding.mark) == (tag_of(1), Mark.MISSING)


@pytest.mark.parametrize("change", [change.__name__ for change in CHANGES])
def test_a_change_by_hand_is_found(audited: Audited, change: str) -> None:
    number, text = audited.wanted[change]
    named(audited.found, "registry", number, text)


def test_only_the_registry_is_reported(audited: Audited) -> None:
    assert {finding.check for finding in audited.found} == {"registry"}


def test_lineage_that_was_not_tracked_is_not_a_mismatch(
    record: Record, audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert audited.of_an_unknown_lineage is None
    monkeypatch.setattr("zero.audit.read_catalogue", lambda *_: None)
    found = record.audit(LINEAGE, "http://127.0.0.1:1")
    assert not found.has_mismatch and found.incomplete
    finding = named(list(found.findings), "registry", 1, "not tracked")
    assert finding.mark == Mark.MISSING and "zero track tiny" in finding.remedy
    assert found.rows[0].marks[AuditCheck.REGISTRY] == Mark.OK


def test_audit_of_a_clone_fetches_no_notes(record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zero.audit.read_catalogue", lambda *_: None)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(record.home), str(clone))
    (clone / ".zero").mkdir()
    (clone / ".zero/dvc-cache").symlink_to(record.home / ".zero/dvc-cache")
    before = git(clone, "for-each-ref")
    assert not audit(clone, LINEAGE, "http://127.0.0.1:1").has_mismatch
    assert git(clone, "for-each-ref") == before
    with ProjectRecord(clone) as read:
        assert read.generation(tag_of(2)).costs is not None
    assert "refs/notes/zero-costs/tiny" in git(clone, "for-each-ref")


def test_server_that_does_not_answer_is_not_a_mismatch(record: Record) -> None:
    found = record.audit(LINEAGE, f"http://127.0.0.1:{free_port()}")
    assert not found.has_mismatch and found.incomplete
    assert {row.marks[AuditCheck.REGISTRY] for row in found.rows} == {Mark.MISSING}
    assert "does not answer" in named(list(found.findings), "registry", 2, "no answer").remedy


def test_generation_with_missing_files_is_not_compared(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zero.audit.read_catalogue", lambda *_: None)
    record.cached(2, "models/challenger", "manifest.json").unlink()
    found = record.audit(LINEAGE, "http://127.0.0.1:1")
    finding = named(list(found.findings), "registry", 2, "not compared")
    assert finding.mark == Mark.MISSING and "dvc pull" in finding.remedy
