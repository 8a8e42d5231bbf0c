"""Input of a player: legal and illegal moves, undo, and numbers out of range."""

import itertools
import resource

import numpy as np
import pytest

from tests.network.networks import CPU, randomized_network
from tests.play.players import GO3, GO5, play_names, player
from zero.errors import MoveError, ParamsError
from zero.games.coordinates import name_to_action
from zero.games.rules import go_rules, gomoku_rules
from zero.network.inference import new_evaluator
from zero.network.weights import weights_bytes
from zero.play.player import Player
from zero.search.evaluator import UniformEvaluator


def test_undo_restores_the_state():
    one = player(GO3)
    play_names(one, "A2 pass B1")
    before = (one.board().tolist(), one.legal_mask().tolist(), one.to_play, one.search().visit_counts.tolist())
    one.play(one.choose())
    one.undo()
    after = (one.board().tolist(), one.legal_mask().tolist(), one.to_play, one.search().visit_counts.tolist())
    assert after == before
    assert len(one.actions) == 3


def test_undo_works_after_the_end_of_the_game():
    one = play_names(player(GO3), "B2 pass pass")
    assert one.is_over
    assert (one.outcome(), one.margin()) == (1, 8.5)
    one.undo()
    one.play(0)
    assert one.actions[-1] == 0


def test_a_new_game_starts_on_the_empty_board():
    one = play_names(player(GO3), "B2 A1")
    one.new_game()
    assert not one.board().any()
    assert (one.actions, one.to_play) == ((), 1)
    assert one.search().visit_counts.sum() == 30


@pytest.mark.parametrize(
    ("moves", "move", "message"),
    [
        ("C3", "C3", "illegal move C3: there is a black stone; play on an empty point"),
        ("pass C3", "C3", "illegal move C3: there is a white stone; play on an empty point"),
        ("A2 pass B1", "A1", "illegal move A1: it would be suicide, which these rules forbid; play elsewhere"),
        # A ko: White takes C2 back at once.
        (
            "B3 C3 A2 D2 B1 C1 C2 B2",
            "C2",
            "illegal move C2: it would repeat the position after move 7 (positional superko); play elsewhere first",
        ),
        (
            "pass pass",
            "A1",
            "illegal move A1: the game is over after 2 moves; undo a move or start a new game",
        ),
    ],
)
def test_an_illegal_move_is_rejected_with_its_reason(moves, move, message):
    one = play_names(player(), moves)
    board, actions = one.board(), one.actions
    with pytest.raises(MoveError) as caught:
        one.play(name_to_action(GO5, move))
    assert str(caught.value) == message
    assert (one.board() == board).all()
    assert one.actions == actions
    if not one.is_over:  # the attempt has no effect
        one.play(name_to_action(GO5, "E5"))
        other = play_names(player(), moves + " E5")
        assert one.search().visit_counts.tolist() == other.search().visit_counts.tolist()


def test_a_suicide_that_repeats_is_rejected_as_repetition():
    rules = go_rules(1, 2, 0.0, allow_suicide=True)._replace(max_moves=9)
    one = player(rules)
    play_names(one, "A1 pass")
    with pytest.raises(MoveError, match=r"B1: it would repeat the position after move 0 \(positional superko\)"):
        one.play(1)


@pytest.mark.parametrize("action", [-1, 26, 1000])
def test_an_action_beyond_the_board_is_rejected(action):
    with pytest.raises(MoveError, match=f"illegal move {action}: a 5x5 board has the actions 0 to 25"):
        player().play(action)


def test_illegal_moves_of_gomoku_are_rejected():
    one = player(gomoku_rules(4, 5, 3))
    one.play(3)
    with pytest.raises(MoveError, match="black stone"):
        one.play(3)
    for action in (0, 8, 1, 13):
        one.play(action)
    assert one.is_over
    assert one.outcome() == 1
    with pytest.raises(MoveError, match="the game is over after 5 moves"):
        one.play(10)


def test_every_illegal_action_is_rejected_and_no_legal_one():
    game_numbers = itertools.count()
    for rules in (go_rules(3, 3, 0.5), go_rules(2, 2, 0.0, allow_suicide=True)):
        for _ in range(10):
            one = player(rules, num_simulations=0, seed=next(game_numbers))
            while not one.is_over:
                before = one.actions
                for action in np.flatnonzero(~one.legal_mask()):
                    with pytest.raises(MoveError):
                        one.play(int(action))
                assert one.actions == before
                one.play(one.choose(10.0))


