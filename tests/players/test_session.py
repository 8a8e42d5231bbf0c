"""Sessions: players and trees are made once for each board, and failures do not last."""

import pytest

from tests.interop.engines import GO5, GO9, NUM_SIMULATIONS, SEARCH, answer
from tests.search.evaluators import HashEvaluator
from zero.errors import OpponentError
from zero.interop.gtp import GtpServer
from zero.play.single_game import SingleGamePlayer
from zero.players.player import Reply
from zero.players.session import NetworkSession, PlayerSession
from zero.players.uniform import UniformPlayer


class Counted(UniformPlayer):
    """Logs when it is made and closed."""

    def __init__(self, rules, log):
        super().__init__(rules, 3)
        self.log = log
        log.append(f"{rules.rows} made")

    def close(self):
        self.log.append(f"{self._rules.rows} closed")


def test_a_player_is_made_once_for_each_board():
    log: list[str] = []
    session = PlayerSession("random", lambda rules: Counted(rules, log), GO5)
    session.close()  # before a game has begun
    assert log == []
    one = GtpServer(session, GO5)
    assert not answer(one, "genmove b").startswith("?") and not answer(one, "clear_board")
    assert log == ["5 made"]
    assert answer(one, "boardsize 9") == "" and not answer(one, "genmove b").startswith("?")
    assert log == ["5 made", "9 made", "5 closed"]
    session.close()
    assert log[3:] == ["9 closed"]


class Failing(UniformPlayer):
    """Fails in its first game."""

    def choose(self, games):
        replies = super().choose(games)
        return [Reply(fault="the engine died") if game == 0 else replies[turn] for turn, game in enumerate(games)]


@pytest.mark.parametrize("between", ["", "clear_board", "undo"])
def test_a_player_that_failed_gets_a_new_game(between):
    one = GtpServer(PlayerSession("failing", lambda rules: Failing(rules, 3), GO5), GO5)
    assert answer(one, "play b C3") == ""
    assert answer(one, "genmove w") == "? failing failed: the engine died"
    if between:
        assert answer(one, between) == ""
    assert not answer(one, "genmove w").startswith("?")


def test_a_board_that_the_player_does_not_support_is_rejected():
    def new_player(rules):
        if rules.rows > 9:
            raise OpponentError("only up to 9x9")
        return UniformPlayer(rules, 3)

    one = GtpServer(PlayerSession("random", new_player, GO5), GO5)
    answer(one, "play b C3")
    assert answer(one, "boardsize 19") == "? unacceptable size"
    assert "X" in answer(one, "showboard") and not answer(one, "genmove w").startswith("?")
    assert answer(one, "boardsize 9") == "" and not answer(one, "genmove b").startswith("?")


def test_a_tree_is_made_once_for_each_board():
    made = []

    def new_player(rules):
        made.append(rules)
        return SingleGamePlayer(rules, HashEvaluator(rules), SEARCH, NUM_SIMULATIONS, 400)

    session = NetworkSession("a hash", new_player, GO9, NUM_SIMULATIONS)
    one = GtpServer(session, GO9)
    for line in ("genmove b", "clear_board", "genmove b"):
        assert not answer(one, line).startswith("?")
    assert len(made) == 1
