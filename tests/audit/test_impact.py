"""Impact on a lineage that continues after a rollback, and on another that branched from it."""

from pathlib import Path

import pytest

from tests.audit.record import Record, tag_of
from tests.end_to_end.lineages import Lineage
from tests.end_to_end.project import zero
from tests.made_generations import made_stage_costs
from zero.audit.impact import impact, only_match
from zero.errors import ZeroError
from zero.record.costs import GenerationCosts, write_note
from zero.storage.files import sha256_bytes
from zero.storage.manifests import GameSet

KID = "kid/gen-{:04d}"
BOTH_SECOND = {"tiny/gen-0002": "directly", KID.format(2): "directly"}
"""Generations with equal games and networks: what affects one affects the other, and no later generation."""
WORKER = "gpu-7:4711"


def affected(home: Path, asked: str) -> dict[str, str]:
    """How each generation is affected, by tag."""
    return {use.tag: use.how for use in impact(home, asked).uses}


@pytest.fixture(scope="module")
def made(gone_on: Lineage) -> Record:
    """Tiny: 0, 1, 2, 3 (rolled back to 1), 4. Kid: 1 (branched from it), and a 2 that came out as tiny's did.

    A window holds the games of one generation and a half.
    """
    return Record(gone_on.home)


def shard(record: Record, number: int, out: str, index: int) -> str:
    """SHA-256 of a shard."""
    games = GameSet.model_validate_json(record.cached(number, out, "manifest.json").read_bytes())
    return games.shards[index].file.sha256


def test_shard_affects_what_was_trained_on_it_and_all_descendants(made: Record) -> None:
    directly, by_descent = "directly", "by descent"
    assert affected(made.home, shard(made, 1, "data/games", 0)) == {
        tag_of(1): directly,
        tag_of(2): by_descent,  # it has left the window
        tag_of(3): directly,  # the window is restored that has it
        tag_of(4): by_descent,
        KID.format(1): directly,
        KID.format(2): by_descent,
    }


def test_shard_in_a_later_window_affects_that_generation_directly(made: Record) -> None:
    found = impact(made.home, shard(made, 1, "data/games", 1)[:7])
    uses = {use.tag: use for use in found.uses}
    assert uses[tag_of(2)].how == "directly"
    assert uses[tag_of(2)].reasons[0] == "uses data/window/gen-0001-shard-0001.parquet"
    assert found.what == "data/games/shard-0001.parquet of tiny/gen-0001"


def test_network_that_was_rolled_back_affects_no_later_generation(made: Record) -> None:
    weights = made.cached(2, "models/challenger", "weights.safetensors").read_bytes()
    assert affected(made.home, sha256_bytes(weights)) == BOTH_SECOND


def test_champion_affects_the_games_it_played_and_their_descendants(made: Record) -> None:
    weights = made.cached(1, "models/challenger", "weights.safetensors").read_bytes()
    found = affected(made.home, sha256_bytes(weights)[:12])
    assert found == dict.fromkeys(
        (tag_of(1), tag_of(2), tag_of(3), tag_of(4), KID.format(1), KID.format(2)), "directly"
    )


def test_match_affects_what_its_champion_did_later(made: Record) -> None:
    found = impact(made.home, shard(made, 1, "data/match", 0))
    uses = {use.tag: use for use in found.uses}
    assert {tag: use.how for tag, use in uses.items()} == {tag_of(1): "directly"} | dict.fromkeys(
        (tag_of(2), tag_of(3), tag_of(4), KID.format(1), KID.format(2)), "by descent"
    )
    assert "its champion was chosen by tiny/gen-0001" in uses[tag_of(2)].reasons


def test_match_of_a_generation_that_was_rolled_back_affects_nothing_later(made: Record) -> None:
    assert affected(made.home, shard(made, 2, "data/match", 1)) == BOTH_SECOND


@pytest.mark.parametrize("out", ["data/games", "data/window", "models/challenger", "data/match"])
def test_manifest_affects_what_descends_from_it(made: Record, out: str) -> None:
    manifest = sha256_bytes(made.cached(1, out, "manifest.json").read_bytes())
    assert affected(made.home, manifest) == {tag_of(1): "directly"} | dict.fromkeys(
        (tag_of(2), tag_of(3), tag_of(4), KID.format(1), KID.format(2)), "by descent"
    )


def test_result_of_a_match_affects_what_its_champion_did_later(made: Record) -> None:
    uses = {use.tag: use for use in impact(made.home, sha256_bytes(made.read(1, "metrics/gating.json"))).uses}
    assert len(uses) == 6 and "its champion was chosen by tiny/gen-0001" in uses[tag_of(4)].reasons


def test_shard_is_found_by_its_key_too(made: Record) -> None:
    games = GameSet.model_validate_json(made.cached(2, "data/games", "manifest.json").read_bytes())
    assert affected(made.home, games.shards[0].key) == BOTH_SECOND


def test_packages_affect_all_generations(made: Record) -> None:
    found = affected(made.home, sha256_bytes(made.read(1, "constraints.txt")))
    assert set(found.values()) == {"directly"} and len(found) == 7


def test_commit_affects_what_ran_on_it_or_on_a_descendant(made: Record) -> None:
    commit = made.commit(1)
    uses = {use.tag: use.reasons for use in impact(made.home, commit[:10]).uses}
    assert uses.keys() == {tag_of(1), tag_of(2), tag_of(3), tag_of(4), KID.format(1), KID.format(2)}
    assert uses[tag_of(1)] == ("is recorded by it",)
    assert any(reason.startswith("ran on its code") for reason in uses[tag_of(2)])


def test_commit_of_one_lineage_is_not_the_others(made: Record) -> None:
    assert set(affected(made.home, made.commit(2))) == {tag_of(2), tag_of(3), tag_of(4)}


def test_commands_show_it(made: Record) -> None:
    asked = shard(made, 2, "data/games", 0)
    shown = zero(made.home, "impact", asked).stdout.splitlines()
    assert shown[0] == f"{asked} is data/games/shard-0000.parquet of kid/gen-0002"
    assert shown[1].startswith("kid/gen-0002 directly: uses data/games/shard-0000.parquet, data/window/gen-0002")
    assert shown[2].startswith("tiny/gen-0002 directly: uses data/games/shard-0000.parquet")
    assert shown[3:] == ["2 generations affected"]
    assert '"how": "directly"' in zero(made.home, "impact", asked, "--json").stdout


def test_worker_is_found_by_the_notes_of_costs(record: Record) -> None:
    spent = made_stage_costs(games=24, shards=2, workers=("other:1", WORKER))
    costs = GenerationCosts(lineage="tiny", generation=2, stages={"selfplay": spent})
    write_note(record.workspace, record.commit(2), costs)
    for asked in (WORKER, "gpu-7"):
        found = impact(record.home, asked)
        assert [(use.tag, use.how) for use in found.uses] == [(tag_of(2), "directly")]
        assert "selfplay ran on it" in found.uses[0].reasons


def test_an_unknown_digest_is_reported(made: Record) -> None:
    with pytest.raises(ZeroError, match="no attestation of any lineage in"):
        impact(made.home, "f" * 64)


def test_ambiguous_digits_are_refused() -> None:
    known = {"abcdef12": "a shard", "abcdef13": "a network", "123": "other"}
    with pytest.raises(ZeroError, match=r"'abcdef1' is ambiguous: abcdef12 \(a shard\), abcdef13 \(a network\)"):
        only_match("abcdef1", known)
    assert only_match("abcdef12", known) == ("abcdef12", "a shard")
    assert only_match("fff", known) is None