def test_undo_without_moves_is_rejected():
    with pytest.raises(MoveError, match="no move to take back: the game has no moves yet"):
        player().undo()


@pytest.mark.parametrize("ask", [Player.search, Player.choose, lambda one: one.should_resign(-0.5)])
def test_an_ended_game_is_not_searched(ask):
    one = play_names(player(), "pass pass")
    with pytest.raises(MoveError, match="no move to search: the game is over after 2 moves; start a new game"):
        ask(one)


def test_a_game_in_play_has_no_outcome():
    with pytest.raises(MoveError, match="no outcome after 1 moves: the game is not over; use the margin instead"):
        play_names(player(), "C3").outcome()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_leaves": 0}, "num_leaves must be from 1 to 256, got 0"),
        ({"num_leaves": 257}, "num_leaves must be from 1 to 256, got 257"),
        ({"virtual_loss": 0}, "virtual_loss must be from 1 to 100, got 0"),
        ({"virtual_loss": -1}, "virtual_loss must be from 1 to 100, got -1"),
        ({"max_nodes": 1}, "max_nodes must be from 2 to 16777216, got 1"),
        ({"max_nodes": 2**24 + 1}, "max_nodes must be from 2 to 16777216, got 16777217"),
        ({"max_nodes": 31}, "num_simulations = 30 does not fit in a tree of max_nodes = 31; use at most 29, or"),
        ({"num_simulations": -1}, "num_simulations must be from 0 to 198, got -1"),
        ({"num_simulations": 199}, "num_simulations = 199 does not fit .* or max_nodes = 201 or more"),
        ({"c_puct": 0.0}, "c_puct must be above 0 and at most 100, got 0.0"),
        ({"c_puct": float("nan")}, "c_puct must be above 0 and at most 100, got nan"),
        ({"considered_actions": 363}, "considered_actions must be from 0 to 362, got 363"),
        ({"value_scale": 0.0}, "value_scale must be above 0 and at most 10, got 0.0"),
        ({"value_scale": float("nan")}, "value_scale must be above 0 and at most 10, got nan"),
        ({"seconds": 0.0}, "seconds must be above 0, or None for no limit, got 0.0"),
        ({"seconds": float("inf")}, "seconds must be above 0, or None for no limit, got inf"),
    ],
)
def test_settings_out_of_range_are_rejected(changes, message):
    with pytest.raises(ParamsError, match=message):
        player(**changes)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda one: one.search(199), "num_simulations = 199 does not fit"),
        (lambda one: one.search(-1), "num_simulations must be from 0 to 198, got -1"),
        (lambda one: one.search(seconds=-2.0), "seconds must be above 0, or None for no limit, got -2.0"),
        (lambda one: one.choose(-0.1), r"temperature must be 0 \(the best move\) or more, got -0.1"),
        (lambda one: one.choose(float("nan")), r"temperature must be 0 \(the best move\) or more, got nan"),
        (lambda one: one.should_resign(1.5), r"threshold must be from -1 \(never resign\) to 1, got 1.5"),
    ],
)
def test_arguments_out_of_range_are_rejected(ask, message):
    with pytest.raises(ParamsError, match=message):
        ask(player())


def test_a_tree_too_large_for_memory_is_rejected():
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (64 * 2**30, limits[1]))  # below the 110 GB of the tree, on any machine
    try:
        with pytest.raises(ParamsError, match=r"max_nodes = 16777216 does not fit in memory: a node .* takes 6,516"):
            player(go_rules(19, 19), UniformEvaluator(), max_nodes=2**24)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("rules", [go_rules(9, 9, 0.5), gomoku_rules(5, 5, 4)], ids=["9x9", "without a pass"])
def test_a_network_for_another_board_is_rejected(rules):
    evaluator = new_evaluator(weights_bytes(randomized_network()), CPU)
    with pytest.raises(ParamsError, match="the network is for a 5x5 board with 26 actions, the game has"):
        player(rules, evaluator)
