"""Complete shards: games do not depend on each other, and records can be replayed."""

import numpy as np
import pytest

from tests.golden.golden import check_golden
from tests.play.shards import (
    GO4,
    GO5,
    MATCH,
    NUM_GAMES,
    SELFPLAY,
    Watched,
    digest_of,
    hashes,
    play_shard,
    replayed,
    same_games,
)
from tests.search.evaluators import ColourEvaluator, EquivariantEvaluator
from zero.games.rules import go_rules, gomoku_rules
from zero.play.batched_games import SMALLEST_BATCH, batch_shape
from zero.search.evaluator import UniformEvaluator

GOMOKU = gomoku_rules(5, 5, 4)
RULES = {"go": GO4, "go with suicide": go_rules(3, 4, 0.0, allow_suicide=True), "gomoku": GOMOKU}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("num_slots", [1, 3, 20])
def test_self_play_games_do_not_depend_on_other_slots(name, num_slots):
    rules = RULES[name]
    together = play_shard(rules, SELFPLAY, hashes(rules), NUM_GAMES)
    other = play_shard(rules, SELFPLAY, hashes(rules), NUM_GAMES, num_slots)
    assert same_games(other.games, together.games)
    assert other.num_evaluations == together.num_evaluations


@pytest.mark.parametrize("num_slots", [1, 3])
def test_match_games_do_not_depend_on_other_slots(num_slots):
    together = play_shard(GO4, MATCH, hashes(GO4, "challenger", "champion"), NUM_GAMES)
    assert same_games(
        play_shard(GO4, MATCH, hashes(GO4, "challenger", "champion"), NUM_GAMES, num_slots).games, together.games
    )


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
def test_a_game_does_not_depend_on_its_shard(settings):
    evaluators = hashes(GO4, "challenger", "champion")[: settings.num_players]
    whole = play_shard(GO4, settings, evaluators, NUM_GAMES).games
    tail = play_shard(GO4, settings._replace(first_game=7), evaluators, NUM_GAMES - 7).games
    assert [record.game for record in tail] == [7, 8, 9]
    assert same_games(tail, whole[7:])


@pytest.mark.parametrize(
    "changed",
    [
        SELFPLAY._replace(c_puct=0.5),
        SELFPLAY._replace(fpu_from_parent=True),
        SELFPLAY._replace(num_simulations=3),
        SELFPLAY._replace(temperature_moves=3),
        SELFPLAY._replace(dirichlet_fraction=0.5),
        SELFPLAY._replace(dirichlet_concentration=3.0),
        SELFPLAY._replace(tree_reuse=False),
        SELFPLAY._replace(random_symmetry=False),
    ],
    ids=["c_puct", "first_play", "simulations", "temperature", "fraction", "concentration", "reuse", "symmetry"],
)
def test_every_setting_has_an_effect(changed):
    one, other = (play_shard(GO4, settings, hashes(GO4), 4, max_nodes=60).games for settings in (SELFPLAY, changed))
    assert not same_games(one, other)


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
@pytest.mark.parametrize("name", RULES)
def test_records_obey_the_rules(name, settings):
    rules = RULES[name]
    played = play_shard(rules, settings, hashes(rules, "a", "b")[: settings.num_players], NUM_GAMES)
    for record in played.games:
        game = replayed(rules, record)
        assert game.ended
        assert record.outcome == game.outcome()
        assert record.margin == game.margin()
        assert record.visit_counts.shape == (len(record.actions), rules.num_actions)
        assert np.abs(record.root_values).max() <= 1.0
        if settings is MATCH:
            assert (record.visit_counts.max(axis=1) == record.visit_counts[range(game.num_moves), record.actions]).all()


def test_without_tree_reuse_visits_sum_to_the_simulations():
    settings = SELFPLAY._replace(tree_reuse=False)
    for record in play_shard(GO4, settings, hashes(GO4), 4).games:
        assert set(record.visit_counts.sum(axis=1).tolist()) == {settings.num_simulations}


