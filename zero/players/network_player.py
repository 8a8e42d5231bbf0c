"""A network and a search as a player of a match. With 0 simulations it plays by the network's prior alone.

The searches in many games are those of `zero.play.lockstep_games`, with moves from outside. A batch has one row per
game in which the player is to move. A choice depends on the game's own random stream and moves, never on other games.
"""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from zero.config.params import SearchParams, match_play
from zero.errors import ParamsError
from zero.games.position import NUM_MOVES, Rules, history_of, load, reset, store
from zero.games.rules import play
from zero.kernels import kernel
from zero.play.batched_games import batch_shape
from zero.play.lockstep_games import (
    DONE,
    NEEDS_EVALUATION,
    apply_evaluation,
    begin_search,
    cache_evaluations,
    run_simulation,
)
from zero.play.moves import edge_value, most_visited, resigns
from zero.play.single_game import check_board
from zero.play.slots import NO_REQUEST, Batch, PlaySettings, Slots, new_batch, new_slots, play_settings
from zero.players.player import RESIGN, PlayerId, Reply
from zero.search.evaluator import AsyncEvaluator, Evaluator
from zero.search.gumbel import gumbel_choice
from zero.search.mcts import root_value
from zero.search.streams import STREAM_WORDS, stream_of
from zero.search.tree import clear, reroot
from zero.storage.manifests import NO_RESIGNATION

REUSED_SHARE = 1
"""Maximum number of nodes kept of a reused tree, as a multiple of the nodes of one search."""
DEVICE_LOCK = threading.Lock()
"""Lock for GPUs: two players search in two threads, and CUDA captures a graph only while no other thread computes."""


class NetworkPlayer:
    """Plays the best move of a search without noise, in up to `num_slots` games at once."""

    def __init__(
        self,
        player_id: PlayerId,
        rules: Rules,
        evaluator: Evaluator,
        search: SearchParams,
        num_simulations: int,
        num_slots: int,
        seed: int,
        resign_threshold: float = NO_RESIGNATION,
    ) -> None:
        """Allocates the trees.

        Args:
          player_id: the identity of the player.
          rules: the game.
          evaluator: evaluates positions of this board.
          search: search parameters. `max_nodes` is ignored: a tree holds one search and as many reused nodes.
          num_simulations: simulations for each move; 0 plays by the network's prior alone.
          num_slots: maximum number of open games.
          seed: seed of the symmetries, together with the game's number.
          resign_threshold: the player resigns below this value; -1 means never.

        Raises:
          ParamsError: the evaluator is a network for another board, or the trees do not fit in memory.
        """
        check_board(rules, evaluator)
        self.id = player_id
        self._rules, self._evaluator, self._seed = rules, evaluator, seed
        params = match_play(num_slots, max(1, num_simulations))
        self._settings = play_settings(search, params, resign_threshold=resign_threshold)
        if num_simulations == 0:  # the network's priors alone, which is not a search
            self._settings = self._settings._replace(
                num_simulations=0, fast_simulations=0, tree_reuse=False, gumbel=False
            )
        max_nodes = (1 + REUSED_SHARE) * num_simulations + 2
        try:
            self._slots = new_slots(rules, self._settings, num_slots, max_nodes)
        except MemoryError:
            raise ParamsError(
                f"{num_slots} games at once with {num_simulations} simulations do not fit in memory; give fewer"
            ) from None
        self._batch = new_batch(rules, num_slots, 1)
        self._streams = np.zeros((num_slots, STREAM_WORDS), np.uint64)
        self._searching = np.zeros(num_slots, np.bool_)  # slots whose search is not finished
        self._free = list(range(num_slots))
        self._slot_of: dict[int, int] = {}
        self._device_lock: AbstractContextManager[object] = (
            DEVICE_LOCK if isinstance(evaluator, AsyncEvaluator) else nullcontext()
        )

    def begin(self, games: Sequence[int]) -> None:
        """Sets up the empty board of new games."""
        for game in games:
            slot = self._slot_of[game] = self._free.pop(0)
            self._streams[slot] = stream_of(self._seed, 0, "match", game)
            open_slot(self._rules, self._slots, slot, game)

    def choose(self, games: Sequence[int]) -> list[Reply]:
        """Searches all of the games together, so that their leaves share one evaluation batch."""
        slots = [self._slot_of[game] for game in games]
        for slot in slots:
            begin_search(self._settings, self._slots, slot, self._streams[slot])
            self._searching[slot] = True
        batch = self._batch
        while num_requests := advance_searches(
            *(self._rules, self._settings, self._slots, batch, self._streams, self._searching)
        ):
            # padded to one of a few shapes, because each needs a compiled kernel or a captured graph of its own
            rows = batch_shape(num_requests, len(self._streams))
            with self._device_lock:
                self._evaluator.evaluate(batch.planes[0, :rows], batch.prior[0, :rows], batch.value[0, :rows])
        return [self._reply(slot) for slot in slots]

    def play(self, game: int, action: int) -> None:
        """Plays a move of either side."""
        play_in_slot(self._rules, self._settings, self._slots, self._slot_of[game], action)

    def end(self, game: int) -> None:
        """Frees the game's slot."""
        self._free.append(self._slot_of.pop(game))
        self._free.sort()  # `begin` takes the lowest slot, so that a match is repeatable

    def close(self) -> None:
        """Does nothing: memory is freed with the object."""

    def _reply(self, slot: int) -> Reply:
        """Result of a finished search: the most visited action or the choice of a Gumbel root, or resignation."""
        trees, settings = self._slots.trees, self._settings
        edge = gumbel_choice(self._slots.roots, trees, slot) if settings.gumbel else most_visited(trees, slot)
        values = root_value(trees, slot), edge_value(trees, slot, edge)
        if not trees.node_visits[slot, 0]:  # without simulations only the network has a value
            values = trees.node_value[slot, 0], trees.node_value[slot, 0]
        if resigns(int(self._slots.positions.state[slot, NUM_MOVES]), *values, settings.resign_threshold):
            return Reply(RESIGN)
        return Reply(int(trees.action[slot, 0, edge]))


