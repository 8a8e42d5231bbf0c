"""The player of a generation with overlapping self-play, and planning the next generation's games ahead."""

from pathlib import Path

import pytest

from tests.made_games import LINEAGE, made_params, write_games, write_params
from tests.parameters import selfplay_params, with_sections
from zero.config.params import Params, overlap_of
from zero.data.records import concatenate, read_records
from zero.errors import LineageError, StorageError
from zero.record.metrics import SelfplayMetrics
from zero.stages import selfplay
from zero.stages.inputs import Inputs, read_inputs
from zero.stages.selfplay import selfplay_metrics
from zero.stages.spec import ShardSpec
from zero.storage.files import canonical_json, file_ref, read_manifest, write_manifest
from zero.storage.layout import GENERATION_FILE, PLAYER_DIR, SELFPLAY_METRICS
from zero.storage.manifests import Champion, GameSet, GenerationId
from zero.storage.store import Store


def overlapping(value: bool = True) -> Params:
    return with_sections(made_params(), selfplay=selfplay_params(overlap=value, num_games=6))


def write_champion(folder: Path, generation: int) -> str:
    """Writes a champion with made-up weights, and returns their digest."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights.safetensors").write_bytes(f"champion {generation}".encode())
    weights = file_ref(folder / "weights.safetensors", folder)
    write_manifest(folder, Champion(generation=generation, network=made_params().network, weights=weights))
    return weights.sha256


def write_identity(folder: Path, number: int, player: str | None, threshold: float = -1.0) -> GenerationId:
    identity = GenerationId(lineage=LINEAGE, number=number, resign_threshold=threshold, player=player)
    write_manifest(folder, identity, GENERATION_FILE)
    return identity


def read_identity(folder: Path) -> GenerationId:
    return read_manifest(folder, GenerationId, GENERATION_FILE)


def plan(folder: Path, store: Store) -> list[ShardSpec]:
    return selfplay.plan(read_inputs(folder), store)


def plan_next(folder: Path, store: Store) -> list[ShardSpec]:
    return selfplay.plan_next(read_inputs(folder), store)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Generation 4, whose player is the champion of generation 1 and whose match is against that of generation 3."""
    write_params(tmp_path, overlapping())
    write_champion(tmp_path / "state/champion", 3)
    write_identity(tmp_path, 4, write_champion(tmp_path / PLAYER_DIR, 1))
    return tmp_path


def play_made_games(folder: Path, generation: int, player: str | None) -> SelfplayMetrics:
    """Writes the output of the stage with made-up games."""
    write_games(folder, generation)
    write_identity(folder, generation, player)
    shards = read_manifest(folder / "data/games", GameSet).shards
    paths = [folder / "data/games" / ref.file.path for ref in shards]
    games = concatenate([read_records(path.read_bytes(), str(path)) for path in paths])
    metrics = selfplay_metrics(games, overlapping().selfplay, -1.0)
    write_manifest(folder, metrics, SELFPLAY_METRICS)
    return metrics


@pytest.mark.parametrize("overlap", [True, False])
def test_the_champion_plays_without_an_earlier_one_or_without_overlap(workspace: Path, overlap: bool) -> None:
    identity = read_identity(workspace)
    identity = identity.model_copy(update={"player": None}) if overlap else identity
    inputs = Inputs(workspace, overlapping(overlap), identity)
    assert inputs.player_dir == workspace / "state/champion"


def test_a_player_that_the_state_does_not_name_is_rejected(workspace: Path) -> None:
    write_champion(workspace / PLAYER_DIR, 2)
    with pytest.raises(StorageError, match=r"weights [0-9a-f]{12}, but state/generation.json names [0-9a-f]{12}; rest"):
        plan(workspace, Store(str(workspace / "store")))


def test_planning_ahead_needs_the_games_that_set_the_threshold(workspace: Path) -> None:
    store = Store(str(workspace / "store"))
    with pytest.raises(LineageError, match=r"self-play of generation 4 of made is not finished.*dvc repro selfplay"):
        plan_next(workspace, store)
    play_made_games(workspace, 3, None)
    write_identity(workspace, 4, None)
    with pytest.raises(LineageError, match="is not finished"):
        plan_next(workspace, store)  # games and metrics are still those of generation 3
    metrics = play_made_games(workspace, 4, None)
    write_manifest(workspace, metrics.model_copy(update={"num_positions": 1}), SELFPLAY_METRICS)
    with pytest.raises(LineageError, match="is not finished"):
        plan_next(workspace, store)  # the metrics are of other games


def test_planning_ahead_without_overlap_is_rejected(workspace: Path) -> None:
    write_params(workspace, overlapping(False))
    with pytest.raises(LineageError, match=r"decides; to plan ahead, set selfplay.overlap to true in"):
        plan_next(workspace, Store(str(workspace / "store")))


def test_a_generation_without_a_player_keeps_its_file_format() -> None:
    identity = GenerationId(lineage=LINEAGE, number=1, resign_threshold=-1.0)
    assert canonical_json(identity) == b'{\n "lineage": "made",\n "number": 1,\n "resign_threshold": -1.0\n}\n'


@pytest.mark.parametrize(
    ("text", "overlap"),
    [
        ("selfplay: {overlap: true, of_another_version: 1}", True),
        ("selfplay: {overlap: false}", False),
        ("selfplay: {}", False),
        ("selfplay: 3", False),
        ("- 1", False),
        ("selfplay: [", False),
    ],
)
def test_overlap_is_read_from_parameters_of_any_version(text: str, overlap: bool) -> None:
    assert overlap_of(text) is overlap
