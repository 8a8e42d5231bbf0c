"""A network and a search as a player of a match: a game does not depend on the other games."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.search.evaluators import HashEvaluator, PriorEvaluator, ValueEvaluator
from zero.config.params import SearchParams
from zero.errors import ParamsError
from zero.games.rules import go_rules
from zero.play.single_game import SingleGamePlayer
from zero.players.network_player import NetworkPlayer
from zero.players.player import RESIGN, PlayerId

GO5 = go_rules(5, 5, 0.5)
SEARCH = SearchParams(considered_actions=4)


def searcher(num_simulations=16, num_slots=4, evaluator=None, seed=5, resign_threshold=-1.0, **search) -> NetworkPlayer:
    player = PlayerId(name="ours", kind="network", settings={})
    settings = SEARCH.model_copy(update=search)
    return NetworkPlayer(
        player, GO5, evaluator or HashEvaluator(GO5), settings, num_simulations, num_slots, seed, resign_threshold
    )


def own_game(one: NetworkPlayer, game: int, num_moves: int, beside=()) -> list[int]:
    """The moves of a game against itself, with games `beside` it in which it makes other moves."""
    one.begin([*beside, game])
    actions = []
    for _ in range(num_moves):
        replies = dict(zip([*beside, game], one.choose([*beside, game]), strict=True))
        for number, reply in replies.items():
            one.play(number, reply.action)
        actions.append(replies[game].action)
    return actions


@pytest.mark.parametrize("root", ["puct", "gumbel"])
def test_a_game_does_not_depend_on_other_games(root):
    alone = own_game(searcher(root=root), 7, 8)
    assert own_game(searcher(root=root), 7, 8, beside=(0, 1, 2)) == alone
    assert own_game(searcher(root=root, seed=6), 7, 8) != alone


def test_games_with_other_numbers_differ():
    assert len({tuple(own_game(searcher(), game, 8)) for game in range(4)}) == 4


def test_without_simulations_it_plays_the_greatest_prior():
    prior = np.linspace(0.1, 0.2, GO5.num_actions, dtype=np.float32)
    prior[7] = 0.9
    one = searcher(0, evaluator=PriorEvaluator(prior), random_symmetry=False)
    assert own_game(one, 0, 1) == [7]
    assert one.choose([0])[0].action == GO5.num_points, "7 is taken"


@pytest.mark.parametrize("root", ["puct", "gumbel"])
def test_it_plays_like_the_single_game_player(root):
    search = SEARCH.model_copy(update={"random_symmetry": False, "root": root})
    alone = SingleGamePlayer(GO5, HashEvaluator(GO5), search, num_simulations=16, max_nodes=34, num_leaves=1)
    for action in own_game(searcher(random_symmetry=False, root=root), 0, 12):
        assert alone.choose() == action
        alone.play(action)


def test_it_resigns_below_the_threshold_but_not_in_the_first_moves():
    one = searcher(resign_threshold=1.0)
    actions = own_game(one, 0, 2)
    assert RESIGN not in actions
    assert one.choose([0])[0].action == RESIGN


@pytest.mark.parametrize(("value", "resigned"), [(-0.9, True), (-0.1, False), (0.9, False)])
def test_without_simulations_it_resigns_by_the_value_of_the_network(value, resigned):
    one = searcher(0, evaluator=ValueEvaluator(value), resign_threshold=-0.5, random_symmetry=False)
    one.begin([0])
    for action in (3, 7):
        one.play(0, action)
    assert (one.choose([0])[0].action == RESIGN) == resigned


def test_a_slot_is_reused():
    one = searcher(num_slots=1)
    first = own_game(one, 3, 4)
    one.end(3)
    one.begin([4])
    one.end(4)
    assert own_game(one, 3, 4) == first


def test_positions_of_all_games_are_evaluated_together():
    evaluator = HashEvaluator(GO5)
    one = searcher(num_simulations=8, evaluator=evaluator)
    one.begin([0, 1, 2, 3])
    one.choose([0, 1, 2, 3])
    assert evaluator.num_rows == 4 * 9, "no batch was padded"


def test_trees_that_do_not_fit_in_memory_are_rejected():
    with pytest.raises(ParamsError, match="games at once with 1000000 simulations do not fit in memory"):
        searcher(10**6, num_slots=10**6)


class DeviceEvaluator(HashEvaluator):
    """A device that fails if two threads use it at once."""

    busy = threading.Lock()

    def evaluate(self, planes, prior, value):
        assert self.busy.acquire(blocking=False), "two at once"
        time.sleep(0.001)
        super().evaluate(planes, prior, value)
        self.busy.release()

    def submit(self, planes, prior, value):
        self.evaluate(planes, prior, value)

    def wait(self):
        pass


def test_two_players_take_turns_on_a_gpu():
    players = [searcher(evaluator=DeviceEvaluator(GO5, salt)) for salt in ("a", "b")]
    with ThreadPoolExecutor(2) as threads:
        games = list(threads.map(lambda player: own_game(player, 1, 4), players))
    assert games == [own_game(searcher(evaluator=HashEvaluator(GO5, salt)), 1, 4) for salt in ("a", "b")]
