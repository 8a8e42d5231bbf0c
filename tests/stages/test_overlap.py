"""Who plays a generation's games where self-play overlaps, and what can be planned before it has begun."""

from pathlib import Path

import pytest

from tests.made_games import LINEAGE, made_params, write_games, write_params
from tests.parameters import selfplay_params
from zero.config.params import Params, overlap_of
from zero.data.records import concatenate, read_records
from zero.errors import LineageError, StorageError
from zero.record.metrics import SelfplayMetrics
from zero.stages.selfplay import metrics_of, plan, plan_next, player_of
from zero.storage.files import canonical_json, file_ref, read_manifest, write_manifest
from zero.storage.layout import GENERATION_FILE, PLAYER_DIR, SELFPLAY_METRICS
from zero.storage.manifests import Champion, GameSet, GenerationId
from zero.storage.store import Store


def overlapping(value: bool = True) -> Params:
    return made_params().model_copy(update={"selfplay": selfplay_params(overlap=value, num_games=6)})


def write_champion(folder: Path, generation: int) -> str:
    """A champion whose weights nobody reads; their digest."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights.safetensors").write_bytes(f"champion {generation}".encode())
    weights = file_ref(folder / "weights.safetensors", folder)
    write_manifest(folder, Champion(generation=generation, network=made_params().network, weights=weights))
    return weights.sha256


def write_identity(folder: Path, number: int, player: str | None, threshold: float = -1.0) -> GenerationId:
    identity = GenerationId(lineage=LINEAGE, number=number, resign_threshold=threshold, player=player)
    write_manifest(folder, identity, GENERATION_FILE)
    return identity


@pytest.fixture
def turn(tmp_path: Path) -> Path:
    """Generation 4, played by the champion of generation 1 and gated against that of generation 3."""
    write_params(tmp_path, overlapping())
    write_champion(tmp_path / "state/champion", 3)
    write_identity(tmp_path, 4, write_champion(tmp_path / PLAYER_DIR, 1))
    return tmp_path


def play_made_games(folder: Path, generation: int, player: str | None) -> SelfplayMetrics:
    """What the stage leaves."""
    write_games(folder, generation)
    write_identity(folder, generation, player)
    shards = read_manifest(folder / "data/games", GameSet).shards
    paths = [folder / "data/games" / ref.file.path for ref in shards]
    games = concatenate([read_records(path.read_bytes(), str(path)) for path in paths])
    metrics = metrics_of(games, overlapping().selfplay, -1.0)
    write_manifest(folder, metrics, SELFPLAY_METRICS)
    return metrics


def test_the_earlier_champion_plays(turn: Path) -> None:
    store = Store(str(turn / "store"))
    (player,) = {spec.weights for spec in plan(turn, store)}
    assert player == (read_manifest(turn / PLAYER_DIR, Champion).weights.sha256,)
    assert store.get_weights(player[0]) == b"champion 1"


@pytest.mark.parametrize("overlap", [True, False])
def test_the_champion_plays_without_an_earlier_one_or_without_overlap(turn: Path, overlap: bool) -> None:
    identity = read_manifest(turn, GenerationId, GENERATION_FILE)
    identity = identity.model_copy(update={"player": None}) if overlap else identity
    assert player_of(turn, overlapping(overlap), identity).champion.generation == 3


def test_another_player_than_the_state_names_is_refused(turn: Path) -> None:
    write_champion(turn / PLAYER_DIR, 2)
    with pytest.raises(StorageError, match=r"selfplay is [0-9a-f]{12}, state/generation.json says [0-9a-f]{12}; rest"):
        plan(turn, Store(str(turn / "store")))


def test_what_is_planned_ahead_is_what_the_next_generation_plans(turn: Path) -> None:
    """Whoever wins the match: here the challenger, which becomes the champion of generation 5."""
    store = Store(str(turn / "store"))
    metrics = play_made_games(turn, 4, read_manifest(turn / PLAYER_DIR, Champion).weights.sha256)
    ahead = plan_next(turn, store)
    assert {(spec.generation, spec.weights) for spec in ahead} == {
        (5, (read_manifest(turn / "state/champion", Champion).weights.sha256,))
    }
    write_champion(turn / "state/champion", 4)
    with pytest.raises(LineageError, match="generation 4 of made has just been decided"):
        plan_next(turn, store)  # the state is half rolled forward
    assert metrics.resignation
    write_identity(turn, 5, write_champion(turn / PLAYER_DIR, 3), metrics.resignation.following.threshold)
    assert [spec.key() for spec in plan(turn, store)] == [spec.key() for spec in ahead]


def test_ahead_of_the_games_that_set_the_threshold_is_too_early(turn: Path) -> None:
    store = Store(str(turn / "store"))
    with pytest.raises(LineageError, match=r"self-play of generation 4 of made is not done.*dvc repro selfplay"):
        plan_next(turn, store)
    play_made_games(turn, 3, None)
    write_identity(turn, 4, None)
    with pytest.raises(LineageError, match="is not done"):
        plan_next(turn, store)  # games and metrics are still those of generation 3
    metrics = play_made_games(turn, 4, None)
    write_manifest(turn, metrics.model_copy(update={"num_positions": 1}), SELFPLAY_METRICS)
    with pytest.raises(LineageError, match="is not done"):
        plan_next(turn, store)  # metrics of other games


def test_without_overlap_nothing_is_planned_ahead(turn: Path) -> None:
    write_params(turn, overlapping(False))
    with pytest.raises(LineageError, match=r"decides; set selfplay.overlap to true in params.yaml and commit it"):
        plan_next(turn, Store(str(turn / "store")))


def test_a_generation_without_a_player_is_written_as_it_always_was() -> None:
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
def test_parameters_of_any_version_tell_whether_self_play_overlaps(text: str, overlap: bool) -> None:
    assert overlap_of(text) is overlap
