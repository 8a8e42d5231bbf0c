"""False positives of resignation, counted by hand and by a slow oracle, and the threshold chosen from them."""

import numpy as np
import pytest

from tests.made_games import plain_record
from zero.data.records import GameColumns, read_records, write_records
from zero.stages.resignation import (
    FEWEST_GAMES,
    HIGHEST_THRESHOLD,
    calibrate,
    measure,
    next_threshold,
    resignation_traces,
)
from zero.storage.manifests import NO_RESIGNATION, GameRecord


def record(game: int, root_values, outcome: int, best_values=None, never_resigns: bool = True) -> GameRecord:
    resigned = not never_resigns and min(root_values) < -0.9
    return plain_record(
        [0] * len(root_values),
        root_values=np.array(root_values, np.float32),
        best_values=np.array(root_values if best_values is None else best_values, np.float32),
        outcome=outcome,
        end="resignation" if resigned else "passes",
        never_resigns=never_resigns,
        game=game,
    )


def columns(*records: GameRecord) -> GameColumns:
    return read_records(write_records(records), "games")


def numbers(games: GameColumns, threshold: float) -> tuple[int, int, int]:
    found = measure(resignation_traces(games), threshold)
    return found.num_games, found.would_resign, found.would_have_won


def made_games(num_games: int, seed: int, outcomes: tuple[int, ...] = (-1, 1)) -> GameColumns:
    draws = np.random.default_rng(seed)
    records = []
    for game in range(num_games):
        outcome = int(draws.choice(outcomes))
        moves = int(draws.integers(3, 30))
        mover = np.where(np.arange(moves) % 2 == 0, 1, -1)
        values = np.clip(outcome * mover * np.linspace(0, 1, moves) + draws.normal(0, 0.45, moves), -1, 1)
        best = np.clip(values + draws.uniform(-0.05, 0.1, moves), -1, 1)
        records.append(record(game, values, outcome, best, bool(draws.integers(2))))
    return columns(*records)


def slow_count(games: GameColumns, threshold: float) -> tuple[int, int, int]:
    """Counts game by game and move by move."""
    num_games = would_resign = would_have_won = 0
    for game in range(games.num_games):
        if not games.never_resigns[game]:
            continue
        num_games += 1
        first, last = games.move_offsets[game], games.move_offsets[game + 1]
        for move in range(2, last - first):
            here = first + move
            if games.root_values[here] < threshold and games.best_values[here] < threshold:
                colour = 1 if move % 2 == 0 else -1
                would_resign += 1
                would_have_won += games.outcome[game] * colour >= 0
                break
    return num_games, would_resign, would_have_won


@pytest.mark.parametrize("threshold", [-1.0, -0.97, -0.9, -0.75, -0.5])
def test_the_count_equals_the_slow_count(threshold):
    games = made_games(400, seed=3, outcomes=(-1, 0, 1))
    assert numbers(games, threshold) == slow_count(games, threshold)
    used = calibrate(games, threshold, 0.05).used
    assert (used.threshold, used.would_resign) == (threshold, slow_count(games, threshold)[1])


@pytest.mark.parametrize("target", [0.02, 0.05, 0.2])
def test_the_next_threshold_is_the_highest_within_the_target(target):
    traces = resignation_traces(made_games(600, seed=4))
    found = next_threshold(traces, target)
    assert found.false_positive_rate <= target and found.would_resign >= FEWEST_GAMES
    assert found.interval[0] <= found.false_positive_rate <= found.interval[1]
    higher = [
        measure(traces, round(0.01 * step, 6))
        for step in range(round(100 * found.threshold) + 1, round(100 * HIGHEST_THRESHOLD) + 1)
    ]
    assert all(other.false_positive_rate > target for other in higher)
    assert len(higher) == round(100 * (HIGHEST_THRESHOLD - found.threshold))


def test_with_too_few_games_no_one_resigns():
    games = columns(*(record(game, [0, 0, -0.99], -1) for game in range(FEWEST_GAMES - 1)))
    assert next_threshold(resignation_traces(games), 0.05).threshold == NO_RESIGNATION
    games = columns(*(record(game, [0, 0, -0.99], -1) for game in range(FEWEST_GAMES)))
    assert next_threshold(resignation_traces(games), 0.05).threshold == HIGHEST_THRESHOLD


def test_without_calibration_games_no_one_resigns():
    games = columns(record(0, [0, 0, -0.99], -1, never_resigns=False))
    report = calibrate(games, -0.9, 0.05)
    assert report.following.threshold == NO_RESIGNATION
    assert (report.used.num_games, report.used.interval) == (0, (0.0, 1.0))
