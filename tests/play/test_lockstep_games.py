"""Games in lock-step: equality with the slow twin, choice of moves, capacity of the trees."""

import numpy as np
import pytest

from tests.oracle import lockstep_games as twin
from tests.oracle.games import oracle_of
from tests.oracle.streams import Stream
from tests.play.shards import GENERATION, MATCH, SEED, SELFPLAY, phase_of, play_shard
from tests.search.evaluators import HashEvaluator, judge_of
from tests.search.kernel_search import size_of, view_of
from zero.games.rules import go_rules, gomoku_rules, othello_rules
from zero.play.lockstep_games import advance
from zero.play.moves import MAX_VISITS, draw_edge, most_visited, policy_surprise, write_sample_weights
from zero.play.slots import IDLE, new_batch, new_records, new_slots
from zero.search.evaluator import UniformEvaluator
from zero.search.streams import stream_of
from zero.search.tree import add_node, new_trees

RULES = {
    "go 3x3": go_rules(3, 3, 0.5),
    "go 3x4 with suicide": go_rules(3, 4, 0.0, allow_suicide=True),
    "go 5x5": go_rules(5, 5, 0.5)._replace(max_moves=8),
    "gomoku 4x5": gomoku_rules(4, 5, 3),
    "othello 4x4": othello_rules(4, 4),
}
KINDS = {
    "selfplay": SELFPLAY,
    "selfplay without reuse": SELFPLAY._replace(tree_reuse=False, random_symmetry=False),
    "selfplay, an untried move is worth its node": SELFPLAY._replace(fpu_from_parent=True),
    "selfplay, forced playouts": SELFPLAY._replace(forced_playouts=2.0),
    "selfplay, some moves fast": SELFPLAY._replace(full_search_fraction=0.4, fast_simulations=3, forced_playouts=0.7),
    "selfplay, samples weighted": SELFPLAY._replace(surprise_weight=0.5),
    "selfplay, samples of full searches weighted": SELFPLAY._replace(
        surprise_weight=0.8, full_search_fraction=0.4, fast_simulations=3, forced_playouts=2.0
    ),
    "selfplay, players resign": SELFPLAY._replace(resign_threshold=-0.05, calibration_fraction=0.3),
    "selfplay, evaluations remembered": SELFPLAY._replace(evaluation_cache=7),
    "match": MATCH,
    "match from an odd game": MATCH._replace(first_game=5, temperature_moves=4),
}
NUM_GAMES = 2


def twins_game(rules, settings, max_nodes: int, game: int) -> twin.TwinGame:
    number = settings.first_game + game
    judges = [judge_of(HashEvaluator(rules, salt)) for salt in "ab"]
    black = number % 2 if settings.num_players == 2 else 0
    white = 1 - black if settings.num_players == 2 else 0
    twin_settings = twin.Settings(
        max_nodes=max_nodes, **{f: getattr(settings, f) for f in twin.Settings._fields if f != "max_nodes"}
    )
    stream = Stream(SEED, GENERATION, phase_of(settings), number)
    return twin.play_game(
        oracle_of(rules), twin_settings, {1: judges[black], -1: judges[white]}, rules.symmetries, stream
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "max_nodes"), [*((name, 25) for name in RULES), ("go 3x3", 18), ("gomoku 4x5", 300)])
def test_games_equal_the_twins(name, kind, max_nodes):
    rules, settings = RULES[name], KINDS[kind]
    evaluators = [HashEvaluator(rules, salt) for salt in "ab"[: settings.num_players]]
    games = play_shard(rules, settings, evaluators, NUM_GAMES, 2, max_nodes).games
    for index, record in enumerate(games):
        expected = twins_game(rules, settings, max_nodes, index)
        assert record.actions.tolist() == expected.actions
        for counts, visits in zip(record.visit_counts, expected.visit_counts, strict=True):
            assert {int(action): int(counts[action]) for action in np.flatnonzero(counts)} == visits
        assert record.root_values.tolist() == expected.root_values
        assert record.best_values.tolist() == expected.best_values
        weights = [1.0] * len(record.actions)
        if settings.surprise_weight:
            weights = twin.sample_weights(expected.surprises, settings.surprise_weight)
        np.testing.assert_allclose(record.sample_weights, weights, rtol=1e-4, atol=1e-4)
        assert (record.margin, record.outcome) == (expected.margin, expected.outcome)
        assert (record.end == "resignation", record.never_resigns) == (expected.resigned, expected.never_resigns)


def root(visits: list[int], priors: list[float] | None = None):
    """A tree of one node, whose edges have these visits."""
    trees = new_trees(1, 2, len(visits))
    add_node(trees, 0, np.ones(len(visits), np.bool_), 0.0)
    trees.visit_count[0, 0] = visits
    trees.num_visited[0, 0] = len(visits)
    trees.node_visits[0, 0] = sum(visits)
    if priors:
        trees.prior[0, 0] = priors
    return trees