@kernel
def open_slot(rules: Rules, slots: Slots, slot: int, game: int) -> None:
    """Starts a game in a slot, with the empty board. Writes into `slots`."""
    slots.game[slot] = game
    slots.row[slot] = NO_REQUEST
    reset(rules, slots.position, history_of(slots.histories, slot))
    store(slots.position, slots.positions, slot)
    clear(slots.trees, slot)


@kernel
def advance_searches(
    rules: Rules, settings: PlaySettings, slots: Slots, batch: Batch, streams: np.ndarray, searching: np.ndarray
) -> int:
    """Applies the evaluations in `batch`, searches on, and returns the number of new requests; 0: all are done.

    Writes into everything except the rules and the settings. A search starts with `begin_search` of its slot and True
    in `searching` ([G] bool). `streams` ([G, 3] uint64) are the streams of the slots.
    """
    cache_evaluations(settings, slots, batch)
    batch.num_requests[:] = 0
    total = 0
    for slot in range(slots.game.shape[0]):
        if slots.row[slot] != NO_REQUEST:
            apply_evaluation(rules, settings, slots, slot, batch)
        while searching[slot]:
            step = run_simulation(rules, settings, slots, slot, batch, streams[slot])
            if step == NEEDS_EVALUATION:
                total += 1
                break
            if step == DONE:
                searching[slot] = False
    return total


@kernel
def play_in_slot(rules: Rules, settings: PlaySettings, slots: Slots, slot: int, action: int) -> None:
    """Plays a legal action of either player. Keeps the subtree below it, or without tree reuse clears the tree.

    Writes into `slots`.
    """
    history = history_of(slots.histories, slot)
    load(slots.positions, slot, slots.position)
    play(rules, slots.position, history, action)
    store(slots.position, slots.positions, slot)
    if settings.tree_reuse:
        reroot(slots.trees, slot, action, slots.trees.action.shape[1] - settings.num_simulations - 1)
    else:
        clear(slots.trees, slot)
