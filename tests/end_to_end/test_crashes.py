"""A generation that is killed twice equals an uninterrupted one bit for bit. `make drill` is the full test."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.project import zero
from tests.faults.drill.outcome import digests, violations
from tests.faults.drill.project import Fault, Project
from tests.faults.drill.rounds import Reference, make_lineage, make_reference
from zero.record.costs import read_note

BEFORE_SHARD = Fault(1, victim="self", pattern=r"^rename .*store/receipts/")
BEFORE_TAG = Fault(1, pattern=r"^start git tag tiny/")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with Project(tmp_path_factory.mktemp("drill") / "crashes", shard_fraction=0.0) as made:
        yield made


@pytest.fixture(scope="module")
def reference(project: Project) -> Reference:
    return make_reference(project, 1)


@pytest.fixture(scope="module")
def killed(project: Project, reference: Reference) -> tuple[int, list[str]]:
    """The same generation again, killed twice."""
    return make_lineage(project, reference, iter((BEFORE_SHARD, BEFORE_TAG)), random.Random(1), first=1)


def test_a_generation_that_is_killed_twice_has_the_same_digests(killed: tuple[int, list[str]]) -> None:
    assert killed == (2, [])


def test_its_costs_are_noted_and_pushed_and_shown(project: Project, killed: tuple[int, list[str]]) -> None:
    costs = read_note(project.home, "tiny", "tiny/gen-0001")
    assert costs is not None and set(costs.stages) == {"selfplay", "replay", "training", "gating", "verification"}
    assert all(stage.cpu_seconds > 0.0 for stage in costs.stages.values())
    total = costs.total()
    assert (total.games, total.shards, total.shards_without_receipt) == (40, 4, 0) and total.evaluations > 1000
    shown = zero(project.home, "status", "tiny", ZERO_HOME=str(project.home)).stdout
    assert "costs" in shown and f"{total.evaluations:,}" in shown


def test_another_result_is_reported(project: Project, reference: Reference, killed: tuple[int, list[str]]) -> None:
    store = project.home / ".zero/store"
    lost, altered, *_ = sorted(store.glob("shards/??/*.parquet"))
    receipt = next(store.glob(f"receipts/??/{altered.name.split('.')[0]}.*.json"))
    lost.unlink()
    altered.write_bytes(b"no games")
    receipt.with_name(receipt.name.replace(".json", "2.json")).write_bytes(receipt.read_bytes())
    (store / "quarantine").mkdir()
    (store / "quarantine/a shard").touch()
    Path(project.workspace / ".git/index.lock").touch()
    Path(project.workspace / ".git/refs/heads/broken").write_text("no commit\n")
    expected = digests(project) | reference.digests[1] | {"refs/tags/tiny/gen-0001": "0" * 40}
    said = violations(project, expected)
    assert f"store/shards/{lost.parent.name}/{lost.name} is missing" in said
    assert f"store/shards/{altered.parent.name}/{altered.name} differs" in said
    assert "refs/tags/tiny/gen-0001 differs" in said
    assert f"shard {altered.name[:12]} was finished, and was played again" in said
    assert "stale: .zero/workspaces/tiny/.git/index.lock" in said
    assert "quarantined: a shard" in said and said[-1].startswith("git fsck in tiny:")