def test_a_surprise_is_the_divergence_of_the_target_from_the_prior():
    priors = [0.5, 0.25, 0.125, 0.125]
    trees = root([1, 2, 1, 1], priors)
    assert policy_surprise(trees, 0, np.array([8, 4, 2, 2], np.uint16)) == 0.0
    assert policy_surprise(trees, 0, np.array([0, 0, 0, 7], np.uint16)) == np.float32(np.log(8))
    halves = policy_surprise(trees, 0, np.array([30_000, 0, 0, 30_000], np.uint16))
    assert halves == pytest.approx(0.5 * np.log(1.0) + 0.5 * np.log(4.0))
    trees.prior[0, 0, 3] = 0.0  # a prior can underflow
    assert 80 < policy_surprise(trees, 0, np.array([0, 0, 0, 7], np.uint16)) < 90


@pytest.mark.parametrize(
    ("surprises", "weights"),
    [([1, 0, 3, 0], [1, 0.5, 2, 0.5]), ([0, 0], [1, 1]), ([2, -1, 6], [0.75, 0, 1.25]), ([-1], [0])],
    ids=["all targets", "no surprise", "one move is no target", "no target"],
)
def test_sample_weights_have_mean_1_over_the_targets(surprises, weights):
    array = np.array(surprises, np.float32)
    write_sample_weights(array, 0.5)
    assert array.tolist() == weights


def test_early_moves_are_drawn_in_proportion_to_the_visits():
    visits = [0, 400, 300, 0, 200, 99, 1, 0]
    trees = root(visits)
    drawn = np.bincount([draw_edge(trees, 0, stream_of(1, 1, "test", game)) for game in range(20_000)], minlength=8)
    assert (drawn[[0, 3, 7]] == 0).all()
    expected = np.array(visits) * 20.0
    assert (
        (drawn - expected)[expected > 0] ** 2 / expected[expected > 0]
    ).sum() < 20.5  # 4 degrees of freedom: exceeded once in 2,500


@pytest.mark.parametrize(
    ("visits", "priors", "best"),
    [([3, 7, 40, 41, 9], None, 3), ([5, 9, 9, 9], [0.4, 0.1, 0.3, 0.2], 2), ([5, 9, 9, 9], [0.4, 0.2, 0.2, 0.2], 1)],
    ids=["most visits", "greater prior", "first move"],
)
def test_later_moves_are_the_most_visited(visits, priors, best):
    assert most_visited(root(visits, priors), 0) == best


@pytest.mark.parametrize("temperature_moves", [0, 3, 100])
def test_the_temperature_applies_to_the_first_moves_of_a_game(temperature_moves):
    settings = SELFPLAY._replace(temperature_moves=temperature_moves, num_simulations=24)
    rules = RULES["go 5x5"]
    games = play_shard(rules, settings, [HashEvaluator(rules)], 30, max_nodes=80).games
    length = rules.max_moves
    most_visited = np.zeros(length)
    played = np.zeros(length)
    for record in games:
        best = record.visit_counts.max(axis=1) == record.visit_counts[range(len(record.actions)), record.actions]
        most_visited[: len(best)] += best
        played[: len(best)] += 1
    strays = (most_visited < played)[played >= 20]
    assert strays.tolist() == [move < temperature_moves for move in range(len(strays))]


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
@pytest.mark.parametrize("spare", [2, 3, 20])
def test_trees_stay_within_their_capacity_and_valid(settings, spare):
    rules, max_nodes, num_slots = RULES["go 3x3"], settings.num_simulations + spare, 4
    streams = np.stack([stream_of(1, 1, "test", game) for game in range(8)])
    players = settings.num_players
    slots = new_slots(rules, settings, num_slots, max_nodes)
    batch, records = new_batch(rules, num_slots, players), new_records(rules, streams)
    evaluator = HashEvaluator(rules)
    fullest = 0
    while advance(rules, settings, slots, batch, records):
        for player in range(players):
            rows = batch.num_requests[player]
            evaluator.evaluate(batch.planes[player, :rows], batch.prior[player, :rows], batch.value[player, :rows])
        fullest = max(fullest, int(slots.trees.num_nodes.max()))
        assert fullest <= max_nodes
        for tree in range(num_slots * players):
            if slots.game[tree // players] != IDLE and slots.trees.num_nodes[tree]:
                assert size_of(view_of(slots.trees, tree)) == slots.trees.num_nodes[tree]
    if settings is SELFPLAY:  # most of a tree is reused, or all that fits
        assert fullest == max_nodes - 1
    assert records.num_done[0] == 8


def test_visits_above_the_range_of_a_record_are_capped():
    # The second move of this game is the only legal one: all simulations go through one edge.
    settings = SELFPLAY._replace(num_simulations=MAX_VISITS + 1000, tree_reuse=False)
    record = play_shard(gomoku_rules(1, 2, 2), settings, [UniformEvaluator()], 1).games[0]
    assert record.visit_counts[1].sum() == MAX_VISITS
    assert record.visit_counts[0].sum() == MAX_VISITS + 1000
