"""The first difference of two files, after a test changed one known value."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.parameters import network_params, preset
from zero.audit.differences import file_difference, first_difference
from zero.data.records import write_records
from zero.network.weights import new_network, weights_bytes
from zero.storage.manifests import GameRecord

NUM_ACTIONS = 26


def record(game: int, num_moves: int = 6, **changes: object) -> GameRecord:
    random = np.random.default_rng(game)
    counts = random.integers(0, 3, (num_moves, NUM_ACTIONS)).astype(np.uint16)
    counts[:, 0] = 1  # every move has entries
    values = {
        "actions": random.integers(0, NUM_ACTIONS, num_moves).astype(np.int16),
        "visit_counts": counts,
        "root_values": random.random(num_moves, dtype=np.float32),
        "best_values": random.random(num_moves, dtype=np.float32),
        "sample_weights": np.ones(num_moves, np.float32),
        "ownership": random.integers(-1, 2, 25).astype(np.int8),
        "outcome": 1,
        "margin": 2.5,
        "end": "passes",
        "never_resigns": False,
        "game": game,
        "black": "a" * 64,
        "white": "a" * 64,
    }
    return GameRecord(**(values | changes))  # type: ignore[arg-type]


def shard(**changes: Any) -> bytes:
    """Games 12 to 15; the changes are of game 14."""
    return write_records([record(12), record(13), record(14)._replace(**changes), record(15)])


def altered(name: str, index: Any, by: float) -> np.ndarray:
    values: np.ndarray = getattr(record(14), name).copy()
    values[index] += values.dtype.type(by)
    return values


def test_equal_files_have_no_difference() -> None:
    assert file_difference(shard(), shard(), ".parquet") is None


@pytest.mark.parametrize(
    ("name", "index", "by", "message"),
    [
        ("actions", 4, 1, "game 14, move 4: actions is "),
        ("visit_counts", (3, 0), 1, "game 14, move 3: visit_counts is "),
        ("ownership", 7, 1, "game 14, move 6: ownership is "),
    ],
)
def test_a_changed_number_is_reported_by_game_move_and_column(
    name: str, index: object, by: float, message: str
) -> None:
    found = file_difference(shard(), shard(**{name: altered(name, index, by)}), ".parquet")
    assert found and found.startswith(message) and found.endswith(" when re-executed")


def test_another_number_of_games_is_reported() -> None:
    assert file_difference(shard(), write_records([record(12)]), ".parquet") == "4 games then, 1 now"


def test_differing_bytes_without_a_differing_game_are_reported() -> None:
    found = file_difference(b"no shard", b"no sharp", ".parquet")
    assert found is not None and found.startswith("byte 7 (")


def weights(**changes: float) -> bytes:
    network = new_network(network_params(), preset("smoke").game, 1)
    with torch.no_grad():
        for name, value in changes.items():
            network.state_dict()[name.replace("__", ".")].view(-1)[1] += value
    return weights_bytes(network)


def test_a_changed_tensor_is_reported_with_its_distance() -> None:
    name = next(
        n for n, t in new_network(network_params(), preset("smoke").game, 1).state_dict().items() if t.numel() > 9
    )
    message = file_difference(weights(), weights(**{name.replace(".", "__"): 0.5}), ".safetensors")
    assert (
        message is not None
        and message.startswith(f"tensor {name}: 1 of ")
        and message.endswith("numbers, by up to 0.5")
    )


def test_a_missing_tensor_is_reported() -> None:
    import safetensors.torch

    tensors = {"a": torch.zeros(3), "b": torch.ones(2)}
    both, one = safetensors.torch.save(tensors), safetensors.torch.save({"a": tensors["a"]})
    assert file_difference(both, one, ".safetensors") == "tensor b exists then only"


def test_the_first_field_of_a_metrics_file_is_reported() -> None:
    message = file_difference(b'{"a": 1, "b": {"c": [1, 2.5]}}', b'{"a": 1, "b": {"c": [1, 3]}}', ".json")
    assert message == "b.c[1]: 2.5 then, 3 now"


def test_json_that_is_nested_too_deeply_is_compared_as_bytes():
    deep = b"[" * 100_000
    assert file_difference(deep, deep + b"1", ".json") == file_difference(deep, deep + b"1", "")


def test_the_first_line_of_a_curve_is_reported() -> None:
    assert file_difference(b"step,loss\n2,1\n4,1\n", b"step,loss\n2,1\n4,2\n", ".csv") == "line 2: 4,1 then, 4,2 now"


def test_in_a_folder_data_is_reported_before_the_manifest(tmp_path: Path) -> None:
    for name, data in (("then", shard()), ("now", shard(outcome=0))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(f'{{"num_games": "{name}"}}')
        (tmp_path / name / "shard-0000.parquet").write_bytes(data)
    expected = "shard-0000.parquet: game 14, move 6: outcome is 1 as recorded and 0 when re-executed"
    assert first_difference(tmp_path / "then", tmp_path / "now") == expected


def test_a_file_that_exists_once_is_reported(tmp_path: Path) -> None:
    for name in ("then", "now"):
        (tmp_path / name).mkdir()
    (tmp_path / "now/raw-weights.safetensors").write_bytes(b"x")
    assert first_difference(tmp_path / "then", tmp_path / "now") == "raw-weights.safetensors exists now only"
