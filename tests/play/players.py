"""Players of one game for the tests."""

from tests.search.evaluators import HashEvaluator
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules
from zero.play.player import Player

GO3, GO5 = go_rules(3, 3, 0.5), go_rules(5, 5, 0.5)


def player(rules=GO5, evaluator=None, **changes) -> Player:
    settings = {
        "num_simulations": 30,
        "c_puct": 1.5,
        "fpu_from_parent": False,
        "random_symmetry": False,
        "max_nodes": 200,
    }
    return Player(rules, evaluator or HashEvaluator(rules), **(settings | changes))


def play_names(one: Player, names: str) -> Player:
    for name in names.split():
        one.play(name_to_action(one.rules, name))
    return one
