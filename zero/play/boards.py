"""Many games in lock-step: one call of `advance` takes every game to its next question to a network.

A slot holds one game; when it ends the slot takes the next game of the shard: the batch stays full. What happens in
a game depends on its own stream and on the answers it gets, never on its neighbours. In a match each game has two
trees, one a player, and the questions of the two players go to separate batches.
"""

from typing import NamedTuple

import numpy as np

from zero._jit import kernel
from zero.games.planes import write_planes
from zero.games.position import (
    GO,
    NUM_MOVES,
    NUM_PASSES,
    NUM_PLANES,
    TO_PLAY,
    WINNER,
    History,
    Position,
    Rules,
    history_of,
    load,
    new_histories,
    new_position,
    new_positions,
    reset,
    store,
)
from zero.games.rules import ended, margin, outcome, play
from zero.search.mcts import Path, backup, descend, make_node, new_path, root_value
from zero.search.streams import STREAM_WORDS, next_below, next_float
from zero.search.tree import Trees, add_root_noise, clear, new_trees, reroot, set_prior

IDLE = -1
"""Game of a slot that has none left to play."""
NO_QUESTION = -1

END_PASSES, END_LENGTH, END_LINE, END_FULL = 0, 1, 2, 3
END_NAMES = ("passes", "length", "line", "full")
"""How a game ended: two passes, the longest a game may last, k in a row, a full board."""

MAX_VISITS = 65535
"""Visits of an edge that a record can hold. Reuse of a tree with one good line adds up to more than a search's own."""


class PlaySettings(NamedTuple):
    """How the games of a shard are played; an argument of the kernels."""

    num_players: int  # 1: self-play; 2: a match, player 0 has Black in the games of even number
    num_simulations: int
    c_puct: float
    parent_first_play: bool
    random_symmetry: bool
    tree_reuse: bool
    temperature_moves: int
    dirichlet_concentration: float
    dirichlet_fraction: float
    first_game: int  # number of the shard's first game in its generation


class Slots(NamedTuple):
    """Games in play: G slots, P players, T = G * P trees (tree of player p in slot s: s * P + p)."""

    game: np.ndarray  # [G] int32, game within the shard, or IDLE
    positions: Position  # leading axis G
    histories: History  # leading axis G
    trees: Trees
    path: Path
    leaf: np.ndarray  # [G] int32, node that waits for an answer
    row: np.ndarray  # [G] int32, its row in the player's batch, or NO_QUESTION
    symmetry: np.ndarray  # [G] int32, under which it is shown
    simulations_left: np.ndarray  # [G] int32, of the move in hand
    wants_noise: np.ndarray  # [G] bool, the root has not had its noise
    next_game: np.ndarray  # [1] int32, first game that no slot has taken
    position: Position  # scratch: the position a simulation walks
    mask: np.ndarray  # [A] bool, scratch


class Batch(NamedTuple):
    """Questions and answers, by player."""

    num_questions: np.ndarray  # [P] int32
    planes: np.ndarray  # [P, G, 17, S*S] float32
    prior: np.ndarray  # [P, G, A] float32
    value: np.ndarray  # [P, G] float32


class Records(NamedTuple):
    """The games of a shard as they are played: M games of up to T moves."""

    streams: np.ndarray  # [M, 3] uint64
    actions: np.ndarray  # [M, T] int16
    visit_counts: np.ndarray  # [M, T, A] uint16
    root_values: np.ndarray  # [M, T] float32, seen by the player to move
    num_moves: np.ndarray  # [M] int32
    outcome: np.ndarray  # [M] int8, for Black
    margin: np.ndarray  # [M] float32
    end: np.ndarray  # [M] int8, index of END_NAMES
    num_done: np.ndarray  # [1] int32
    num_evaluations: np.ndarray  # [1] int64


def new_slots(rules: Rules, num_slots: int, num_players: int, max_nodes: int) -> Slots:
    """Slots that have not taken a game."""
    return Slots(
        game=np.full(num_slots, IDLE, np.int32),
        positions=new_positions(rules, num_slots),
        histories=new_histories(rules, num_slots),
        trees=new_trees(num_slots * num_players, max_nodes, rules.num_actions),
        path=new_path(num_slots, min(max_nodes, rules.max_moves) + 1),
        leaf=np.zeros(num_slots, np.int32),
        row=np.full(num_slots, NO_QUESTION, np.int32),
        symmetry=np.zeros(num_slots, np.int32),
        simulations_left=np.zeros(num_slots, np.int32),
        wants_noise=np.zeros(num_slots, np.bool_),
        next_game=np.zeros(1, np.int32),
        position=new_position(rules),
        mask=np.zeros(rules.num_actions, np.bool_),
    )


