"""Many games in lock-step: one call of `advance` takes every game to its next network evaluation.

A slot plays one game. When the game ends, the slot starts the next game of the shard, so the batch stays full. A game
depends on its own random stream and on its evaluations, never on the games in other slots. In a match each game has two
trees, one per player, and each player has a batch of its own.
"""

import numpy as np

from zero.games.go import write_ownership
from zero.games.planes import write_planes
from zero.games.position import (
    ENDED,
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
from zero.games.rules import ended, margin, outcome, play
from zero.kernels import kernel
from zero.play.moves import (
    NOT_A_TARGET,
    draw_edge,
    edge_value,
    most_visited,
    policy_surprise,
    resigns,
    write_policy_target,
    write_sample_weights,
)
from zero.play.slots import (
    END_RESIGNATION,
    IDLE,
    NO_REQUEST,
    Batch,
    PlaySettings,
    Records,
    Slots,
)
from zero.search.cache import NOT_CACHED, insert, lookup
from zero.search.forced import select_forced_edge
from zero.search.gumbel import (
    begin_gumbel_search,
    descend_gumbel,
    gumbel_choice,
    write_improved_policy,
)
from zero.search.mcts import backup, descend, make_node, root_value
from zero.search.streams import next_below, next_float
from zero.search.tree import NO_EDGE, add_root_noise, clear, reroot, set_prior
from zero.storage.manifests import NO_RESIGNATION

NEEDS_EVALUATION, DONE, NO_EVALUATION_NEEDED = 0, 1, 2
"""Results of `run_simulation`: the leaf waits for the network; all simulations of the move are done; the simulation was
backed up at once, since its leaf is terminal or in the cache."""


@kernel
def advance(rules: Rules, settings: PlaySettings, slots: Slots, batch: Batch, records: Records) -> int:
    """Applies the evaluations in `batch`, plays on, and returns the number of new requests; 0: all games are done.

    Writes into `slots`, `batch` and `records`.
    """
    # All slots first: the loop below overwrites rows of the batch that later slots have not read yet.
    cache_evaluations(settings, slots, batch)
    batch.num_requests[:] = 0
    total = 0
    for slot in range(slots.game.shape[0]):
        if slots.row[slot] != NO_REQUEST:
            apply_evaluation(rules, settings, slots, slot, batch)
        # In the first call all slots are idle. Later a slot is idle only if no game is left, and the call has no
        # effect.
        elif slots.game[slot] == IDLE:
            _start_next_game(rules, settings, slots, slot, records)
        # Continues until the slot needs the network: terminal leaves, cached leaves and moves cost no evaluation.
        while slots.game[slot] != IDLE:
            step = run_simulation(rules, settings, slots, slot, batch, records.streams[slots.game[slot]])
            if step == NEEDS_EVALUATION:
                total += 1
                break
            if step == DONE:
                _play_move(rules, settings, slots, slot, records)
    records.num_evaluations[0] += total
    return total


@kernel
def player_of(settings: PlaySettings, colour: int, game: int) -> int:
    """The player that has `colour` in a game of the shard; player 0 has Black in games of even number."""
    if settings.num_players == 1:
        return 0
    # By the number in the generation, not in the shard, so that the size of shards does not change who has Black.
    black = (settings.first_game + game) % 2
    return black if colour > 0 else 1 - black


@kernel
def _start_next_game(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, records: Records) -> None:
    """Starts the next game of the shard in a slot, or makes the slot IDLE. Writes into `slots` and `records`."""
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
    # The stream stays in the records, keyed by the game: which slot plays a game has no effect on its draws.
    stream = records.streams[game]
    # Calibration games never resign; the draw happens only if resignation is on, at the start of the stream.
    records.never_resigns[game] = (
        settings.resign_threshold <= NO_RESIGNATION or next_float(stream) < settings.calibration_fraction
    )
    begin_search(settings, slots, slot, stream)


@kernel
def begin_search(settings: PlaySettings, slots: Slots, slot: int, stream: np.ndarray) -> None:
    """Starts the search for a move. Writes into `slots` and `stream`."""
    # Playout-cap randomisation draws a number only if it is on: streams of other settings must not change.
    fast = settings.full_search_fraction < 1.0 and next_float(stream) >= settings.full_search_fraction
    slots.is_fast[slot] = fast
    slots.simulations_left[slot] = settings.fast_simulations if fast else settings.num_simulations
    slots.is_new_root[slot] = True


@kernel
def cache_evaluations(settings: PlaySettings, slots: Slots, batch: Batch) -> None:
    """Inserts all evaluations of the batch into the cache, if it is on. Writes into `slots.cache`."""
    for slot in range(slots.game.shape[0]):
        row = slots.row[slot]
        if row != NO_REQUEST:
            # A tree belongs to the player to move at its root, whose network evaluates all its leaves, whoever moves
            # there.
            player = player_of(settings, slots.positions.state[slot, TO_PLAY], slots.game[slot])
            prior, value = batch.prior[player, row], batch.value[player, row]
            insert(slots.cache, player, batch.planes[player, row], prior, value)


@kernel
def apply_evaluation(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, batch: Batch) -> None:
    """Applies the evaluation of a slot's pending leaf. Writes into `slots`."""
    row = slots.row[slot]
    slots.row[slot] = NO_REQUEST
    player = player_of(settings, slots.positions.state[slot, TO_PLAY], slots.game[slot])
    tree = slot * settings.num_players + player
    _evaluate_leaf(rules, slots, slot, tree, batch.prior[player, row], batch.value[player, row])


@kernel
def _evaluate_leaf(rules: Rules, slots: Slots, slot: int, tree: int, prior: np.ndarray, value: np.float32) -> None:
    """Stores the prior of a leaf and backs its value up. Writes into `slots`."""
    set_prior(slots.trees, tree, slots.leaf[slot], prior, value, rules.symmetries[slots.symmetry[slot]])
    # The evaluation of a new root has an empty path and is not a simulation.
    if slots.path.length[slot] > 0:
        backup(slots.trees, tree, value, slots.path, slot)
        slots.simulations_left[slot] -= 1


@kernel
def run_simulation(
    rules: Rules, settings: PlaySettings, slots: Slots, slot: int, batch: Batch, stream: np.ndarray
) -> int:
    """Runs one simulation up to its evaluation. Writes into `slots`, `batch` and `stream`.

    Returns NEEDS_EVALUATION, DONE (no simulation is left) or NO_EVALUATION_NEEDED.
    """
    player = player_of(settings, slots.positions.state[slot, TO_PLAY], slots.game[slot])
    tree = slot * settings.num_players + player
    trees = slots.trees
    history = history_of(slots.histories, slot)
    if trees.num_nodes[tree] == 0:
        load(slots.positions, slot, slots.position)
        slots.path.length[slot] = 0
        leaf = make_node(rules, trees, tree, slots.position, history, slots.mask)
    elif slots.simulations_left[slot] == 0:
        return DONE
    else:
        if slots.is_new_root[slot]:
            _prepare_root(settings, slots, slot, tree, stream)
        load(slots.positions, slot, slots.position)
        leaf = _descend(rules, settings, slots, slot, tree)
        if trees.num_edges[tree, leaf] == 0:
            backup(trees, tree, trees.node_value[tree, leaf], slots.path, slot)
            slots.simulations_left[slot] -= 1
            return NO_EVALUATION_NEEDED
    # Drawn before the cache is searched: a hit takes as many draws as a miss, and the planes in the key depend on it.
    symmetry = next_below(stream, rules.symmetries.shape[0]) if settings.random_symmetry else 0
    row = batch.num_requests[player]
    # Written to the next free row at once. After a cache hit the row was not claimed, and the next request overwrites
    # it.
    planes = batch.planes[player, row]
    write_planes(rules, slots.position, history, symmetry, planes)
    slots.leaf[slot] = leaf
    slots.symmetry[slot] = symmetry
    cache = slots.cache
    entry = lookup(cache, player, planes)
    if entry != NOT_CACHED:
        _evaluate_leaf(rules, slots, slot, tree, cache.prior[entry], cache.value[entry])
        return NO_EVALUATION_NEEDED
    slots.row[slot] = row
    batch.num_requests[player] = row + 1
    return NEEDS_EVALUATION


@kernel
def _prepare_root(settings: PlaySettings, slots: Slots, slot: int, tree: int, stream: np.ndarray) -> None:
    """Adds root noise or begins a Gumbel search, once per move. Writes into `slots` and `stream`."""
    slots.is_new_root[slot] = False
    trees = slots.trees
    if settings.gumbel:
        # Fast searches have no noise (Wu 2019, 3.1): they are not policy targets, and only have to play well.
        num_simulations, scale = slots.simulations_left[slot], 0.0 if slots.is_fast[slot] else settings.gumbel_scale
        begin_gumbel_search(slots.roots, trees, tree, settings.considered_actions, num_simulations, scale, stream)
    elif settings.dirichlet_fraction > 0.0 and not slots.is_fast[slot]:
        add_root_noise(trees, tree, settings.dirichlet_concentration, settings.dirichlet_fraction, stream)


@kernel
def _descend(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, tree: int) -> int:
    """Selects a leaf, from the root position in `slots.position`, and returns its node. Writes into `slots`."""
    trees, position, mask, path = slots.trees, slots.position, slots.mask, slots.path
    history = history_of(slots.histories, slot)
    if settings.gumbel:
        simulation = slots.roots.num_simulations[tree] - slots.simulations_left[slot]
        return descend_gumbel(rules, slots.roots, trees, tree, simulation, position, history, mask, path, slot)
    root_edge = NO_EDGE
    if settings.forced_playouts > 0.0 and not slots.is_fast[slot]:
        root_edge = select_forced_edge(trees, tree, settings.forced_playouts)
    c_puct = np.float32(settings.c_puct)
    fpu_from_parent = settings.fpu_from_parent
    return descend(rules, trees, tree, root_edge, c_puct, fpu_from_parent, position, history, mask, path, slot)


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
        # The player to move resigns, so the other colour wins; outcomes are for Black. A resigned game has no area.
        records.outcome[game] = -position.state[TO_PLAY]
        records.margin[game] = 0.0
        _record_end(settings, move, END_RESIGNATION, game, records)
        _start_next_game(rules, settings, slots, slot, records)
        return
    # A Gumbel root is random already, through its Gumbel numbers.
    edge = best
    if move < settings.temperature_moves and not settings.gumbel:
        edge = draw_edge(trees, tree, records.streams[game])
    action = int(trees.action[tree, 0, edge])
    records.actions[game, move] = action
    # Before `play` changes the player to move: both values are for the player who makes this move.
    records.root_values[game, move] = value
    records.best_values[game, move] = best_value
    if not slots.is_fast[slot]:
        target = records.visit_counts[game, move]
        if settings.gumbel:
            write_improved_policy(slots.roots, trees, tree, target)
        else:
            write_policy_target(trees, tree, np.float32(settings.c_puct), settings.forced_playouts, target)
    if settings.surprise_weight > 0.0:
        surprise = (
            NOT_A_TARGET if slots.is_fast[slot] else policy_surprise(trees, tree, records.visit_counts[game, move])
        )
        records.sample_weights[game, move] = surprise
    # The history grows in place: rows that simulations wrote beyond the current move are overwritten.
    play(rules, position, history, action)
    store(position, slots.positions, slot)
    if ended(position):
        _finish_game(rules, settings, position, game, records)
        _start_next_game(rules, settings, slots, slot, records)
        return
    # The opponent's tree follows the move too.
    for p in range(settings.num_players):
        if settings.tree_reuse:
            # Leaves room for the nodes of the next search.
            max_kept = trees.action.shape[1] - settings.num_simulations - 1
            reroot(trees, slot * settings.num_players + p, action, max_kept)
        else:
            clear(trees, slot * settings.num_players + p)
    begin_search(settings, slots, slot, records.streams[game])


@kernel
def _finish_game(rules: Rules, settings: PlaySettings, position: Position, game: int, records: Records) -> None:
    """Records the result of a game that ended by the rules. Writes into `records` and the position's scratch."""
    records.outcome[game] = outcome(rules, position)
    records.margin[game] = margin(rules, position)
    if rules.game == GO:
        write_ownership(rules, position, records.ownership[game])
    _record_end(settings, position.state[NUM_MOVES], position.state[ENDED], game, records)


@kernel
def _record_end(settings: PlaySettings, num_moves: int, end: int, game: int, records: Records) -> None:
    """Records the length, the end and the sample weights of a finished game. Writes into `records`."""
    if settings.surprise_weight > 0.0:
        write_sample_weights(records.sample_weights[game, :num_moves], settings.surprise_weight)
    records.num_moves[game] = num_moves
    records.end[game] = end
    records.num_done[0] += 1
