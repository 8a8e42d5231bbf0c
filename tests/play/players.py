"""Players of one game for the tests."""

from tests.search.evaluators import HashEvaluator
from zero.config.params import SearchParams
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules
from zero.play.single_game import SingleGamePlayer

GO3, GO5 = go_rules(3, 3, 0.5), go_rules(5, 5, 0.5)


def player(
    rules=GO5, evaluator=None, num_simulations=30, max_nodes=200, num_leaves=8, seed=0, considered_actions=0, **search
) -> SingleGamePlayer:
    """A player; `considered_actions` of a Gumbel root, 0: PUCT."""
    gumbel = {"root": "gumbel", "considered_actions": considered_actions} if considered_actions else {}
    params = SearchParams(**{"random_symmetry": False} | gumbel | search)
    used = evaluator or HashEvaluator(rules)
    return SingleGamePlayer(rules, used, params, num_simulations, max_nodes, num_leaves, seed)


def play_names(one: SingleGamePlayer, names: str) -> SingleGamePlayer:
    for name in names.split():
        one.play(name_to_action(one.rules, name))
    return one