def test_with_tree_reuse_visits_sum_to_new_and_reused_simulations():
    # The child of an edge with n visits has n - 1 simulations: the first one added the child.
    for record in play_shard(GO4, SELFPLAY, hashes(GO4), 4, max_nodes=400).games:
        sums = record.visit_counts.sum(axis=1)
        followed = record.visit_counts[range(len(sums)), record.actions]
        assert sums[0] == SELFPLAY.num_simulations
        assert (sums[1:] == followed[:-1] - 1 + SELFPLAY.num_simulations).all()


def test_ends_of_games_are_not_evaluated():
    # Nine moves: each evaluates its root and one leaf, except the last, whose leaf is the full board.
    rules = gomoku_rules(1, 9, 9)
    settings = SELFPLAY._replace(num_simulations=1, tree_reuse=False)
    played = play_shard(rules, settings, [UniformEvaluator()], 2)
    assert [len(record.actions) for record in played.games] == [9, 9]
    assert played.num_evaluations == 2 * (9 + 8)


def test_a_reused_root_is_not_evaluated_again():
    rules = gomoku_rules(1, 9, 9)
    settings = SELFPLAY._replace(num_simulations=1, temperature_moves=0)
    assert play_shard(rules, settings, [UniformEvaluator()], 1).num_evaluations == 9


def test_all_ways_to_end_occur():
    games = [
        record for rules in RULES.values() for record in play_shard(rules, SELFPLAY, hashes(rules), NUM_GAMES).games
    ]
    games += play_shard(GOMOKU._replace(in_a_row=5), SELFPLAY, hashes(GOMOKU), NUM_GAMES).games
    games += play_shard(GO4._replace(max_moves=8), SELFPLAY, hashes(GO4), NUM_GAMES).games
    assert {record.end for record in games} == {"passes", "length", "line", "full"}
    for record in games:
        if record.end == "passes":
            assert record.actions[-1] == record.actions[-2] == record.visit_counts.shape[1] - 1
        if record.end == "full":
            assert (len(record.actions), record.outcome, record.margin) == (25, 0, 0.0)
        if record.end == "line":
            assert record.outcome == (1 if len(record.actions) % 2 else -1)


def test_a_game_ends_at_the_maximum_length():
    for record in play_shard(GO5._replace(max_moves=7), SELFPLAY, hashes(GO5), 6).games:
        assert len(record.actions) <= 7
        assert record.end == (
            "length" if len(record.actions) == 7 and record.actions[-2:].tolist() != [25, 25] else "passes"
        )


def test_colours_alternate_in_a_match_and_self_play_has_one_player():
    for first_game in (0, 6):
        games = play_shard(GO4, MATCH._replace(first_game=first_game), hashes(GO4, "a", "b"), 4).games
        assert [(record.black, record.white) for record in games] == [("0", "1"), ("1", "0")] * 2
    assert {(record.black, record.white) for record in play_shard(GO4, SELFPLAY, hashes(GO4), 3).games} == {("0", "0")}


def test_each_players_requests_go_to_its_own_evaluator():
    # Player 0 values Black higher, player 1 White: the root values show which network evaluated them.
    opinion = {"0": 0.5, "1": -0.25}
    games = play_shard(GO5, MATCH, [ColourEvaluator(opinion["0"]), ColourEvaluator(opinion["1"])], 4).games
    for record in games:
        expected = [opinion[record.black], -opinion[record.white]] * 3  # for the player to move
        assert record.root_values[:6].tolist() == expected


def test_a_players_tree_does_not_depend_on_the_opponents_search():
    # The search is the same against any opponent who plays the same moves.
    rules = gomoku_rules(1, 12, 12)
    plain = MATCH._replace(random_symmetry=False)
    one, other = (play_shard(rules, plain, hashes(rules, "a", salt), 1, max_nodes=200).games[0] for salt in "bc")
    shared = next(i for i, (x, y) in enumerate(zip(one.actions, other.actions, strict=True)) if x != y)
    assert shared % 2 == 1  # the opponent deviates first
    assert np.array_equal(one.visit_counts[:shared:2], other.visit_counts[:shared:2])
    assert not np.array_equal(one.visit_counts[1], other.visit_counts[1])


