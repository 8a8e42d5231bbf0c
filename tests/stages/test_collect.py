"""Collecting shards: those that break the data contract are quarantined with a reason and played again."""

import io
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.made_games import made_origin, records_of
from tests.stages.played import put_network, smoke_params
from zero.config.params import Params
from zero.data.records import read_records, write_records
from zero.data.validation import Violation
from zero.errors import StorageError
from zero.stages import collect
from zero.stages.collect import MAX_ROUNDS, Collected, collect_games, take_shard
from zero.stages.inputs import Inputs
from zero.stages.spec import ShardSpec, plan_shards
from zero.stages.worker import play_into_store
from zero.storage.files import checked_path, sha256_bytes
from zero.storage.manifests import GenerationId
from zero.storage.store import Store

PROJECT_DIR = Path(__file__).resolve().parents[2]


class Stage(NamedTuple):
    """Two shards in a store, and the folder to collect them in."""

    params: Params
    specs: list[ShardSpec]
    store: Store
    folder: Path

    def collect(self) -> Collected:
        """Collects the shards, with a worker of this project for missing ones."""
        generation = GenerationId(lineage="go9", number=1, resign_threshold=-1.0)
        inputs = Inputs(PROJECT_DIR, self.params, generation)
        return collect_games(inputs, self.specs, self.store, made_origin("selfplay", 1), self.folder, None)

    def put(self, spec: ShardSpec, data: bytes) -> None:
        """Replaces a shard by other bytes under their own hash."""
        path = self.path(spec)
        path.with_name(f"{spec.key()}.{sha256_bytes(data)}.parquet").write_bytes(data)
        path.unlink()

    def path(self, spec: ShardSpec) -> Path:
        (path,) = (Path(self.store.url) / "shards" / spec.key()[:2]).glob(f"{spec.key()}.*.parquet")
        return path

    def quarantined(self) -> list[Path]:
        return sorted((Path(self.store.url) / "quarantine").glob("*"))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with both shards of the stage."""
    store = Store(str(tmp_path_factory.mktemp("played")))
    for spec in plan(store):
        play_into_store(spec, store)
    return Path(store.url)


PARAMS = smoke_params(selfplay={"num_games": 12, "games_per_shard": 6}, executor={"num_processes": 1})


def plan(store: Store) -> list[ShardSpec]:
    return plan_shards(PARAMS, "selfplay", 1, (put_network(store, PARAMS),))


@pytest.fixture
def stage(played: Path, tmp_path: Path) -> Stage:
    shutil.copytree(played, tmp_path / "store")
    store = Store(str(tmp_path / "store"))
    return Stage(PARAMS, plan(store), store, tmp_path / "games")


def with_another_result(data: bytes) -> bytes:
    records = records_of(read_records(data, "shard"))
    records[2] = records[2]._replace(outcome=-records[2].outcome)
    return write_records(records)


def test_correct_shards_are_copied_and_files_of_an_earlier_run_removed(stage):
    stage.folder.mkdir()
    (stage.folder / "shard-0007.parquet").write_bytes(b"left by an interrupted run")
    collected = stage.collect()
    assert [ref.first_game for ref in collected.game_set.shards] == [0, 6]
    for ref, spec in zip(collected.game_set.shards, stage.specs, strict=True):
        assert checked_path(ref.file, stage.folder).read_bytes() == stage.path(spec).read_bytes()
    assert stage.quarantined() == []
    assert len(list(stage.folder.iterdir())) == 3, "two shards and the manifest"
    assert collected.games.num_games == collected.game_set.num_games == 12
    np.testing.assert_array_equal(collected.games.game, np.arange(12))


def test_bad_shards_are_quarantined_with_their_reasons_and_played_again(stage):
    """One file is not a shard; the other one breaks the data contract."""
    honest = stage.path(stage.specs[1]).read_bytes()
    false = with_another_result(honest)
    stage.put(stage.specs[0], b"a hash of its own, but no games")
    stage.put(stage.specs[1], false)
    stage.collect()
    assert (stage.folder / "shard-0001.parquet").read_bytes() == honest
    assert stage.path(stage.specs[1]).read_bytes() == honest
    reasons = {path.name: path.read_text() for path in stage.quarantined() if path.name.endswith(".reason.txt")}
    (no_games,) = (text for name, text in reasons.items() if name.startswith(stage.specs[0].key()))
    assert "is not a shard of games" in no_games
    (bad,) = (path for path in stage.quarantined() if path.read_bytes() == false)
    reason = reasons[f"{bad.name}.reason.txt"]
    assert "selfplay games 6-11) breaks the data contract" in reason
    assert "game 8, move" in reason and "the recorded outcome is wrong" in reason


@pytest.mark.parametrize(
    ("column", "values", "text"),
    [
        ("end", pa.array([b"\xff"] * 6, pa.binary()), "UTF8"),
        ("actions", pa.array([[0] * 300_000] * 6, pa.list_(pa.int16())), "has 1800000 values in actions, at most "),
    ],
    ids=["no UTF-8", "a bomb"],
)
def test_a_forged_file_is_a_violation_and_does_not_end_the_stage(stage, column, values, text):
    """Its hash is right for its bytes, as for any upload of a worker."""
    table = pq.read_table(stage.path(stage.specs[0]))
    if column == "end":
        values = pa.StringArray.from_buffers(len(values), *values.buffers()[1:])
    index = table.schema.get_field_index(column)
    file = io.BytesIO()
    pq.write_table(table.set_column(index, table.schema.field(index), values), file)
    stage.put(stage.specs[0], file.getvalue())
    violations = take_shard(stage.specs[0], stage.store)
    assert isinstance(violations, list)
    assert [(violation.clause, violation.game) for violation in violations] == [("file", 0)]
    assert text in violations[0].text


def test_a_shard_copied_from_another_is_played_again(stage):
    """Each game is correct on its own; the violation is between the shards."""
    games = records_of(read_records(stage.path(stage.specs[0]).read_bytes(), "shard"))
    copied = [game._replace(game=6 + game.game) for game in games]
    honest = stage.path(stage.specs[1]).read_bytes()
    stage.put(stage.specs[1], write_records(copied))
    stage.collect()
    assert len(stage.quarantined()) == 2
    assert "one random stream was played twice" in stage.quarantined()[1].read_text()
    assert (stage.folder / "shard-0001.parquet").read_bytes() == honest


def test_a_shard_with_violations_each_time_ends_the_stage(stage, monkeypatch):
    monkeypatch.setattr(collect, "shard_violations", lambda *_: [Violation("rules", 4, 9, "a made violation")])
    monkeypatch.setattr(collect, "fill_store", lambda *_: [play_into_store(s, stage.store) for s in stage.specs])
    with pytest.raises(
        StorageError, match=r"games 6-11 .* game 4, move 9: a made violation .*played and quarantined 3 times"
    ):
        stage.collect()
    assert len(stage.quarantined()) == 2 * 2 * MAX_ROUNDS
    assert not stage.folder.exists()
