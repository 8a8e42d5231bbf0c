"""Many games in lock-step: one call of `advance` takes every game to its next question to a network.

A slot holds one game; when it ends the slot takes the next game of the shard: the batch stays full. What happens in
a game depends on its own stream and on the answers it gets, never on its neighbours. In a match each game has two
trees, one a player, and the questions of the two players go to separate batches.
"""

import numpy as np

from zero.games.planes import write_planes
from zero.games.position import (
    GO,
    NUM_MOVES,
    TO_PLAY,
    Position,
    Rules,
    history_of,
    load,
    reset,
    store,
)
from zero.games.rules import ended, margin, outcome, play, write_owners
from zero.kernels import kernel
from zero.play.moves import (
    draw_edge,
    edge_value,
    end_by_rules,
    most_visited,
    resigns,
    write_policy_target,
)
from zero.play.slots import (
    END_RESIGNATION,
    IDLE,
    NO_QUESTION,
    Batch,
    PlaySettings,
    Records,
    Slots,
)
from zero.search.cache import entry_of, holds, remember
from zero.search.forced import select_forced_edge
from zero.search.gumbel import (
    descend_gumbel,
    draw_gumbel,
    gumbel_choice,
    improved_policy,
)
from zero.search.mcts import backup, descend, make_node, root_value
from zero.search.streams import next_below, next_float
from zero.search.tree import NO_EDGE, add_root_noise, clear, reroot, set_prior
from zero.storage.manifests import NO_RESIGNATION

ASKED, SEARCHED, COUNTED = 0, 1, 2
"""A simulation waits for an answer; the search for a move is done; a simulation needed no answer."""


@kernel
def advance(rules: Rules, settings: PlaySettings, slots: Slots, batch: Batch, records: Records) -> int:
    """Takes the answers in `batch`, plays on, and returns the number of new questions; 0: all games are done.

    Writes into `slots`, `batch` and `records`.
    """
    if slots.cache.player.shape[0] > 0:
        remember_answers(settings, slots, batch)
    batch.num_questions[:] = 0
    total = 0
    for slot in range(slots.game.shape[0]):
        if slots.row[slot] != NO_QUESTION:
            take_answer(rules, settings, slots, slot, batch)
        elif slots.game[slot] == IDLE:
            _take_game(rules, settings, slots, slot, records)
        while slots.game[slot] != IDLE:
            step = next_question(rules, settings, slots, slot, batch, records.streams[slots.game[slot]])
            if step == ASKED:
                total += 1
                break
            if step == SEARCHED:
                _play_move(rules, settings, slots, slot, records)
    records.num_evaluations[0] += total
    return total


@kernel
def player_of(settings: PlaySettings, colour: int, game: int) -> int:
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
    stream = records.streams[game]
    records.never_resigns[game] = (
        settings.resign_threshold <= NO_RESIGNATION or next_float(stream) < settings.calibration_fraction
    )
    begin_search(settings, slots, slot, stream)


@kernel
def begin_search(settings: PlaySettings, slots: Slots, slot: int, stream: np.ndarray) -> None:
    """Sets up the search for a move. Writes into `slots` and `stream`."""
    fast = settings.full_search_fraction < 1.0 and next_float(stream) >= settings.full_search_fraction
    slots.is_fast[slot] = fast
    slots.simulations_left[slot] = settings.fast_simulations if fast else settings.num_simulations
    slots.is_new_root[slot] = True


@kernel
def remember_answers(settings: PlaySettings, slots: Slots, batch: Batch) -> None:
    """Keeps all answers before their rows are written over. Writes into `slots.cache`."""
    for slot in range(slots.game.shape[0]):
        row = slots.row[slot]
        if row != NO_QUESTION:
            player = player_of(settings, slots.positions.state[slot, TO_PLAY], slots.game[slot])
            prior, value = batch.prior[player, row], batch.value[player, row]
            remember(slots.cache, player, batch.planes[player, row], prior, value)


@kernel
def take_answer(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, batch: Batch) -> None:
    """Gives the leaf of a question its answer. Writes into `slots`."""
    row = slots.row[slot]
    slots.row[slot] = NO_QUESTION
    player = player_of(settings, slots.positions.state[slot, TO_PLAY], slots.game[slot])
    tree = slot * settings.num_players + player
    _judge_leaf(rules, slots, slot, tree, batch.prior[player, row], batch.value[player, row])


@kernel
def _judge_leaf(rules: Rules, slots: Slots, slot: int, tree: int, prior: np.ndarray, value: np.float32) -> None:
    """Gives the leaf its prior and backs its value up. Writes into `slots`."""
    set_prior(slots.trees, tree, slots.leaf[slot], prior, value, rules.symmetries[slots.symmetry[slot]])
    if slots.path.length[slot] > 0:
        backup(slots.trees, tree, value, slots.path, slot)
        slots.simulations_left[slot] -= 1