def test_an_equivariant_network_plays_the_same_under_random_symmetries():
    evaluators = [EquivariantEvaluator(GOMOKU, salt) for salt in "ab"]
    one, other = (
        play_shard(GOMOKU, MATCH._replace(random_symmetry=flag), evaluators, 4).games for flag in (False, True)
    )
    assert same_games(one, other)
    assert min(len(record.actions) for record in one) >= 7


def test_random_symmetries_vary_the_games_of_another_network():
    evaluators = hashes(GO4, "a", "b")
    fixed, turned = (
        play_shard(GO4, MATCH._replace(random_symmetry=flag), evaluators, 10).games for flag in (False, True)
    )
    sequences = [{record.actions.tobytes() for record in games} for games in (fixed, turned)]
    assert len(sequences[0]) == 2  # one per colour: without randomness a match is two games
    assert len(sequences[1]) == 10


def test_self_play_games_differ():
    games = play_shard(GO5, SELFPLAY, hashes(GO5), 40).games
    assert len({record.actions.tobytes() for record in games}) == 40


def test_without_randomness_all_self_play_games_are_equal():
    settings = SELFPLAY._replace(random_symmetry=False, temperature_moves=0, dirichlet_fraction=0.0)
    games = play_shard(GO5, settings, hashes(GO5), 5).games
    assert len({record.actions.tobytes() for record in games}) == 1


@pytest.mark.parametrize(
    ("num_requests", "num_slots", "rows"),
    [
        (57, 64, 64),
        (33, 64, 40),
        (32, 64, 32),
        (9, 64, 16),
        (1, 64, SMALLEST_BATCH),
        (1, 4, 4),
        (92, 100, 100),  # less than 8 times 13
        (1, 100, 13),  # half of it would be below the smallest batch
        (33, 512, 64),
        (9, 12, 12),
    ],
)
def test_batch_shape(num_requests, num_slots, rows):
    assert batch_shape(num_requests, num_slots) == rows


@pytest.mark.parametrize("num_slots", [1, 7, 12, 64, 100, 129, 512])
def test_every_batch_fits_its_requests_in_one_of_few_shapes(num_slots):
    shapes = [batch_shape(requests, num_slots) for requests in range(1, num_slots + 1)]
    assert all(requests <= rows <= num_slots for requests, rows in enumerate(shapes, 1))
    assert shapes == sorted(shapes) and len(set(shapes)) <= 12


def test_batches_have_few_shapes_and_shrink_as_the_last_games_end():
    watched = Watched(GO4)
    play_shard(GO4, SELFPLAY, [watched], 40, num_slots=32)
    assert set(watched.shapes) == {32, 24, 16, 8}
    assert watched.shapes == sorted(watched.shapes, reverse=True)


def test_progress_counts_all_games():
    seen: list[int] = []
    play_shard(GO4, SELFPLAY, hashes(GO4), 12, 4, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[0] < 6
    assert seen[-1] == 12


def test_the_record_does_not_share_memory_with_the_shard():
    played = play_shard(GO4, SELFPLAY, hashes(GO4), 2)
    assert all(array.base is None for record in played.games for array in record[:3])


@pytest.mark.parametrize("settings", [SELFPLAY, MATCH], ids=["selfplay", "match"])
@pytest.mark.parametrize("name", RULES)
def test_pinned_games(name, settings):
    # A change here would make stored shards impossible to reproduce.
    rules = RULES[name]
    games = play_shard(rules, settings, hashes(rules, "a", "b")[: settings.num_players], 6).games
    found = [
        {
            "actions": " ".join(str(action) for action in record.actions),
            "outcome": record.outcome,
            "margin": record.margin,
            "end": record.end,
            "sha256": digest_of(record),
        }
        for record in games
    ]
    check_golden(f"{name.replace(' ', '-')}-{'match' if settings is MATCH else 'selfplay'}", found)
