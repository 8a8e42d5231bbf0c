"""The referee: turns, colours, results, forfeits, openings; two networks play the same games as in gating."""

import numpy as np
import pytest

from tests.evaluation.scripted import Scripted, passes, plays
from tests.search.evaluators import HashEvaluator
from zero.config.params import SearchParams, match_play
from zero.data.sgf import FORFEIT
from zero.errors import ParamsError
from zero.evaluation.referee import Referee, max_opening_moves
from zero.games.rules import go_rules, gomoku_rules
from zero.play.batched_games import play_games
from zero.play.slots import play_settings
from zero.players.network_player import NetworkPlayer
from zero.players.player import PlayerId, Reply
from zero.search.streams import stream_of

GO3 = go_rules(3, 3, 0.5)
PASS = 9
SIMULATIONS = 24


def games_of(rules, first, second, numbers=(0, 1), opening_moves=0, at_once=4):
    with Referee(rules, (first, second), 7, opening_moves, at_once) as referee:
        return sorted(referee.play(list(numbers)), key=lambda game: game.game)


def test_the_first_player_has_black_in_even_games():
    black, white = games_of(GO3, Scripted("a", plays(4, PASS)), Scripted("b", passes(GO3)))
    assert (black.actions, black.outcome, black.result) == ((4, PASS, PASS), 1, 1)
    assert (white.actions, white.outcome, white.result) == ((PASS, 4, PASS, PASS), -1, 1)


def test_a_player_that_resigns_loses():
    black, white = games_of(GO3, Scripted("a", lambda game, moves: Reply()), Scripted("b", passes(GO3)))
    assert (black.end, black.outcome, black.actions) == ("resignation", -1, ())
    assert (white.end, white.outcome, white.result) == ("resignation", 1, -1)


@pytest.mark.parametrize(
    "action, why",
    [
        (0, "b: illegal move A3: there is a black stone; play on an empty point"),
        (77, "b: illegal move 77: a 3x3 board has the actions 0 to 9"),
        (-3, "b: illegal move -3: a 3x3 board has the actions 0 to 9"),
    ],
)
def test_an_illegal_move_forfeits_the_game(action, why):
    game = games_of(GO3, Scripted("a", plays(0)), Scripted("b", lambda *_: Reply(action)), numbers=[0])[0]
    assert (game.end, game.fault, game.outcome, game.actions) == (FORFEIT, why, 1, (0,))


def test_a_failed_player_loses_only_that_game():
    fails_in_1 = Scripted("a", lambda game, moves: Reply(fault="it died") if game == 1 else Reply(PASS))
    games = games_of(GO3, fails_in_1, Scripted("b", passes(GO3)), numbers=range(4))
    assert [game.end for game in games] == ["passes", FORFEIT, "passes", "passes"]
    assert (games[1].fault, games[1].result) == ("a: it died", -1)


def test_both_players_receive_every_move_and_every_end():
    first, second = Scripted("a", plays(4, PASS)), Scripted("b", passes(GO3))
    games = games_of(GO3, first, second, numbers=range(6))
    for player in (first, second):
        assert {number: tuple(moves) for number, moves in player.moves.items()} == {g.game: g.actions for g in games}
        assert sorted(player.ended) == list(range(6))


def test_games_in_play_are_limited():
    first, second = Scripted("a", plays(4, PASS)), Scripted("b", passes(GO3))
    assert len(games_of(GO3, first, second, numbers=range(11), at_once=3)) == 11
    assert max(map(len, first.requests + second.requests)) <= 3


def test_the_two_games_of_a_pair_share_their_opening():
    rules = go_rules(5, 5, 0.5)
    openings = [
        game.actions[:4]
        for game in games_of(rules, Scripted("a", passes(rules)), Scripted("b", passes(rules)), range(8), 4, 8)
    ]
    assert openings[::2] == openings[1::2]
    assert len(set(openings)) == 4
    assert all(action < 25 for opening in openings for action in opening)


def test_players_set_up_several_games_in_one_call():
    first, second = Scripted("a", lambda game, _: Reply(PASS if game else -1)), Scripted("b", passes(GO3))
    games_of(GO3, first, second, numbers=range(5), at_once=3)
    assert first.begun == second.begun == [[0, 1, 2], [3], [4]]


def test_an_opening_that_ends_the_game_is_rejected():
    assert max_opening_moves(GO3) == 4
    rules = gomoku_rules(2, 2, 2)  # two black stones are always a line
    with pytest.raises(ParamsError, match="opening_moves = 3: all of 100 random openings ended the game"):
        games_of(rules, Scripted("a", passes(rules)), Scripted("b", passes(rules)), opening_moves=3)


def test_a_bug_in_a_player_is_raised():
    def breaks(game, moves):
        raise AssertionError("broken")

    with pytest.raises(AssertionError, match="broken"):
        games_of(GO3, Scripted("a", breaks), Scripted("b", passes(GO3)))


def searcher(rules, salt, root):
    search = SearchParams(first_play="parent", random_symmetry=False, root=root, considered_actions=6)
    player = PlayerId(name=salt, kind="network", settings={})
    return NetworkPlayer(player, rules, HashEvaluator(rules, salt), search, SIMULATIONS, 4, seed=3)


@pytest.mark.parametrize("root", ["puct", "gumbel"])
def test_two_networks_play_the_games_of_gating(root):
    rules = go_rules(4, 4, 0.5)
    search = SearchParams(first_play="parent", random_symmetry=False, root=root, considered_actions=6)
    settings = play_settings(search, match_play(3, SIMULATIONS), num_players=2)
    evaluators = [HashEvaluator(rules, salt) for salt in ("a", "b")]
    streams = np.stack([stream_of(1, 0, "gating", game) for game in range(6)])
    gate = play_games(rules, settings, evaluators, ("a", "b"), streams, 3, 2 * SIMULATIONS + 2).games
    match = games_of(rules, searcher(rules, "a", root), searcher(rules, "b", root), range(6))
    for ours, theirs in zip(match, sorted(gate, key=lambda game: game.game), strict=True):
        assert ours.actions == tuple(theirs.actions.tolist())
        assert (ours.outcome, ours.margin, ours.end) == (theirs.outcome, theirs.margin, theirs.end)
