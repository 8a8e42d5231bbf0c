"""`zero export --format player`: a folder whose weights are those of its signed statement, and the shipped ones are."""

import pytest

from tests.end_to_end.lineages import Lineage
from zero.artifacts import sha256_bytes
from zero.errors import LineageError, StorageError
from zero.interop.folder import export_player, read_player
from zero.params import parse_params
from zero.provenance import read_envelope
from zero.record import read_ledger
from zero.sources import SHIPPED_DIR, find_source, shipped_players

MOST_BYTES = 5_000_000


@pytest.mark.parametrize("source, maker", [("tiny", 1), ("tiny/gen-0002", 1), ("tiny/gen-0000", 0)])
def test_a_player_goes_with_the_statement_of_the_generation_that_made_it(recorded: Lineage, tmp_path, source, maker):
    size = export_player(recorded.home, source, tmp_path / "player")
    files = read_player(tmp_path / "player")
    assert size == sum(map(len, files.values()))
    statement = read_envelope(files["provenance.intoto.jsonl"], "it").statement
    assert (statement.asked.lineage, statement.asked.generation) == ("tiny", maker)
    digest = sha256_bytes(files["weights.safetensors"])
    assert digest == read_ledger(recorded.workspace)[maker].champion
    assert files["params.yaml"].decode() == recorded.show(f"tiny/gen-{maker:04d}", "params.yaml")


def test_it_is_played_with_its_own_parameters(recorded: Lineage, tmp_path):
    export_player(recorded.home, "tiny", tmp_path / "player")
    found = find_source(tmp_path, str(tmp_path / "player/weights.safetensors"))
    assert found.params == parse_params(recorded.show("tiny/gen-0001", "params.yaml"))


def test_a_weight_file_has_no_statement(recorded: Lineage, tmp_path):
    path = recorded.workspace / "state/champion/weights.safetensors"
    with pytest.raises(LineageError, match="is no recorded generation; name a lineage"):
        export_player(recorded.home, str(path), tmp_path / "player")
    assert not (tmp_path / "player").exists()


@pytest.mark.parametrize(
    "name, kind, message",
    [
        ("weights.safetensors", StorageError, "are not what its signed statement is about"),
        ("provenance.intoto.jsonl", LineageError, "is not signed by its key"),
    ],
)
def test_a_player_that_was_altered_is_refused(recorded: Lineage, tmp_path, name, kind, message):
    export_player(recorded.home, "tiny", tmp_path / "one")
    export_player(recorded.home, "tiny/gen-0000", tmp_path / "other")
    path = tmp_path / "one" / name
    if name == "weights.safetensors":
        path.write_bytes((tmp_path / "other" / name).read_bytes())
    else:
        path.write_bytes(path.read_bytes().replace(b'"sig": "', b'"sig": "00'))
    with pytest.raises(kind, match=message):
        read_player(tmp_path / "one")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"cannot read .*params\.yaml: No such file"):
        read_player(tmp_path)


def test_the_shipped_players_are_what_their_statements_say():
    for name in shipped_players():
        files = read_player(SHIPPED_DIR / name)
        assert sum(map(len, files.values())) < MOST_BYTES
