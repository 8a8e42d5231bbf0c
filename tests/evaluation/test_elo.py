"""Ratings: recovered from simulated games, independent of sides and order, finite, separate for each group. Fit."""

import math
import random
from itertools import combinations

import numpy as np
import pytest

from tests.oracle import bradley_terry as oracle
from zero.evaluation.elo import (
    ELO_OF_LOGIT,
    PRIOR_GAMES,
    Fit,
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


def fit_of(group: Group) -> Fit:
    assert group.fit is not None
    return group.fit


def some_scores() -> list[Score]:
    players, pairs = chain(6, 3)
    truth = {player: 150.0 * k for k, player in enumerate(players)}
    return played(truth, pairs, 40, np.random.default_rng(5))


def table_of(scores: list[Score]) -> oracle.Table:
    return {(s.first, s.second): (s.points, s.games) for s in scores}


def round_robin(num: int, step: float) -> tuple[dict[str, float], list[tuple[str, str]]]:
    """Players with equal distances, each against each."""
    truth = {f"p{k:02d}": step * k for k in range(num)}
    return truth, [*combinations(truth, 2)]


def cycle(games: float) -> list[Score]:
    """Paper beats rock, scissors beat paper, rock beats scissors."""
    shares = (("paper", "rock", 0.8), ("paper", "scissors", 0.2), ("rock", "scissors", 0.8))
    return [Score(first, second, share * games, games) for first, second, share in shares]


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
    table = oracle.with_prior(table_of(scores), PRIOR_GAMES)
    odds = oracle.log_odds(table, "gen-02")
    free, information_matrix = oracle.information_matrix(table, odds, "gen-02")
    variance = dict(zip(free, np.diag(np.linalg.inv(information_matrix)), strict=True)) | {"gen-02": 0.0}
    for rating in group.ratings:
        assert rating.elo == pytest.approx(1000 + ELO_OF_LOGIT * odds[rating.player], abs=1e-5)
        widening = math.sqrt(max(1, oracle.goodness(table_of(scores), PRIOR_GAMES, "gen-02").ratio))
        half = 1.959964 * ELO_OF_LOGIT * math.sqrt(variance[rating.player]) * widening
        assert (rating.low, rating.high) == pytest.approx((rating.elo - half, rating.elo + half), abs=0.01)


def test_the_order_of_a_pair_does_not_change_the_rating():
    scores = some_scores()
    turned = [Score(s.second, s.first, s.games - s.points, s.games) for s in scores]
    assert [r[:2] for r in one_group(scores).ratings] == [r[:2] for r in one_group(turned).ratings]


def same(ones: tuple[Group, ...], others: tuple[Group, ...]) -> bool:
    return all(
        one.reference == other.reference
        and one.ratings == other.ratings
        and one.fit == other.fit
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
        table = oracle.with_prior(table_of(scores), PRIOR_GAMES)
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


def with_unlike_scores() -> list[Score]:
    """Draws, one or many games, a pair without a loss, and a strong player that lost to a weak one."""
    won = [("a", "b", 7.5, 10), ("a", "c", 12, 12), ("b", "c", 21.5, 30), ("c", "d", 3, 4), ("a", "d", 0, 1)]
    return [*(Score(*each) for each in won), Score("b", "d", 5, 9), Score("d", "e", 100, 160), Score("a", "e", 8, 20)]


@pytest.mark.parametrize("scores", [some_scores(), with_unlike_scores(), [*some_scores(), *cycle(40)]])
def test_the_fit_is_that_of_the_slow_twin(scores):
    for group in rate(scores, {}):
        own = {pair: score for pair, score in table_of(scores).items() if pair[0] in {r.player for r in group.ratings}}
        expected = oracle.goodness(own, PRIOR_GAMES, group.reference)
        fit = fit_of(group)
        assert (fit.pairs, fit.ratings) == (len(own), len(group.ratings) - 1)
        assert fit.deviance == pytest.approx(expected.deviance, rel=1e-4)
        assert fit.ratio == pytest.approx(expected.ratio, rel=1e-4)
        assert fit.pair == max(sorted(own), key=lambda pair: round(expected.residuals[pair], 3))
        points, games = own[fit.pair]
        one, other = (group.rating(player).elo for player in fit.pair)
        assert fit.found == points / games and fit.expected == pytest.approx(expected_score(one, other))


@pytest.mark.parametrize(("step", "games"), [(40, 4), (40, 60), (300, 20), (300, 60)])
def test_transitive_players_differ_from_the_model_as_much_as_chance(step, games):
    """Also where most pairs are lopsided, and the deviance is far below the degrees of freedom."""
    truth, pairs = round_robin(8, step)
    draws = np.random.default_rng(3)
    ratios = [fit_of(one_group(played(truth, pairs, games, draws))).ratio for _ in range(150)]
    assert 0.85 < np.mean(ratios) < 1.15


def test_players_that_are_not_transitive_have_intervals_of_the_right_width():
    """The score of each pair has a part of its own; without the widening, 60 % of the intervals contain the truth."""
    truth, pairs = round_robin(13, 40)
    draws = np.random.default_rng(4)
    inside, narrow = [], []
    for _ in range(30):
        scores = []
        for pair in pairs:
            moved = truth | {pair[0]: truth[pair[0]] + 100 * draws.standard_normal()}
            scores += played(moved, [pair], 60, draws)
        group = one_group(scores, p06=truth["p06"])
        for rating in group.ratings:
            if rating.player != "p06":
                error = abs(rating.elo - truth[rating.player])
                inside.append(error <= (rating.high - rating.low) / 2)
                narrow.append(error <= (rating.high - rating.low) / 2 / fit_of(group).widening)
    assert np.mean(inside) > 0.88 and np.mean(narrow) < 0.75


def test_a_cycle_is_named_and_widens_the_intervals():
    names = ("paper", "rock", "scissors")
    truth = round_robin(6, 100)[0] | dict.fromkeys(names, 250.0)
    pairs = [pair for pair in combinations(truth, 2) if not set(pair) < {*names}]
    transitive = [Score(a, b, 60 * expected_score(truth[a], truth[b]), 60) for a, b in pairs]
    before, after = one_group(transitive), one_group([*transitive, *cycle(60)])
    assert fit_of(before).widening == 1 and fit_of(after).ratio > 1.5
    fit = fit_of(after)
    assert set(fit.pair) < {*names} and abs(fit.found - fit.expected) > 0.25
    for group in (before, after):
        for rating, variance in zip(group.ratings, np.diag(group.covariance), strict=True):
            half = 1.959964 * ELO_OF_LOGIT * math.sqrt(variance * max(1, fit_of(group).ratio))
            assert (rating.high - rating.low) / 2 == pytest.approx(half, rel=1e-6)


def test_three_players_in_a_cycle():
    fit = fit_of(one_group(cycle(20)))
    assert (fit.pairs, fit.ratings) == (3, 2) and fit.expected == pytest.approx(0.5)
    assert fit.deviance == pytest.approx(3 * 2 * (16 * math.log(1.6) + 4 * math.log(0.4)))
    assert (fit.pair, fit.found) == (("paper", "rock"), 0.8), "of equal residuals the first"


def test_without_degrees_of_freedom_there_is_no_fit():
    assert one_group([Score("a", "b", 3, 4)]).fit is None
    assert one_group([Score("a", "b", 3, 4), Score("b", "c", 4, 4), Score("c", "d", 1, 4)]).fit is None


@pytest.mark.parametrize("games", [1, 20, 400, 20_000])
def test_players_that_win_all_games_fit(games):
    """Although the prior adds draws that the model does not expect."""
    fit = fit_of(one_group([Score(a, b, 0, games) for a, b in round_robin(6, 0)[1]]))
    assert fit.ratio < 0.1 and fit.widening == 1


def test_an_undefeated_player_with_one_opponent_is_no_misfit():
    fit = fit_of(one_group([*some_scores(), Score("best", "gen-05", 400, 400)]))
    without = fit_of(one_group(some_scores()))
    assert fit.pair == without.pair and fit.deviance == pytest.approx(without.deviance, abs=1e-3)
    assert fit.pairs - fit.ratings == without.pairs - without.ratings
