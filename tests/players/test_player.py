"""Conformance test of all kinds of players; a new kind is done when this passes with it in `KINDS`."""

from collections.abc import Callable
from contextlib import closing

import pytest

from tests.oracle.gnugo import needs_gnugo
from tests.players.games import moves, played_games
from zero.games.position import Rules
from zero.games.rules import go_rules, gomoku_rules
from zero.players.gtp import gnugo
from zero.players.player import Player, PlayerId
from zero.players.rollout import RolloutPlayer
from zero.players.uniform import UniformPlayer

GO, GOMOKU = go_rules(5, 5, 7.5), gomoku_rules(6, 6, 4)
KINDS = [
    pytest.param(lambda: UniformPlayer(GO, 1), GO, id="random, go"),
    pytest.param(lambda: UniformPlayer(GOMOKU, 1), GOMOKU, id="random, gomoku"),
    pytest.param(lambda: RolloutPlayer(GO, 20, 3, 1), GO, id="rollout, go"),
    pytest.param(lambda: RolloutPlayer(GOMOKU, 20, 3, 1), GOMOKU, id="rollout, gomoku"),
    pytest.param(lambda: gnugo(1, GO, 1), GO, id="gnugo", marks=needs_gnugo),
]
every_kind = pytest.mark.parametrize(("make", "rules"), KINDS)
Make = Callable[[], Player]


@every_kind
def test_concurrent_games_are_legal_and_equal_those_played_alone(make: Make, rules: Rules):
    with closing(make()) as player, closing(UniformPlayer(rules, 5)) as other:
        together = played_games(rules, other, player, [3, 4, 8])
    with closing(make()) as player, closing(UniformPlayer(rules, 5)) as other:
        alone = {number: played_games(rules, other, player, [number])[number] for number in (8, 3)}
    assert all(game.ended for game in together.values())
    for number, game in alone.items():
        assert moves(game) == moves(together[number])


@every_kind
def test_it_plays_both_colours(make: Make, rules: Rules):
    with closing(make()) as player:
        (game,) = played_games(rules, player, player, [1]).values()
    assert game.num_moves >= 2 * rules.in_a_row - 1 if rules.in_a_row else game.num_moves > 4


@every_kind
def test_choosing_twice_gives_the_same_reply(make: Make, rules: Rules):
    with closing(make()) as player:
        player.begin([1, 2])
        first = player.choose([1, 2])
        assert player.choose([2, 1]) == first[::-1]
        player.play(1, first[0].action)
        player.play(2, first[1].action)
        assert all(reply.action >= 0 and not reply.fault for reply in player.choose([1, 2]))


@every_kind
def test_no_games_give_no_replies(make: Make, rules: Rules):
    with closing(make()) as player:
        player.begin([])
        assert player.choose([]) == []


@every_kind
def test_its_identity_survives_serialisation(make: Make, rules: Rules):
    with closing(make()) as player, closing(make()) as again:
        assert PlayerId.model_validate_json(player.id.model_dump_json()) == player.id == again.id
