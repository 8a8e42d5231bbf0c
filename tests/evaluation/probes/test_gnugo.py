"""GNU Go's games as they are shipped: real games by our rules, of which every move but the opening is a target."""

import numpy as np
import pytest

from zero.data.sgf import read_collection
from zero.evaluation.probes import gnugo
from zero.evaluation.probes.gnugo import GAMES_FILE, OPENING_MOVES, columns_of, gnugo_digest, gnugo_games
from zero.evaluation.probes.judge import questions_of
from zero.games.position import ENDED, new_history, new_position
from zero.games.rules import go_rules, gomoku_rules, legal_mask, margin, play
from zero.storage.files import sha256_file

GO9 = go_rules(9, 9, 7.0)
LARGEST = 300_000


def test_the_file_is_small_and_of_gnu_go():
    text = GAMES_FILE.read_text()
    games = read_collection(text)
    assert len(text) < LARGEST
    assert {game.black_name for game in games} | {game.white_name for game in games} == {"GNU Go 3.8 level 10"}
    found = gnugo_games(GO9)
    assert found is not None and found.num_games == len({game.actions for game in games}) > 10
    openings = [game.actions[:OPENING_MOVES] for game in games]
    assert max(openings.count(opening) for opening in openings) <= 2, "random moves, the same for two games"


def test_games_are_legal_and_their_margins_are_counted_alike():
    games = gnugo_games(GO9)
    assert games is not None
    for g in range(games.num_games):
        position, history, mask = new_position(GO9), new_history(GO9), np.zeros(GO9.num_actions, np.bool_)
        for action in games.actions[games.move_offsets[g] : games.move_offsets[g + 1]]:
            legal_mask(GO9, position, history, mask)
            assert mask[action]
            play(GO9, position, history, int(action))
        if games.end[g] == "passes":
            assert position.state[ENDED]
            assert margin(GO9, position) == games.margin[g]
            assert games.outcome[g] == np.sign(games.margin[g])


def test_the_opening_is_no_target():
    games = gnugo_games(GO9)
    assert games is not None
    num_edges = np.diff(games.visit_offsets)
    number = np.concatenate([np.arange(length) for length in np.diff(games.move_offsets)])
    assert np.array_equal(num_edges > 0, number >= OPENING_MOVES)
    questions = questions_of(GO9, games, 50)
    assert len(questions.value) == 50 and np.array_equal(questions.policy.sum(axis=1), np.ones(50))


@pytest.mark.parametrize("rules", [go_rules(5, 5), go_rules(9, 8), gomoku_rules(9, 9, 5)])
def test_other_boards_and_games_have_no_such_yardstick(rules):
    assert gnugo_games(rules) is None
    assert gnugo_digest(rules) is None


def test_the_file_is_known_without_being_read_as_games(monkeypatch):
    monkeypatch.setattr(gnugo, "read_collection", None)
    assert gnugo_digest(GO9) == sha256_file(GAMES_FILE)


GAME = "(;FF[4]GM[1]SZ[3]KM[{komi}]PB[b]PW[w]RE[{result}];B[bb];W[];B[])"


@pytest.mark.parametrize(
    "result, komi, outcome, margin",
    [("B+8.5", 0.5, 1, 6.0), ("B+2", 0, -1, -1.0), ("W+3.5", 0.5, -1, -6.0), ("0", 3, 0, 0.0), ("B+R", 9, 1, 0.0)],
)
def test_a_result_is_counted_anew_with_the_rules_komi(result, komi, outcome, margin):
    games = columns_of(go_rules(3, 3, 3.0), read_collection(GAME.format(result=result, komi=komi)), 0)
    assert games is not None
    assert games.margin[0] == margin
    assert games.outcome[0] == outcome


@pytest.mark.parametrize("result", ["", "?", "Void", "B+"])
def test_a_game_without_a_result_is_left_out(result):
    assert columns_of(go_rules(3, 3), read_collection(GAME.format(result=result, komi=0)), 0) is None
