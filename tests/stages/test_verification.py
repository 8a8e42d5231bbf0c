"""The re-execution check: correct shards pass, and one flipped bit anywhere in a game is an error."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.made_games import made_file_ref, made_origin, records_of, replace_shard, write_params
from tests.parameters import with_sections
from tests.stages.played import smoke_params
from zero.config.params import Params, VerificationParams
from zero.data.quarantine import has_missing_shards
from zero.data.records import GameColumns, game_record, read_records, write_records
from zero.errors import LineageError, MismatchError
from zero.network.weights import new_network, weights_bytes
from zero.search.streams import stream_of
from zero.stages import gating, selfplay, verification
from zero.stages.inputs import read_inputs
from zero.stages.verification import MOVE_FIELDS, VerificationMetrics, game_difference, games_to_finish, sample_shards
from zero.storage.files import file_ref, read_manifest, sha256_bytes, write_atomic, write_manifest
from zero.storage.layout import GENERATION_FILE
from zero.storage.manifests import Champion, Checkpoint, GameRecord, GameSet, GenerationId
from zero.storage.store import Store

PROJECT_DIR = Path(__file__).resolve().parents[2]
NUM_SLOTS = 8
"""`num_slots` of the `smoke` preset."""


def params_of(shard_fraction: float = 1.0, game_fraction: float = 0.4) -> Params:
    return smoke_params(
        selfplay={"num_games": 20, "games_per_shard": 10},
        gating={"num_games": 20, "games_per_shard": 10},
        verification={"shard_fraction": shard_fraction, "game_fraction": game_fraction},
        executor={"num_processes": 1},
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace after self-play and gating, with the code of this project."""
    folder = tmp_path_factory.mktemp("workspace")
    params = params_of()
    for name in ("zero", "constraints.txt"):
        (folder / name).symlink_to(PROJECT_DIR / name)
    write_params(folder, params)
    write_manifest(folder, GenerationId(lineage="made", number=3, resign_threshold=-0.5), GENERATION_FILE)
    refs = {}
    for seed, out in ((1, "state/champion"), (2, "models/challenger")):
        path = folder / out / "weights.safetensors"
        write_atomic(path, weights_bytes(new_network(params.network, params.game, seed)))
        refs[out] = file_ref(path, folder / out)
    champion = Champion(generation=2, network=params.network, weights=refs["state/champion"])
    write_manifest(folder / "state/champion", champion)
    challenger = Checkpoint(
        origin=made_origin("training", 3),
        network=params.network,
        step=1,
        learning_rate_factor=1.0,
        weights=refs["models/challenger"],
        optimizer=made_file_ref("optimizer.safetensors", b""),
    )
    write_manifest(folder / "models/challenger", challenger)
    store = Store(str(folder / "store"))
    selfplay.run(read_inputs(folder), store)
    gating.run(read_inputs(folder), store)
    return folder


