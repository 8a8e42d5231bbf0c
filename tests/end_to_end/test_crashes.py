"""A generation that is killed twice equals an uninterrupted one bit for bit. `make drill` is the full test."""

from pathlib import Path

import pytest

from infra.drill.__main__ import smoke_params
from infra.drill.compare import damage, differences, outcome_of, played_again
from infra.drill.log import EQUAL, Line
from infra.drill.moments import generation_moments
from infra.drill.project import Place, put_back, zero
from infra.drill.rounds import BASE, Reference, drill_generation, make_reference
from zero.record.costs import read_note

MOMENTS = (
    "selfplay: mid-shard, the worker alone",
    "advance: before git tag",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("drill"))


@pytest.fixture(scope="module")
def reference(place: Place) -> Reference:
    """One uninterrupted generation."""
    return make_reference(place, smoke_params(shard_fraction=0.0), 1, print)


@pytest.fixture(scope="module")
def killed(place: Place, reference: Reference) -> tuple[str, list[Line]]:
    """The same generation again, killed twice."""
    put_back(place, BASE)
    moments = [moment for moment in generation_moments(str(place.home), 1) if moment.name in MOMENTS]
    return drill_generation(place, reference, 1, "a test", moments, 0, print)


def test_a_generation_that_is_killed_twice_has_the_same_commit_objects_and_shards(
    killed: tuple[str, list[Line]],
) -> None:
    result, lines = killed
    assert sorted(line.moment for line in lines) == sorted(MOMENTS)
    assert result == EQUAL


def test_its_costs_are_noted_and_pushed_and_shown(place: Place, killed: tuple[str, list[Line]]) -> None:
    costs = read_note(place.home, "tiny", "tiny/gen-0001")
    assert costs is not None and set(costs.stages) == {"selfplay", "replay", "training", "gating", "verification"}
    assert all(stage.cpu_seconds > 0.0 for stage in costs.stages.values())
    total = costs.total()
    assert (total.games, total.shards, total.shards_without_receipt) == (40, 4, 0) and total.evaluations > 1000
    shown = zero(place, "status", "tiny")
    assert "costs" in shown and f"{total.evaluations:,}" in shown


def test_another_result_is_reported(place: Place, reference: Reference, killed: tuple[str, list[Line]]) -> None:
    store = place.home / ".zero/store"
    lost, altered, *_ = sorted(store.glob("shards/??/*.parquet"))
    receipt = next(store.glob(f"receipts/??/{altered.name.split('.')[0]}.*.json"))
    lost.unlink()
    altered.write_bytes(b"no games")
    again = receipt.with_name(receipt.name.replace(".json", "2.json"))
    again.write_bytes(receipt.read_bytes())
    found = outcome_of(place)
    said = differences(reference.outcomes[1], found._replace(tags=found.tags | {"tiny/gen-0001": "0" * 40}))
    assert f"store: {lost.name} is lost" in said and f"store: {altered.name} was altered" in said
    assert any(line.startswith("tiny/gen-0001 is 000") for line in said)
    assert played_again(place) == [f"shard {altered.name[:12]} was finished, and was played again: {again.name}"]
    aside = store / "quarantine"
    aside.mkdir()
    (aside / "a shard").touch()
    Path(place.workspace / ".git/refs/heads/broken").write_text("no commit\n")
    assert len(damage(place)) == 2