def new_batch(rules: Rules, num_slots: int, num_players: int) -> Batch:
    """A batch with a row for each slot."""
    return Batch(
        num_questions=np.zeros(num_players, np.int32),
        planes=np.zeros((num_players, num_slots, NUM_PLANES, rules.num_points), np.float32),
        prior=np.zeros((num_players, num_slots, rules.num_actions), np.float32),
        value=np.zeros((num_players, num_slots), np.float32),
    )


def new_records(rules: Rules, streams: np.ndarray) -> Records:
    """Empty records for the games of `streams` ([M, 3] uint64)."""
    assert streams.shape[1] == STREAM_WORDS
    games, moves = len(streams), rules.max_moves
    return Records(
        streams=streams.copy(),
        actions=np.zeros((games, moves), np.int16),
        visit_counts=np.zeros((games, moves, rules.num_actions), np.uint16),
        root_values=np.zeros((games, moves), np.float32),
        num_moves=np.zeros(games, np.int32),
        outcome=np.zeros(games, np.int8),
        margin=np.zeros(games, np.float32),
        end=np.zeros(games, np.int8),
        num_done=np.zeros(1, np.int32),
        num_evaluations=np.zeros(1, np.int64),
    )


@kernel
def advance(rules: Rules, settings: PlaySettings, slots: Slots, batch: Batch, records: Records) -> int:
    """Takes the answers in `batch`, plays on, and returns the number of new questions; 0: all games are done.

    Writes into `slots`, `batch` and `records`.
    """
    batch.num_questions[:] = 0
    total = 0
    for slot in range(slots.game.shape[0]):
        if slots.row[slot] != NO_QUESTION:
            _take_answer(rules, settings, slots, slot, batch)
        elif slots.game[slot] == IDLE:
            _take_game(rules, settings, slots, slot, records)
        while slots.game[slot] != IDLE:
            if _next_question(rules, settings, slots, slot, batch, records):
                total += 1
                break
    records.num_evaluations[0] += total
    return total


@kernel
def _player(settings: PlaySettings, colour: int, game: int) -> int:
    """Which player has `colour` in a game of the shard."""
    if settings.num_players == 1:
        return 0
    black = (settings.first_game + game) % 2
    return black if colour > 0 else 1 - black


@kernel
def _take_game(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, records: Records) -> None:
    """Puts the next game of the shard into a slot, or IDLE. Writes into `slots`."""
    game = slots.next_game[0]
    if game >= records.num_moves.shape[0]:
        slots.game[slot] = IDLE
        return
    slots.next_game[0] = game + 1
    slots.game[slot] = game
    reset(rules, slots.position, history_of(slots.histories, slot))
    store(slots.position, slots.positions, slot)
    for player in range(settings.num_players):
        clear(slots.trees, slot * settings.num_players + player)
    slots.simulations_left[slot] = settings.num_simulations
    slots.wants_noise[slot] = settings.dirichlet_fraction > 0.0


@kernel
def _take_answer(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, batch: Batch) -> None:
    """Gives the leaf its prior and backs its value up. Writes into `slots`."""
    row = slots.row[slot]
    slots.row[slot] = NO_QUESTION
    player = _player(settings, slots.positions.state[slot, TO_PLAY], slots.game[slot])
    tree = slot * settings.num_players + player
    leaf = slots.leaf[slot]
    set_prior(slots.trees, tree, leaf, batch.prior[player, row], rules.symmetries[slots.symmetry[slot]])
    if slots.path.length[slot] > 0:
        backup(slots.trees, tree, batch.value[player, row], slots.path, slot)
        slots.simulations_left[slot] -= 1


