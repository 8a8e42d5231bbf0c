"""Minds: what they are made of is made once, when the game and its board are known."""

import pytest

from tests.interop.gtp.engines import GO5, GO9, NUM_SIMULATIONS, ask
from tests.search.evaluators import HashEvaluator
from zero.errors import OpponentError
from zero.interop.gtp.engine import Engine
from zero.play.player import Player
from zero.players.base import Reply
from zero.players.single_game import OpponentMind, PlayerMind
from zero.players.uniform import UniformPlayer


class Counted(UniformPlayer):
    """Tells of its beginning and its end."""

    def __init__(self, rules, log):
        super().__init__(rules, 3)
        self.log = log
        log.append(f"{rules.rows} made")

    def close(self):
        self.log.append(f"{self._rules.rows} closed")


def test_an_opponent_is_made_once_for_a_board():
    log: list[str] = []
    mind = OpponentMind("random", lambda rules: Counted(rules, log), GO5)
    mind.close()  # before a game has begun
    assert log == []
    one = Engine(mind, GO5)
    assert not ask(one, "genmove b").startswith("?") and not ask(one, "clear_board")
    assert log == ["5 made"]
    assert ask(one, "boardsize 9") == "" and not ask(one, "genmove b").startswith("?")
    assert log == ["5 made", "9 made", "5 closed"]
    mind.close()
    assert log[3:] == ["9 closed"]


class Mortal(UniformPlayer):
    """Dies in its first game, and stays dead as long as that goes on."""

    def choose(self, games):
        replies = super().choose(games)
        return [Reply(fault="it is dead") if game == 0 else replies[turn] for turn, game in enumerate(games)]


@pytest.mark.parametrize("between", ["", "clear_board", "undo"])
def test_an_opponent_that_died_is_asked_again_in_a_new_game(between):
    one = Engine(OpponentMind("mortal", lambda rules: Mortal(rules, 3), GO5), GO5)
    assert ask(one, "play b C3") == ""
    assert ask(one, "genmove w") == "? mortal failed: it is dead"
    if between:
        assert ask(one, between) == ""
    assert not ask(one, "genmove w").startswith("?")


def test_a_board_that_the_opponent_does_not_play_on_is_refused_when_it_is_asked_for():
    def new_opponent(rules):
        if rules.rows > 9:
            raise OpponentError("only up to 9x9")
        return UniformPlayer(rules, 3)

    one = Engine(OpponentMind("random", new_opponent, GO5), GO5)
    ask(one, "play b C3")
    assert ask(one, "boardsize 19") == "? unacceptable size"
    assert "X" in ask(one, "showboard") and not ask(one, "genmove w").startswith("?")
    assert ask(one, "boardsize 9") == "" and not ask(one, "genmove b").startswith("?")


def test_a_tree_is_made_once_for_a_board():
    made = []

    def new_player(rules):
        made.append(rules)
        return Player(rules, HashEvaluator(rules), NUM_SIMULATIONS, 1.5, False, False, 400)

    mind = PlayerMind("a hash", new_player, GO9, NUM_SIMULATIONS)
    one = Engine(mind, GO9)
    for line in ("genmove b", "clear_board", "genmove b"):
        assert not ask(one, line).startswith("?")
    assert len(made) == 1
