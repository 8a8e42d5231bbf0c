"""A generation whose training is dead: it is reported, the next one restarts, and the record holds."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.lineages import ONLY_IF_ALL_ARE_WON, Lineage, change_params, copy_of, make_generation
from tests.end_to_end.project import dvc, git, zero
from zero.storage.manifests import Checkpoint

KILLS_THE_VALUE_HEAD = [{"from_step": 0, "learning_rate": 2.0}]
LEARNS = [{"from_step": 0, "learning_rate": 0.02}]
STEPS = {"training__num_steps": 100, "training__checkpoint_interval": 50, "training__log_interval": 10}


@pytest.fixture(scope="module")
def lineage(unrecorded: Lineage) -> Lineage:
    """Generation 1 with a dead training, refused. Its games are there; it is trained and gated again."""
    change_params(
        unrecorded,
        gating__threshold=ONLY_IF_ALL_ARE_WON,
        training__learning_rate=KILLS_THE_VALUE_HEAD,
        verification__shard_fraction=0.0,
        **STEPS,
    )
    make_generation(unrecorded)
    return unrecorded


@pytest.fixture
def restarted(lineage: Lineage, tmp_path: Path) -> Lineage:
    """A copy with generation 2."""
    copy = copy_of(lineage, tmp_path)
    change_params(copy, training__learning_rate=LEARNS)
    make_generation(copy)
    return copy


def checkpoint(lineage: Lineage, folder: str) -> Checkpoint:
    return Checkpoint.model_validate_json((lineage.workspace / folder / "manifest.json").read_bytes())


def test_the_status_names_the_fault_and_the_remedy(lineage: Lineage) -> None:
    warnings = json.loads(zero(lineage.home, "status", "tiny", "--json").stdout)["lineages"]["tiny"]["warnings"]
    screen = " ".join(zero(lineage.home, "status", "tiny").stdout.split())
    for words in (
        "100% of the values are saturated (0.99 or more from 0)",
        "the next generation restarts from the checkpoint that this one started from",
        "the champion is still generation 0, the random network: no challenger has beaten it",
        "`make generation LINEAGE=tiny`",
    ):
        assert any(words in line for line in warnings), warnings
        assert words in screen


def test_the_next_generation_restarts_and_the_record_holds(restarted: Lineage, tmp_path: Path) -> None:
    first = json.loads(restarted.show("tiny/gen-0001", "metrics/training.json"))
    second = json.loads(restarted.show("tiny/gen-0002", "metrics/training.json"))
    assert (first["health"]["verdict"], first["step"]) == ("dead", 100)
    assert second["step"] == 100, "it began at step 0 again"
    assert second["health"]["verdict"] != "dead"
    ledger = [json.loads(line) for line in restarted.show("tiny/gen-0002", "record/ledger.jsonl").splitlines()]
    start, dead, after = ledger
    assert dead["trainee"] == start["trainee"] != dead["decision"]["challenger"]
    assert after["trainee"] == after["decision"]["challenger"]
    assert not checkpoint(restarted, "models/challenger").restarts
    assert zero(restarted.home, "audit", "tiny").returncode == 0
    clone = tmp_path / "clone"
    zero(restarted.home, "checkout", "tiny/gen-0002", str(clone))
    dvc(clone, "repro", "--single-item", "--force", "training", ZERO_STORE="off")
    assert git(clone, "status", "--porcelain") == "", "the training was repeated with another result"
