"""Training samples against a slow twin that replays games by the oracle's rules."""

import itertools
import time

import numpy as np
import pytest

from tests.made_games import made_records
from tests.oracle.bitboards import unpack
from tests.oracle.games import oracle_of
from tests.oracle.planes import planes
from zero.data.records import read_records, write_records
from zero.data.samples import PHASE, SampleBatch, SampleGames, Sampler, _draw_move, sample_games
from zero.errors import StorageError
from zero.games.position import Rules
from zero.games.rules import go_rules, gomoku_rules
from zero.search.streams import next_below, next_float, stream_of
from zero.storage.manifests import GameRecord

SEED, GENERATION = 7, 3
ALL_RULES = [go_rules(4, 4, 0.5), go_rules(3, 5, 0.5, allow_suicide=True), gomoku_rules(4, 4, 3)]


def games_of(records: list[GameRecord]) -> SampleGames:
    return sample_games(read_records(write_records(records), "shard"))


def sampler_of(
    rules: Rules,
    records: list[GameRecord],
    batch_size: int,
    random_symmetry: bool = True,
    num_threads: int = 1,
    search_value_weight: float = 0.0,
) -> Sampler:
    choices = (random_symmetry, num_threads, search_value_weight)
    return Sampler(rules, games_of(records), SEED, GENERATION, batch_size, *choices)


def with_fast_moves(records: list[GameRecord], seed: int = 0) -> list[GameRecord]:
    """Two of three moves, and all of the second game, have no full search."""
    draws = np.random.default_rng(seed)
    result = []
    for game, record in enumerate(records):
        fast = draws.random(len(record.actions)) < (1.0 if game == 1 else 0.67)
        result.append(record._replace(visit_counts=np.where(fast[:, None], 0, record.visit_counts).astype(np.uint16)))
    return result


def resigned(record: GameRecord) -> GameRecord:
    return record._replace(ownership=np.zeros(0, np.int8), margin=0.0, end="resignation")


def copied(batch: SampleBatch) -> SampleBatch:
    return SampleBatch(*(array.copy() for array in batch))


def draws_of(records: list[GameRecord], step: int, batch_size: int, num_symmetries: int) -> list[tuple[int, int, int]]:
    """Game, move and symmetry of each sample of a step."""
    places = [
        (game, move)
        for game, record in enumerate(records)
        for move in range(len(record.actions))
        if record.visit_counts[move].any()
    ]
    stream = stream_of(SEED, GENERATION, PHASE, step)
    draws = []
    for _ in range(batch_size):
        game, move = places[next_below(stream, len(places))]
        draws.append((game, move, next_below(stream, num_symmetries)))
    return draws


@pytest.mark.parametrize("rules", ALL_RULES, ids=["go 4x4", "go 3x5 with suicide", "gomoku"])
@pytest.mark.parametrize("random_symmetry", [True, False])
@pytest.mark.parametrize("has_fast_moves", [False, True], ids=["all moves", "some moves"])
def test_samples_are_their_slow_twins(rules, random_symmetry, has_fast_moves):
    records = made_records(rules, 4)
    records[3] = resigned(records[3])
    if has_fast_moves:
        records = with_fast_moves(records)
    num_symmetries = len(rules.symmetries) if random_symmetry else 1
    with sampler_of(rules, records, 24, random_symmetry) as sampler:
        batches = [copied(batch) for batch in sampler.batches(first_step=5, num_steps=2)]
    symmetries_seen, games_seen = set(), set()
    for step, batch in enumerate(batches, start=5):
        for b, (game, move, symmetry) in enumerate(draws_of(records, step, 24, num_symmetries)):
            twin = oracle_of(rules)
            for action in records[game].actions[:move]:
                twin.play(int(action))
            drawn = planes(rules.rows, rules.columns, twin.boards, twin.to_play)
            counts = records[game].visit_counts[move].astype(np.float64)
            target = rules.symmetries[symmetry]
            np.testing.assert_array_equal(
                unpack(batch.planes[b], rules.num_points)[:, target[: rules.num_points]], drawn
            )
            np.testing.assert_allclose(batch.policy_target[b][target], counts / counts.sum(), rtol=1e-6)
            assert batch.value_target[b] == records[game].outcome * twin.to_play
            owners = records[game].ownership
            assert batch.played_out[b] == (len(owners) > 0)
            assert batch.score_target[b] == records[game].margin * twin.to_play
            for point in range(rules.num_points):
                owner = owners[point] * twin.to_play if len(owners) else 0
                assert batch.ownership_target[b, target[point]] == owner
            symmetries_seen.add(symmetry)
            games_seen.add(game)
    assert len(symmetries_seen) == num_symmetries
    assert games_seen == ({0, 2, 3} if has_fast_moves else {0, 1, 2, 3})


