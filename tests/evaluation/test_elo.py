"""Ratings: recovered from simulated games, independent of sides and order, finite, and separate for each group."""

import math
import random

import numpy as np
import pytest

from tests.oracle import bradley_terry as oracle
from zero.evaluation.elo import (
    ELO_OF_LOGIT,
    PRIOR_GAMES,
    Group,
    Score,
    expected_score,
    information,
    most_informative,
    rate,
)


def played(
    truth: dict[str, float], pairs: list[tuple[str, str]], games: int, draws: np.random.Generator
) -> list[Score]:
    """Simulated results of players with given ratings."""
    return [Score(a, b, float(draws.binomial(games, expected_score(truth[a], truth[b]))), games) for a, b in pairs]


def chain(num: int, reach: int = 2) -> tuple[list[str], list[tuple[str, str]]]:
    """Players of a ladder, in which each one plays the next ones."""
    players = [f"gen-{k:02d}" for k in range(num)]
    return players, [(a, b) for k, a in enumerate(players) for b in players[k + 1 : k + 1 + reach]]


def one_group(scores: list[Score], **references: float) -> Group:
    (group,) = rate(scores, references)
    return group


def some_scores() -> list[Score]:
    players, pairs = chain(6, 3)
    truth = {player: 150.0 * k for k, player in enumerate(players)}
    return played(truth, pairs, 40, np.random.default_rng(5))


def table_of(scores: list[Score]) -> oracle.Table:
    return oracle.with_prior({(s.first, s.second): (s.points, s.games) for s in scores}, PRIOR_GAMES)


def test_intervals_have_their_nominal_coverage():
    players, pairs = chain(10)
    truth = {player: 120.0 * k for k, player in enumerate(players)}
    draws = np.random.default_rng(1)
    inside = total = 0
    for _ in range(60):
        group = one_group(played(truth, pairs, 60, draws), **{players[0]: 0.0})
        for rating in group.ratings:
            if rating.player != players[0]:
                inside += rating.low <= truth[rating.player] <= rating.high
                total += 1
    assert 0.92 <= inside / total <= 0.98, f"{inside} of {total}"


def test_ratings_and_intervals_are_those_of_the_slow_twin():
    scores = some_scores()
    group = one_group(scores, **{"gen-02": 1000.0})
    table = table_of(scores)
    odds = oracle.log_odds(table, "gen-02")
    free, information_matrix = oracle.information_matrix(table, odds, "gen-02")
    variance = dict(zip(free, np.diag(np.linalg.inv(information_matrix)), strict=True)) | {"gen-02": 0.0}
    for rating in group.ratings:
        assert rating.elo == pytest.approx(1000 + ELO_OF_LOGIT * odds[rating.player], abs=1e-5)
        half = 1.959964 * ELO_OF_LOGIT * math.sqrt(variance[rating.player])
        assert (rating.low, rating.high) == pytest.approx((rating.elo - half, rating.elo + half), abs=0.01)


def test_the_order_of_a_pair_does_not_change_the_rating():
    scores = some_scores()
    turned = [Score(s.second, s.first, s.games - s.points, s.games) for s in scores]
    assert [r[:2] for r in one_group(scores).ratings] == [r[:2] for r in one_group(turned).ratings]


def same(ones: tuple[Group, ...], others: tuple[Group, ...]) -> bool:
    return all(
        one.reference == other.reference
        and one.ratings == other.ratings
        and np.array_equal(one.covariance, other.covariance)
        for one, other in zip(ones, others, strict=True)
    )


def test_the_order_of_results_does_not_change_a_bit():
    scores = [*some_scores(), *some_scores(), Score("x", "y", 0.3, 1.0), Score("x", "y", 0.1, 1.0)]
    expected = rate(scores, {})
    for seed in range(5):
        random.Random(seed).shuffle(scores)
        assert same(rate(scores, {}), expected)


def test_results_of_a_pair_add_up():
    split = [Score("a", "b", 3, 4), Score("b", "a", 2, 6), Score("a", "b", 0, 0)]
    assert same(rate(split, {}), rate([Score("a", "b", 7, 10)], {}))


@pytest.mark.parametrize("games", [1, 20, 400])
def test_a_player_that_won_everything_has_a_finite_rating(games):
    rating = one_group([Score("best", "b", games, games)], b=0.0).rating("best")
    expected = ELO_OF_LOGIT * math.log((games + PRIOR_GAMES / 2) / (PRIOR_GAMES / 2))
    assert rating.elo == pytest.approx(expected, abs=1e-4)
    assert rating.low < rating.elo < rating.high < math.inf


def test_players_that_are_not_connected_are_in_different_groups():
    groups = rate([Score("a", "b", 3, 4), Score("b", "c", 3, 4), Score("x", "y", 2, 4)], {"c": 500.0})
    assert [[rating.player for rating in group.ratings] for group in groups] == [["a", "b", "c"], ["x", "y"]]
    assert [(group.reference, group.rating(group.reference).elo) for group in groups] == [("c", 500.0), ("x", 0.0)]
    assert information(groups, ("a", "x")) == math.inf


def test_the_first_reference_of_a_group_sets_the_scale():
    group = one_group(some_scores(), absent=7.0, **{"gen-03": 1800.0, "gen-00": 0.0})
    held = group.rating("gen-03")
    assert (held.elo, held.low, held.high) == (1800.0, 1800.0, 1800.0)
    assert group.rating("gen-00").elo != 0.0


def test_games_and_opponents_are_counted():
    group = one_group([Score("a", "b", 3, 4), Score("b", "c", 1, 6), Score("a", "b", 0, 2)])
    assert [(r.player, r.games, r.opponents) for r in group.ratings] == [("a", 6, 1), ("b", 12, 2), ("c", 6, 1)]


def test_without_results_there_are_no_ratings():
    assert rate([], {"a": 1.0}) == ()


def test_the_most_informative_pair_equals_a_brute_force_search():
    players, pairs = chain(5, 2)
    truth = {player: 200.0 * k for k, player in enumerate(players)}
    chosen = set()
    for seed in range(4):
        draws = np.random.default_rng(seed)
        unlike = [int(games) for games in draws.integers(4, 60, len(pairs))]
        scores = [s for pair, n in zip(pairs, unlike, strict=True) for s in played(truth, [pair], n, draws)]
        group = one_group(scores, **{players[0]: 0.0})
        table = table_of(scores)
        odds = oracle.log_odds(table, players[0])
        candidates = [(a, b) for k, a in enumerate(players) for b in players[k + 1 :]]
        gains = [oracle.gain(table, odds, players[0], *pair) for pair in candidates]
        chosen.add(most_informative([group], candidates))
        assert most_informative([group], candidates) == candidates[int(np.argmax(gains))]
        assert [math.log1p(information([group], pair)) for pair in candidates] == pytest.approx(gains, rel=1e-3)
    assert len(chosen) > 1


def test_of_equally_informative_pairs_the_first_is_chosen():
    group = one_group([Score("a", "b", 2, 4), Score("b", "c", 2, 4)])
    assert most_informative([group], [("c", "b"), ("a", "b")]) == ("c", "b")
    groups = rate([Score("a", "b", 2, 4), Score("x", "y", 2, 4)], {})
    assert most_informative(groups, [("a", "b"), ("a", "y"), ("b", "new")]) == ("a", "y")
