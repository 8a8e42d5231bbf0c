"""The same generation from shards that were played elsewhere, in another order, by two processes: the same lock."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.lineages import Lineage, make_generation, make_lineage
from tests.end_to_end.project import zero

TAG = "tiny/gen-0001"


def fill_store_backwards(lineage: Lineage, stage: str, folder: Path) -> int:
    """Plays the shards of a stage one by one, the last first; how many they are."""
    specs = zero(lineage.workspace, "plan", stage, "--missing").stdout.splitlines()
    for number, spec in reversed([*enumerate(specs)]):
        path = folder / f"{stage}-{number}.json"
        path.write_text(spec)
        receipt = json.loads(zero(lineage.workspace, "shard", str(path)).stdout.splitlines()[-1])
        assert receipt["first_game"] == json.loads(spec)["first_game"]
    assert zero(lineage.workspace, "plan", stage, "--missing").stdout == ""
    return len(specs)


@pytest.fixture(scope="module")
def another(tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """Generation 1; its self-play from a store that was filled backwards, its match by two processes."""
    lineage = make_lineage(tmp_path_factory.mktemp("another"), num_processes=2)
    folder = tmp_path_factory.mktemp("specs")
    zero(lineage.home, "prepare", "tiny")
    assert fill_store_backwards(lineage, "selfplay", folder) == 2
    make_generation(lineage)
    return lineage


def test_order_and_number_of_processes_change_no_lock(recorded: Lineage, another: Lineage) -> None:
    assert another.show(TAG, "dvc.lock") == recorded.show(TAG, "dvc.lock")