@pytest.mark.parametrize("weight", [0.25, 1.0])
def test_a_value_may_be_in_part_what_the_search_said(weight):
    rules = ALL_RULES[0]
    records = made_records(rules, 3)
    with sampler_of(rules, records, 32, search_value_weight=weight) as sampler:
        (batch,) = map(copied, sampler.batches(2, 1))
    for b, (game, move, _) in enumerate(draws_of(records, 2, 32, len(rules.symmetries))):
        outcome = records[game].outcome * (1 if batch.planes[b, 16, 0] else -1)
        expected = (1 - weight) * outcome + weight * float(records[game].best_values[move])
        assert batch.value_target[b] == pytest.approx(expected, abs=1e-6)


def weighted(records: list[GameRecord], seed: int = 0) -> list[GameRecord]:
    draws = np.random.default_rng(seed)
    return [
        record._replace(
            sample_weights=(draws.random(len(record.actions)) * record.visit_counts.any(axis=1)).astype(np.float32)
        )
        for record in records
    ]


@pytest.mark.parametrize("has_fast_moves", [False, True], ids=["all moves", "some moves"])
def test_moves_are_drawn_in_proportion_to_their_weights(has_fast_moves):
    rules = ALL_RULES[0]
    records = made_records(rules, 4)
    records = weighted(with_fast_moves(records) if has_fast_moves else records)
    places = [(game, move) for game, record in enumerate(records) for move in range(len(record.actions))]
    weights = [float(records[game].sample_weights[move]) for game, move in places]
    games = games_of(records)
    stream = stream_of(SEED, GENERATION, PHASE, 1)
    twin = stream.copy()
    drawn = np.zeros(len(places))
    for _ in range(20_000):
        index = _draw_move(games, stream)
        left = next_float(twin) * sum(weights)
        expected = next(i for i, end in enumerate(itertools.accumulate(weights)) if end > left)
        assert index == expected
        drawn[index] += 1
    shares = np.array(weights) / sum(weights)
    assert (drawn[shares == 0] == 0).all() and (shares == 0).any() == has_fast_moves
    np.testing.assert_allclose(drawn / drawn.sum(), shares, atol=0.01)


def test_games_whose_weights_are_all_0_are_rejected():
    records = [
        record._replace(sample_weights=np.zeros(len(record.actions), np.float32))
        for record in made_records(ALL_RULES[0], 2)
    ]
    with pytest.raises(StorageError, match="no policy target"):
        games_of(records)


def test_equal_weights_leave_the_draws_as_they_are():
    records = made_records(ALL_RULES[0], 2)
    assert len(games_of(records).cumulative_weights) == 0
    assert len(games_of(weighted(records)).cumulative_weights) == sum(len(record.actions) for record in records)


def test_where_every_move_is_a_target_there_is_no_list_of_them():
    records = made_records(ALL_RULES[0], 2)
    assert len(games_of(records).targets) == 0
    fast = with_fast_moves(records)
    assert games_of(fast).targets.tolist() == [
        move for move, counts in enumerate(np.concatenate([record.visit_counts for record in fast])) if counts.any()
    ]


def test_games_without_a_single_target_are_refused():
    records = [
        record._replace(visit_counts=np.zeros_like(record.visit_counts)) for record in made_records(ALL_RULES[0], 2)
    ]
    with pytest.raises(StorageError, match=r"none of the \d+ moves.*raise selfplay\.full_search_fraction"):
        games_of(records)


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_a_batch_depends_on_its_step_alone(num_threads):
    rules = ALL_RULES[0]
    records = made_records(rules, 3)
    with sampler_of(rules, records, 8) as sampler:
        straight = [copied(batch) for batch in sampler.batches(0, 6)]
    with sampler_of(rules, records, 8, num_threads=num_threads) as sampler:
        later = [copied(batch) for batch in sampler.batches(3, 3)]
    assert len(straight) == 6 and len(later) == 3
    for one, other in zip(straight[3:], later, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert not np.array_equal(straight[0].planes, straight[1].planes)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_batch_in_use_is_not_overwritten(num_threads):
    rules = ALL_RULES[0]
    with sampler_of(rules, made_records(rules, 3), 8, num_threads=num_threads) as sampler:
        for batch in sampler.batches(0, 9):
            before = copied(batch)
            for _ in range(num_threads):  # those ahead have been made
                sampler._threads.submit(time.sleep, 0.02).result()
            assert all(np.array_equal(a, b) for a, b in zip(batch, before, strict=True))


def test_no_batch_is_asked_for_no_steps():
    rules = ALL_RULES[0]
    with sampler_of(rules, made_records(rules, 1), 8) as sampler:
        assert list(sampler.batches(4, 0)) == []