@pytest.fixture
def workspace(played: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    shutil.copytree(played, folder, symlinks=True)
    return folder


def verify(folder: Path) -> VerificationMetrics:
    return verification.run(read_inputs(folder), Store(str(folder / "store")))


def games_of(folder: Path, games_dir: str, shard: int) -> GameColumns:
    return read_records((folder / games_dir / f"shard-{shard:04d}.parquet").read_bytes(), "shard")


def corrupt(folder: Path, games_dir: str, shard: int, change: Callable[[GameRecord], GameRecord], game: int) -> str:
    """Changes one game of a shard in the workspace, its manifest and the store. Returns the shard's key."""

    def changed(games: list[GameRecord]) -> list[GameRecord]:
        return [*games[:game], change(games[game]), *games[game + 1 :]]

    data = replace_shard(folder / games_dir, shard, changed)
    key = read_manifest(folder / games_dir, GameSet).shards[shard].key
    (stored,) = (folder / "store/shards" / key[:2]).glob(f"{key}.*.parquet")
    stored.unlink()
    stored.with_name(f"{key}.{sha256_bytes(data)}.parquet").write_bytes(data)
    return key


def first_to_end(folder: Path, games_dir: str, shard: int) -> int:
    """Index of the game that ends first: the shortest of those that begin at the same time."""
    lengths = np.diff(games_of(folder, games_dir, shard).move_offsets)
    return int(lengths[:NUM_SLOTS].argmin())


def with_flipped_bit(game: GameRecord) -> GameRecord:
    """A game with the last bit of one root value changed."""
    values = game.root_values.copy()
    values[3] = np.nextafter(values[3], np.float32(2.0))
    return game._replace(root_values=values)


def test_correct_shards_are_reexecuted_with_equal_bits(workspace):
    metrics = verify(workspace)
    assert metrics == read_manifest(workspace / "metrics", VerificationMetrics, "verification.json")
    for found in (metrics.selfplay, metrics.gating):
        assert (found.shards, found.num_shards) == ((0, 1), 2)
        assert 8 <= found.num_games < 20  # 4 of each 10 and those that ended in the same step


def assert_flipped_bit_is_reported_and_quarantined(workspace: Path, games_dir: str, shard: int) -> None:
    game = first_to_end(workspace, games_dir, shard)
    key = corrupt(workspace, games_dir, shard, with_flipped_bit, game)
    with pytest.raises(MismatchError) as caught:
        verify(workspace)
    message = str(caught.value)
    assert message.startswith(f"{games_dir}/shard-{shard:04d}.parquet differs from its re-execution: ")
    assert f"game {10 * shard + game}, move 3: root_values is" in message
    assert "nothing is recorded" in message and "run `dvc repro`" in message
    assert not (workspace / "metrics/verification.json").exists()
    assert has_missing_shards(workspace, games_dir)
    assert Store(str(workspace / "store")).get_shard(key) is None
    name = f"gen-0003-{Path(games_dir).name}-shard-{shard:04d}.parquet"
    assert "move 3: root_values" in (workspace / ".zero/quarantine" / f"{name}.reason.txt").read_text()


def test_a_flipped_bit_in_self_play_is_reported_and_its_shard_quarantined(workspace):
    assert_flipped_bit_is_reported_and_quarantined(workspace, "data/games", 1)


def test_after_a_flipped_bit_in_the_match_the_shard_is_played_again_and_passes(workspace):
    correct = (workspace / "data/match/shard-0000.parquet").read_bytes()
    assert_flipped_bit_is_reported_and_quarantined(workspace, "data/match", 0)
    gating.run(read_inputs(workspace), Store(str(workspace / "store")))
    assert (workspace / "data/match/shard-0000.parquet").read_bytes() == correct
    verify(workspace)


def test_with_a_fraction_of_0_nothing_is_played(workspace):
    write_params(workspace, params_of(shard_fraction=0.0))
    metrics = verify(workspace)
    assert (metrics.selfplay.num_games, metrics.gating.num_games) == (0, 0)


def test_shards_of_another_specification_cannot_be_verified(workspace):
    write_params(workspace, with_sections(params_of(), search={"c_puct": 1.6}))
    with pytest.raises(LineageError, match="data/games was played by other code, parameters or hardware"):
        verify(workspace)


CHANGES: dict[str, tuple[Callable[[GameRecord], GameRecord], int, str]] = {
    "a move": (lambda g: with_row(g, "actions", 5), 5, "actions"),
    "a root value": (lambda g: with_row(g, "root_values", 4), 4, "root_values"),
    "a best value": (lambda g: with_row(g, "best_values", 4), 4, "best_values"),
    "a sample weight": (lambda g: with_row(g, "sample_weights", 5), 5, "sample_weights"),
    "visits": (lambda g: with_row(g, "visit_counts", 6), 6, "visit_counts"),
    "a root value, and the outcome": (lambda g: with_row(g, "root_values", 4)._replace(outcome=-g.outcome), 4, "root"),
    "the outcome": (lambda g: g._replace(outcome=-g.outcome), -1, "outcome"),
    "the margin": (lambda g: g._replace(margin=g.margin + 1), -1, "margin"),
    "the end": (lambda g: g._replace(end="length"), -1, "end"),
    "an owner": (lambda g: g._replace(ownership=-g.ownership), -1, "ownership"),
    "a player": (lambda g: g._replace(white=sha256_bytes(b"another player")), 0, "white"),
    "a calibration flag": (lambda g: g._replace(never_resigns=not g.never_resigns), 0, "never_resigns"),
}


def with_row(game: GameRecord, field: str, move: int) -> GameRecord:
    values = getattr(game, field).copy()
    values[move] = values[move] + 1
    return game._replace(**{field: values})


@pytest.mark.parametrize("case", CHANGES)
def test_the_first_difference_is_reported(played, case):
    change, move, field = CHANGES[case]
    columns = games_of(played, "data/games", 0)
    records = records_of(columns)
    index = next(i for i, game in enumerate(records) if game.end == "passes" and len(game.actions) > 8)
    other = read_records(write_records([change(records[index]), *records[:index]]), "again")
    found = game_difference(columns, other)
    assert found is not None and found.game == index
    assert found.move == (len(records[index].actions) if move < 0 else move)
    assert found.field.startswith(field)
    assert game_difference(columns, columns) is None


def test_a_game_that_ended_sooner_differs_where_it_ends(played):
    columns = games_of(played, "data/games", 0)
    game = game_record(columns, 0)
    rows = {name: getattr(game, name)[:7] for name in MOVE_FIELDS}
    found = game_difference(columns, read_records(write_records([game._replace(**rows)]), "again"))
    assert found is not None and (found.move, found.field) == (7, "actions")


def fractions(shard_fraction: float, game_fraction: float = 0.1) -> VerificationParams:
    return VerificationParams(shard_fraction=shard_fraction, game_fraction=game_fraction)


@pytest.mark.parametrize(
    ("fraction", "num_shards", "number"), [(0.0, 4, 0), (0.02, 4, 1), (0.5, 4, 2), (1.0, 4, 4), (0.02, 250, 5)]
)
def test_number_of_sampled_shards(fraction, num_shards, number):
    sampled = sample_shards(fractions(fraction), num_shards, stream_of(1, 1, "verification", 0))
    assert len(sampled) == len(set(sampled)) == number
    assert sampled == sorted(sampled) and all(0 <= shard < num_shards for shard in sampled)


def test_every_shard_is_sampled_in_some_generation():
    streams = [stream_of(1, generation, "verification", 0) for generation in range(400)]
    counts = np.bincount([sample_shards(fractions(0.02), 4, stream)[0] for stream in streams])
    assert counts.min() > 60


@pytest.mark.parametrize(("fraction", "games", "ended"), [(0.1, 160, 16), (0.001, 160, 1), (1.0, 7, 7), (0.5, 1, 1)])
def test_number_of_games_that_must_finish(fraction, games, ended):
    assert games_to_finish(fractions(0.1, fraction), games) == ended
