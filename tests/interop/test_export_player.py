"""`zero export --format player`: player folders, their checks, and the shipped players."""

import pytest

from tests.end_to_end.lineages import Lineage
from zero.config.params import parse_params
from zero.errors import LineageError, StorageError
from zero.interop.export import export_player
from zero.players import networks
from zero.players.networks import SHIPPED_DIR, SUBJECTS, read_player_folder, resolve_network, shipped_players
from zero.record.ledger import entry_of, generation_tag, read_ledger
from zero.record.lineages import ProjectRecord, champion_maker
from zero.record.provenance import read_envelope
from zero.storage.files import sha256_bytes

MOST_BYTES = 5_000_000


@pytest.mark.parametrize("source, maker", [("tiny", 1), ("tiny/gen-0002", 1), ("tiny/gen-0000", 0)])
def test_a_player_has_the_attestation_of_the_generation_that_made_it(recorded: Lineage, tmp_path, source, maker):
    size = export_player(recorded.home, source, tmp_path / "player")
    files = read_player_folder(tmp_path / "player")
    assert size == sum(map(len, files.values()))
    attestation = read_envelope(files["provenance.intoto.jsonl"], "it").attestation
    assert (attestation.external.lineage, attestation.external.generation) == ("tiny", maker)
    digest = sha256_bytes(files["weights.safetensors"])
    assert digest == read_ledger(recorded.workspace)[maker].champion
    assert files["params.yaml"].decode() == recorded.show(f"tiny/gen-{maker:04d}", "params.yaml")


def test_it_is_played_with_its_own_parameters(recorded: Lineage, tmp_path):
    export_player(recorded.home, "tiny", tmp_path / "player")
    found = resolve_network(tmp_path, str(tmp_path / "player/weights.safetensors"))
    assert found.read_params() == parse_params(recorded.show("tiny/gen-0001", "params.yaml"))


@pytest.mark.parametrize("source, number", [("kid", 2), ("tiny", 4), ("tiny/gen-0003", 3)])
def test_the_maker_is_found_after_a_branch_or_a_rollback(gone_on: Lineage, tmp_path, source, number):
    name = source.partition("/")[0]
    ledger = read_ledger(gone_on.named(name).workspace)
    entry = entry_of(ledger, number)
    made = "tiny", entry.champion_generation
    export_player(gone_on.home, source, tmp_path / "player")
    external = read_envelope(
        read_player_folder(tmp_path / "player")["provenance.intoto.jsonl"], "it"
    ).attestation.external
    assert (external.lineage, external.generation) == made
    with ProjectRecord(gone_on.home) as record:
        assert champion_maker(record, name, number).tag == generation_tag(*made)


def test_a_weight_file_has_no_attestation(recorded: Lineage, tmp_path):
    path = recorded.workspace / "state/champion/weights.safetensors"
    with pytest.raises(LineageError, match="is not a recorded generation; give a lineage"):
        export_player(recorded.home, str(path), tmp_path / "player")
    assert not (tmp_path / "player").exists()


@pytest.mark.parametrize(
    "name, kind, message",
    [
        ("weights.safetensors", StorageError, "are not those of its signed attestation"),
        ("provenance.intoto.jsonl", LineageError, "is not signed by its key"),
        ("params.yaml", StorageError, r"params\.yaml of .* differs from its signed attestation"),
        ("signing-key.pub", StorageError, r"cannot read .*signing-key\.pub"),
    ],
)
def test_a_corrupt_player_is_rejected(recorded: Lineage, tmp_path, name, kind, message):
    export_player(recorded.home, "tiny", tmp_path / "one")
    export_player(recorded.home, "tiny/gen-0000", tmp_path / "other")
    path = tmp_path / "one" / name
    if name == "weights.safetensors":
        path.write_bytes((tmp_path / "other" / name).read_bytes())
    elif name == "signing-key.pub":
        path.unlink()
    elif name == "params.yaml":
        path.write_text(path.read_text().replace("komi: ", "komi: 1"))
    else:
        path.write_bytes(path.read_bytes().replace(b'"sig": "', b'"sig": "00'))
    with pytest.raises(kind, match=message):
        read_player_folder(tmp_path / "one")
    with pytest.raises(kind, match=message):
        resolve_network(recorded.home, str(tmp_path / "one/weights.safetensors"))


def test_a_shipped_player_is_checked(recorded: Lineage, tmp_path, monkeypatch):
    export_player(recorded.home, "tiny", tmp_path / "shipped/toy")
    monkeypatch.setattr(networks, "SHIPPED_DIR", tmp_path / "shipped")
    assert resolve_network(tmp_path, "toy").read_params() == parse_params(recorded.show("tiny/gen-0001", "params.yaml"))
    weights = tmp_path / "shipped/toy/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(StorageError, match="are not those of its signed attestation"):
        resolve_network(tmp_path, "toy")


@pytest.mark.parametrize("source", ["shipped:gomoku8", "gomoku8"])
def test_a_shipped_player_is_copied(tmp_path, source):
    size = export_player(tmp_path, source, tmp_path / "player")
    files = read_player_folder(tmp_path / "player")
    assert files == read_player_folder(SHIPPED_DIR / "gomoku8") and size == sum(map(len, files.values()))


def test_other_subjects_of_an_attestation_are_not_players(recorded: Lineage, tmp_path):
    export_player(recorded.home, "tiny", tmp_path / "player")
    with ProjectRecord(recorded.home) as record:
        made = record.generations("tiny")[1]
        optimizer, envelope = made.data("models/challenger", "optimizer.safetensors"), made.envelope
    assert optimizer and envelope
    names = [each.name for each in envelope.attestation.subject if each.sha256 == sha256_bytes(optimizer)]
    assert names and not set(names) & set(SUBJECTS)
    (tmp_path / "player/weights.safetensors").write_bytes(optimizer)
    with pytest.raises(StorageError, match="are not those of its signed attestation"):
        read_player_folder(tmp_path / "player")


def test_parameters_that_this_version_cannot_read_are_accepted(recorded: Lineage, tmp_path):
    export_player(recorded.home, "tiny", tmp_path / "player")
    path = tmp_path / "player/params.yaml"
    path.write_text("of_another_version: 1\n")
    assert read_player_folder(tmp_path / "player")["params.yaml"] == path.read_bytes()


def test_the_shipped_players_pass_their_checks():
    assert shipped_players() == ["go9", "gomoku8"]
    for name in shipped_players():
        files = read_player_folder(SHIPPED_DIR / name)
        assert sum(map(len, files.values())) < MOST_BYTES