@kernel
def next_question(
    rules: Rules, settings: PlaySettings, slots: Slots, slot: int, batch: Batch, stream: np.ndarray
) -> int:
    """Does one simulation: ASKED, SEARCHED (none is left to do) or COUNTED. Writes into all but rules and settings."""
    player = player_of(settings, slots.positions.state[slot, TO_PLAY], slots.game[slot])
    tree = slot * settings.num_players + player
    trees = slots.trees
    history = history_of(slots.histories, slot)
    if trees.num_nodes[tree] == 0:
        load(slots.positions, slot, slots.position)
        slots.path.length[slot] = 0
        leaf = make_node(rules, trees, tree, slots.position, history, slots.mask)
    elif slots.simulations_left[slot] == 0:
        return SEARCHED
    else:
        if slots.is_new_root[slot]:
            _prepare_root(settings, slots, slot, tree, stream)
        load(slots.positions, slot, slots.position)
        leaf = _descend(rules, settings, slots, slot, tree)
        if trees.num_edges[tree, leaf] == 0:
            backup(trees, tree, trees.node_value[tree, leaf], slots.path, slot)
            slots.simulations_left[slot] -= 1
            return COUNTED
    symmetry = next_below(stream, rules.symmetries.shape[0]) if settings.random_symmetry else 0
    row = batch.num_questions[player]
    planes = batch.planes[player, row]
    write_planes(rules, slots.position, history, symmetry, planes)
    slots.leaf[slot] = leaf
    slots.symmetry[slot] = symmetry
    cache = slots.cache
    if cache.player.shape[0] > 0:
        entry = entry_of(cache, player, planes)
        if holds(cache, entry, player, planes):
            _judge_leaf(rules, slots, slot, tree, cache.prior[entry], cache.value[entry])
            return COUNTED
    slots.row[slot] = row
    batch.num_questions[player] = row + 1
    return ASKED


@kernel
def _prepare_root(settings: PlaySettings, slots: Slots, slot: int, tree: int, stream: np.ndarray) -> None:
    """Gives a root what makes it differ from other nodes, once a move. Writes into `slots` and `stream`."""
    slots.is_new_root[slot] = False
    trees = slots.trees
    if settings.gumbel:
        num_simulations, scale = slots.simulations_left[slot], 0.0 if slots.is_fast[slot] else settings.gumbel_scale
        draw_gumbel(slots.roots, trees, tree, settings.considered_actions, num_simulations, scale, stream)
    elif settings.dirichlet_fraction > 0.0 and not slots.is_fast[slot]:
        add_root_noise(trees, tree, settings.dirichlet_concentration, settings.dirichlet_fraction, stream)


@kernel
def _descend(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, tree: int) -> int:
    """Selects down to a leaf from the position in `slots.position`, which it moves there. Writes into `slots`."""
    trees, position, mask, path = slots.trees, slots.position, slots.mask, slots.path
    history = history_of(slots.histories, slot)
    if settings.gumbel:
        simulation = slots.roots.num_simulations[tree] - slots.simulations_left[slot]
        return descend_gumbel(rules, slots.roots, trees, tree, simulation, position, history, mask, path, slot)
    root_edge = NO_EDGE
    if settings.forced_playouts > 0.0 and not slots.is_fast[slot]:
        root_edge = select_forced_edge(trees, tree, settings.forced_playouts)
    c_puct, parent = np.float32(settings.c_puct), settings.parent_first_play
    return descend(rules, trees, tree, root_edge, c_puct, parent, position, history, mask, path, slot)


@kernel
def _play_move(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, records: Records) -> None:
    """Chooses, records and plays the move of a finished search. Writes into `slots` and `records`."""
    game = slots.game[slot]
    position, history = slots.position, history_of(slots.histories, slot)
    load(slots.positions, slot, position)
    move = position.state[NUM_MOVES]
    player = player_of(settings, position.state[TO_PLAY], game)
    tree = slot * settings.num_players + player
    trees = slots.trees
    best = gumbel_choice(slots.roots, trees, tree) if settings.gumbel else most_visited(trees, tree)
    value, best_value = root_value(trees, tree), edge_value(trees, tree, best)
    if not records.never_resigns[game] and resigns(move, value, best_value, settings.resign_threshold):
        records.outcome[game] = -position.state[TO_PLAY]
        records.margin[game] = 0.0
        _close_game(move, END_RESIGNATION, game, records)
        _take_game(rules, settings, slots, slot, records)
        return
    edge = best
    if move < settings.temperature_moves and not settings.gumbel:
        edge = draw_edge(trees, tree, records.streams[game])
    action = int(trees.action[tree, 0, edge])
    records.actions[game, move] = action
    records.root_values[game, move] = value
    records.best_values[game, move] = best_value
    if not slots.is_fast[slot]:
        target = records.visit_counts[game, move]
        if settings.gumbel:
            improved_policy(slots.roots, trees, tree, target)
        else:
            write_policy_target(trees, tree, np.float32(settings.c_puct), settings.forced_playouts, target)
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
    begin_search(settings, slots, slot, records.streams[game])


@kernel
def _finish_game(rules: Rules, position: Position, game: int, records: Records) -> None:
    """Writes the result of a game that was played out into `records`."""
    records.outcome[game] = outcome(rules, position)
    records.margin[game] = margin(rules, position)
    if rules.game == GO:
        write_owners(rules, position, records.ownership[game])
    _close_game(position.state[NUM_MOVES], end_by_rules(rules, position), game, records)


@kernel
def _close_game(num_moves: int, end: int, game: int, records: Records) -> None:
    """Counts a finished game. Writes into `records`."""
    records.num_moves[game] = num_moves
    records.end[game] = end
    records.num_done[0] += 1
