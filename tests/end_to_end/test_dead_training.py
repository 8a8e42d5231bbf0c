"""A generation whose training is dead: it is reported, the next one restarts, and the record holds."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.lineages import ONLY_IF_ALL_ARE_WON, Lineage, copy_of, make_generation, tiny_of
from tests.end_to_end.project import edit_params, git, make_project, zero
from tests.parameters import smoke_text
from zero.storage.manifests import Checkpoint

KILLS_THE_VALUE_HEAD = [{"from_step": 0, "learning_rate": 2.0}]
LEARNS = [{"from_step": 0, "learning_rate": 0.02}]
STEPS = {"training__num_steps": 100, "training__checkpoint_interval": 50, "training__log_interval": 10}


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    """Generation 1 with a dead training, refused."""
    home = make_project(tmp_path_factory.mktemp("dead") / "home")
    text = edit_params(
        smoke_text(),
        gating__threshold=ONLY_IF_ALL_ARE_WON,
        training__learning_rate=KILLS_THE_VALUE_HEAD,
        executor__num_processes=1,
        verification__shard_fraction=0.0,  # `zero reproduce` plays all games again
        **STEPS,
    )
    (home / "dead.yaml").write_text(text)
    zero(home, "new", "tiny", "--params", "dead.yaml")
    made = tiny_of(home)
    make_generation(made)
    return made


@pytest.fixture
def restarted(lineage: Lineage, tmp_path: Path) -> Lineage:
    """A copy with generation 2."""
    copy = copy_of(lineage, tmp_path)
    path = copy.workspace / "params.yaml"
    path.write_text(edit_params(path.read_text(), training__learning_rate=LEARNS))
    git(copy.workspace, "commit", "--quiet", "-m", "a lower learning rate", "params.yaml")
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


def test_the_next_generation_restarts_and_the_record_holds(restarted: Lineage) -> None:
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
    zero(restarted.home, "reproduce", "tiny/gen-0002")
