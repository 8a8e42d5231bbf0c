"""Duplicate games: copies are found in any form."""

import numpy as np
import pytest

from tests.made_games import CHAMPION, made_records
from tests.stages.played import PlayedShard, play_shards, smoke_params
from zero.config.params import PlayParams, SearchParams
from zero.data.records import GameColumns, game_record, read_records, write_records
from zero.data.validation import COMPARED_MOVES, Opening, openings_of, stream_violations
from zero.games.rules import go_rules
from zero.storage.manifests import ExpectedProperties, GameRecord

RULES = go_rules(5, 5, komi=0.5)
EXPECTED = ExpectedProperties(
    kind="selfplay",
    weights=(CHAMPION,),
    seed=1,
    generation=3,
    first_game=0,
    num_games=40,
    search=SearchParams(),
    play=PlayParams(num_simulations=48, temperature_moves=4, calibration_fraction=0.0),
    resign_threshold=-1.0,
)


def with_play(changes: dict[str, object]) -> ExpectedProperties:
    return EXPECTED.model_copy(update={"play": EXPECTED.play.model_copy(update=changes)})


def columns_of(records: list[GameRecord]) -> GameColumns:
    return read_records(write_records(records), "games")


def openings(records: list[GameRecord], generation: int = EXPECTED.generation) -> list[Opening]:
    return openings_of(columns_of(records), generation)


@pytest.fixture(scope="module")
def records() -> list[GameRecord]:
    """Long games."""
    return [record for record in made_records(RULES, 80, seed=7) if len(record.actions) > COMPARED_MOVES][:40]


def test_different_games_are_no_repeats(records):
    found = openings(records)
    assert stream_violations(found, [], EXPECTED) == []
    assert len({opening.moves for opening in found}) == 40


def test_a_game_recorded_twice_under_two_numbers_is_caught(records):
    (violation,) = stream_violations(openings([*records, records[3]._replace(game=99)]), [], EXPECTED)
    assert (violation.clause, violation.game) == ("streams", 99)
    assert f"those of game {records[3].game} of generation 3" in violation.text


def test_a_game_of_an_earlier_generation_is_caught(records):
    old = openings(records, 2)
    (violation,) = stream_violations(openings([records[5]._replace(game=0)]), old, EXPECTED)
    assert f"game {records[5].game} of generation 2" in violation.text


def test_a_copy_with_another_end_is_caught(records):
    """One game of the pair was resigned, as with another threshold."""
    whole = records[0]
    per_move = ("actions", "visit_counts", "root_values", "best_values")
    cut = whole._replace(game=70, **{name: getattr(whole, name)[: COMPARED_MOVES + 1] for name in per_move})
    assert len(stream_violations(openings([whole, cut]), [], EXPECTED)) == 1


def test_equal_moves_with_other_values_are_another_stream(records):
    other = records[0]._replace(game=70, root_values=records[0].root_values * np.float32(0.99))
    assert stream_violations(openings([records[0], other]), [], EXPECTED) == []


def test_values_of_nothing_but_ended_games_tell_no_streams_apart(records):
    flat = records[0]._replace(root_values=np.sign(records[0].root_values))
    assert stream_violations(openings([flat, flat._replace(game=70)]), [], EXPECTED) == []


@pytest.mark.parametrize(
    "expected",
    [
        EXPECTED.model_copy(update={"search": SearchParams(random_symmetry=False)}),
        with_play({"dirichlet_fraction": 0.0}),
    ],
    ids=["no symmetries", "no noise"],
)
def test_equal_games_without_randomness_are_no_violation(records, expected):
    twice = openings([records[0], records[0]._replace(game=70)])
    assert stream_violations(twice, [], expected) == []


def test_the_shards_of_a_real_stage_are_no_repeats_and_a_copied_shard_is(tmp_path):
    shards: list[PlayedShard] = play_shards(tmp_path, smoke_params(), "selfplay")
    expected = shards[0].spec
    first, second = (openings_of(shard.games, 1) for shard in shards)
    assert stream_violations([*first, *second], [], expected) == []
    copied = [game_record(shards[0].games, index)._replace(game=12 + index) for index in range(12)]
    violations = stream_violations([*first, *openings(copied, 1)], [], expected)
    assert len(violations) >= 3  # the long games of the shard
    assert {violation.clause for violation in violations} == {"streams"}