@kernel
def _next_question(
    rules: Rules, settings: PlaySettings, slots: Slots, slot: int, batch: Batch, records: Records
) -> bool:
    """Does one simulation or move; True where it ended in a question. Writes into everything but the rules."""
    game = slots.game[slot]
    player = _player(settings, slots.positions.state[slot, TO_PLAY], game)
    tree = slot * settings.num_players + player
    trees = slots.trees
    history = history_of(slots.histories, slot)
    if trees.num_nodes[tree] == 0:
        load(slots.positions, slot, slots.position)
        slots.path.length[slot] = 0
        leaf = make_node(rules, trees, tree, slots.position, history, slots.mask)
    elif slots.simulations_left[slot] == 0:
        _play_move(rules, settings, slots, slot, records)
        return False
    else:
        if slots.wants_noise[slot]:
            add_root_noise(
                trees, tree, settings.dirichlet_concentration, settings.dirichlet_fraction, records.streams[game]
            )
            slots.wants_noise[slot] = False
        load(slots.positions, slot, slots.position)
        leaf = descend(
            rules,
            trees,
            tree,
            np.float32(settings.c_puct),
            settings.parent_first_play,
            slots.position,
            history,
            slots.mask,
            slots.path,
            slot,
        )
        if trees.num_edges[tree, leaf] == 0:
            backup(trees, tree, trees.end_value[tree, leaf], slots.path, slot)
            slots.simulations_left[slot] -= 1
            return False
    symmetry = next_below(records.streams[game], rules.symmetries.shape[0]) if settings.random_symmetry else 0
    row = batch.num_questions[player]
    batch.num_questions[player] = row + 1
    write_planes(rules, slots.position, history, symmetry, batch.planes[player, row])
    slots.leaf[slot] = leaf
    slots.row[slot] = row
    slots.symmetry[slot] = symmetry
    return True


@kernel
def _play_move(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, records: Records) -> None:
    """Chooses, records and plays the move of a finished search. Writes into `slots` and `records`."""
    game = slots.game[slot]
    position, history = slots.position, history_of(slots.histories, slot)
    load(slots.positions, slot, position)
    move = position.state[NUM_MOVES]
    player = _player(settings, position.state[TO_PLAY], game)
    tree = slot * settings.num_players + player
    trees = slots.trees
    edge = choose_edge(trees, tree, move < settings.temperature_moves, records.streams[game])
    action = int(trees.action[tree, 0, edge])
    records.actions[game, move] = action
    records.root_values[game, move] = root_value(trees, tree)
    for e in range(trees.num_edges[tree, 0]):
        visits = min(trees.visit_count[tree, 0, e], MAX_VISITS)
        records.visit_counts[game, move, trees.action[tree, 0, e]] = visits
    play(rules, position, history, action)
    store(position, slots.positions, slot)
    if ended(position):
        _finish_game(rules, position, game, records)
        _take_game(rules, settings, slots, slot, records)
        return
    for p in range(settings.num_players):
        if settings.tree_reuse:
            room = trees.action.shape[1] - settings.num_simulations - 1
            reroot(trees, slot * settings.num_players + p, action, room)
        else:
            clear(trees, slot * settings.num_players + p)
    slots.simulations_left[slot] = settings.num_simulations
    slots.wants_noise[slot] = settings.dirichlet_fraction > 0.0


@kernel
def choose_edge(trees: Trees, tree: int, at_random: bool, stream: np.ndarray) -> int:
    """The root's edge to play: drawn by visit counts (temperature 1), or the most visited. Writes into `stream`.

    Of equally visited edges the one with the greater prior is played, then the first.
    """
    visit_count, prior = trees.visit_count[tree, 0], trees.prior[tree, 0]
    edges = trees.num_edges[tree, 0]
    if at_random:
        left = next_float(stream) * trees.node_visits[tree, 0]
        for e in range(edges):
            left -= visit_count[e]
            if left < 0.0:
                return e
    best = 0
    for e in range(1, edges):
        if visit_count[e] > visit_count[best] or (visit_count[e] == visit_count[best] and prior[e] > prior[best]):
            best = e
    return best


@kernel
def _finish_game(rules: Rules, position: Position, game: int, records: Records) -> None:
    """Writes the result of an ended game into `records`."""
    records.num_moves[game] = position.state[NUM_MOVES]
    records.outcome[game] = outcome(rules, position)
    records.margin[game] = margin(rules, position)
    if rules.game == GO:
        records.end[game] = END_PASSES if position.state[NUM_PASSES] == 2 else END_LENGTH
    else:
        records.end[game] = END_LINE if position.state[WINNER] != 0 else END_FULL
    records.num_done[0] += 1
