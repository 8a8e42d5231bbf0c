"""Games with a Gumbel root: each recorded move equals the move of a separate search with the game's stream."""

import numpy as np
import pytest

from tests.play.shards import GENERATION, MATCH, SEED, SELFPLAY, phase_of, play_shard
from tests.search.evaluators import HashEvaluator
from tests.search.kernel_gumbel import KernelGumbelSearch
from zero.config.params import PlayParams, SearchParams, match_play
from zero.games.rules import go_rules, gomoku_rules
from zero.play.slots import play_settings
from zero.search.gumbel import TARGET_SUM
from zero.search.streams import next_below, stream_of

RULES = {"go": go_rules(4, 4, 0.5), "gomoku": gomoku_rules(4, 5, 3)}
GUMBEL = SELFPLAY._replace(
    gumbel=True, gumbel_scale=1.0, considered_actions=8, dirichlet_fraction=0.0, temperature_moves=0
)


@pytest.mark.parametrize("num_simulations", [1, 6, 20])
@pytest.mark.parametrize("reuse", [True, False], ids=["reuse", "no reuse"])
@pytest.mark.parametrize("name", RULES)
def test_games_equal_separate_searches(name, reuse, num_simulations):
    rules = RULES[name]
    settings = GUMBEL._replace(num_simulations=num_simulations, fast_simulations=1, tree_reuse=reuse)
    record = play_shard(rules, settings, [HashEvaluator(rules)], 1, max_nodes=200).games[0]
    stream = stream_of(SEED, GENERATION, phase_of(settings), 0)
    search = KernelGumbelSearch(
        rules, HashEvaluator(rules), 200, 8, lambda: int(next_below(stream, len(rules.symmetries)))
    )
    for move, action in enumerate(record.actions):
        search.begin(num_simulations, 1.0, stream)
        search.go_on(num_simulations)
        assert search.choice() == action
        np.testing.assert_array_equal(search.target(), record.visit_counts[move])
        assert search.root_value() == record.root_values[move]
        search.play(int(action), 200 - num_simulations - 1 if reuse else 0)


def test_sample_weights_follow_the_surprise_of_the_targets():
    rules = RULES["go"]
    settings = GUMBEL._replace(surprise_weight=0.5, random_symmetry=False, tree_reuse=False)
    record = play_shard(rules, settings, [HashEvaluator(rules)], 1, max_nodes=200).games[0]
    stream = stream_of(SEED, GENERATION, phase_of(settings), 0)
    search = KernelGumbelSearch(rules, HashEvaluator(rules), 200, 8, lambda: 0)
    surprises = []
    for action in record.actions:
        search.begin(settings.num_simulations, 1.0, stream)
        search.go_on(settings.num_simulations)
        trees, tree = search.trees, search.TREE
        edges = trees.num_edges[tree, 0]
        prior = dict(zip(trees.action[tree, 0, :edges].tolist(), trees.prior[tree, 0, :edges].tolist(), strict=True))
        shares = search.target() / TARGET_SUM
        surprises.append(sum(share * np.log(share / prior[a]) for a, share in enumerate(shares) if share))
        search.play(int(action), 0)
    expected = 0.5 + 0.5 * np.array(surprises) / np.mean(surprises)
    np.testing.assert_allclose(record.sample_weights, expected, rtol=1e-4)
    assert expected.max() > 1.2
    without = play_shard(rules, settings._replace(surprise_weight=0.0), [HashEvaluator(rules)], 1, max_nodes=200).games[
        0
    ]
    assert without.actions.tolist() == record.actions.tolist()
    assert set(without.sample_weights) == {1.0}


def test_a_target_has_the_full_sum():
    record = play_shard(RULES["go"], GUMBEL, [HashEvaluator(RULES["go"])], 1).games[0]
    assert (record.visit_counts.astype(int).sum(axis=1) == TARGET_SUM).all()


def test_fast_moves_have_no_noise():
    rules = RULES["go"]
    settings = GUMBEL._replace(random_symmetry=False, full_search_fraction=0.0, fast_simulations=6)
    first, second = play_shard(rules, settings, [HashEvaluator(rules)], 2).games
    assert first.actions.tolist() == second.actions.tolist()


def test_players_of_a_match_draw_no_numbers():
    settings = MATCH._replace(gumbel=True, gumbel_scale=0.0, random_symmetry=False)
    rules = RULES["go"]
    evaluators = [HashEvaluator(rules, "a"), HashEvaluator(rules, "b")]
    games = play_shard(rules, settings, evaluators, 4).games
    assert games[0].actions.tolist() == games[2].actions.tolist() != games[1].actions.tolist()
    assert games[1].actions.tolist() == games[3].actions.tolist()


def test_selfplay_can_consider_fewer_actions_than_a_match():
    search = SearchParams(root="gumbel", considered_actions=16)
    assert play_settings(search, PlayParams(considered_actions=8)).considered_actions == 8
    assert play_settings(search, match_play(100, 64)).considered_actions == 16
