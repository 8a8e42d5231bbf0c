"""Errors of tracking: another history with the same name, another tag, corrupt files."""

import re

import pytest

from tests.made_generations import recorded_in
from tests.tracking.lineage import Lineage
from tests.tracking.server import aliases, everything, runs_of
from zero.config.params import parse_params
from zero.errors import LineageError, StorageError
from zero.tracking.backfill import track_generation, tracked_generations


def test_another_history_of_the_same_name_is_rejected_until_the_first_is_deleted(client, server, lineage, tmp_path):
    track_generation(recorded_in(lineage.folder(0)), server.uri)
    before = everything(client, lineage.name)
    other = Lineage(tmp_path / "other", lineage.name)
    other.text = other.text.replace("seed: 1", "seed: 2")
    other.params = parse_params(other.text)
    with pytest.raises(LineageError, match="another history of another-history"):
        track_generation(recorded_in(other.start()), server.uri)
    assert everything(client, lineage.name) == before
    for run in runs_of(client, lineage.name).values():
        client.delete_run(run.info.run_id)
    with pytest.raises(LineageError, match=r"another network for another-history.*\(version 1 of zero-another-history"):
        track_generation(recorded_in(other.folder(0)), server.uri)
    client.delete_registered_model(f"zero-{lineage.name}")
    url = track_generation(recorded_in(other.folder(0)), server.uri)
    assert tracked_generations(lineage.name, server.uri) == {0: url}
    assert aliases(client, lineage.name)["champion"] == 1


def test_a_deleted_experiment_is_restored(client, server, lineage):
    track_generation(recorded_in(lineage.folder(0)), server.uri)
    client.delete_experiment(client.get_experiment_by_name(lineage.name).experiment_id)
    assert tracked_generations(lineage.name, server.uri) == {}
    track_generation(recorded_in(lineage.folder(0)), server.uri)
    assert set(runs_of(client, lineage.name)) == {("0", "generation"), ("", "ladder")}


def test_corrupt_weights_are_not_registered(client, server, lineage):
    weights = lineage.folder(0) / "state" / "champion" / "weights.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(StorageError, match="is corrupt"):
        track_generation(recorded_in(lineage.folder(0)), server.uri)
    assert aliases(client, lineage.name) == {}
    weights.write_bytes(data)
    track_generation(recorded_in(lineage.folder(0)), server.uri)
    assert aliases(client, lineage.name)["champion"] == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metrics/training.json", "{}"),
        ("metrics/selfplay.json", "[]"),
        ("plots/training.csv", "step,loss\n1,much\n"),
        ("dvc.lock", "schema: '2.0'"),
    ],
)
def test_a_corrupt_file_is_named(server, lineage, name, text):
    folder = lineage.add(promoted=True)
    (folder / name).write_text(text)
    with pytest.raises(StorageError, match=re.escape(f"{name} of {lineage.tag(1)} is damaged")):
        track_generation(recorded_in(folder), server.uri)
    (folder / name).unlink()
    with pytest.raises(StorageError, match=f"cannot read {name}"):
        track_generation(recorded_in(folder), server.uri)


def test_a_corrupt_ledger_is_named(server, lineage):
    (lineage.folder(0) / "record" / "ledger.jsonl").write_text("{}")
    with pytest.raises(LineageError, match=r"ledger\.jsonl, line 1 is not a ledger entry"):
        track_generation(recorded_in(lineage.folder(0)), server.uri)
