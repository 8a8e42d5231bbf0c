"""Monte-Carlo tree search that evaluates leaves by random games, without a network.

The opponent that reproductions on 8x8 Gomoku measure against (github.com/junxiaosong/AlphaZero_Gomoku, `mcts_pure`).
It is the search of `zero.search.mcts` with equal priors, c_puct = 5 and a value of 0 for unvisited actions. One random
game (`playouts`) evaluates each new leaf. Each move starts from an empty tree and plays the most visited action. It
never resigns. Slow twin: tests/oracle/rollout.py.
"""

import os
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from zero.errors import ParamsError
from zero.games.position import TO_PLAY, History, Position, Rules, load, new_position
from zero.kernels import kernel
from zero.play.moves import most_visited
from zero.players.board import Board
from zero.players.player import PlayerId, Reply
from zero.players.playouts import play_out
from zero.search.mcts import Path, backup, descend, make_node, new_path
from zero.search.streams import stream_of
from zero.search.tree import NO_EDGE, Trees, clear, new_trees, set_prior

C_PUCT = 5.0
MAX_PLAYOUTS = 10_000_000
"""At 9x9 such a tree takes 15 GB, so a larger number is a typing error."""


class Workspace(NamedTuple):
    """Arrays that one search writes into; each concurrent search has its own."""

    trees: Trees  # T = 1
    path: Path  # G = 1
    position: Position
    mask: np.ndarray  # [A] bool
    prior: np.ndarray  # [A] float32, all equal
    empty: np.ndarray  # [W] uint64, bitboard of the empty points


def new_workspace(rules: Rules, num_playouts: int) -> Workspace:
    """A workspace with an empty tree that holds one search."""
    return Workspace(
        trees=new_trees(1, num_playouts + 1, rules.num_actions),
        path=new_path(1, rules.max_moves + 1),
        position=new_position(rules),
        mask=np.zeros(rules.num_actions, np.bool_),
        prior=np.ones(rules.num_actions, np.float32),
        empty=np.zeros(rules.num_words, np.uint64),
    )


@kernel
def search(
    rules: Rules, positions: Position, history: History, space: Workspace, stream: np.ndarray, num_playouts: int
) -> int:
    """Returns the most visited action of a search. Writes into `history` (beyond the position), `space` and `stream`.

    Searches position 0 of `positions`, where the game has not ended, from an empty tree.
    """
    trees, path, position, no_symmetry = space.trees, space.path, space.position, rules.symmetries[0]
    clear(trees, 0)
    load(positions, 0, position)
    root = make_node(rules, trees, 0, position, history, space.mask)
    set_prior(trees, 0, root, space.prior, np.float32(0.0), no_symmetry)
    for _ in range(num_playouts):
        load(positions, 0, position)  # the descent plays on this copy
        leaf = descend(rules, trees, 0, NO_EDGE, np.float32(C_PUCT), False, position, history, space.mask, path, 0)
        if trees.num_edges[0, leaf] > 0:  # a finished game has no edges and its value already
            colour = position.state[TO_PLAY]
            # the outcome is Black's; the tree stores values for the colour to move
            value = np.float32(play_out(rules, position, history, space.empty, stream) * colour)
            set_prior(trees, 0, leaf, space.prior, value, no_symmetry)
        backup(trees, 0, trees.node_value[0, leaf], path, 0)
    return int(trees.action[0, 0, most_visited(trees, 0)])


class RolloutPlayer:
    """Searches several games at once, one thread per game. Random numbers are keyed by game and move number."""

    def __init__(
        self, rules: Rules, num_playouts: int, games_at_once: int, seed: int, num_threads: int | None = None
    ) -> None:
        """Makes the trees.

        Args:
          rules: the game.
          num_playouts: random games for each move.
          games_at_once: maximum number of open games.
          seed: seed of all random games.
          num_threads: concurrent searches, each with its own tree; None means one for each core.

        Raises:
          ParamsError: `num_playouts` is out of range, or the trees do not fit in memory.
        """
        if not 1 <= num_playouts <= MAX_PLAYOUTS:
            raise ParamsError(f"playouts must be from 1 to {MAX_PLAYOUTS:,} a move, got {num_playouts}")
        settings: dict[str, str | int | float | bool] = {"playouts": num_playouts, "c_puct": C_PUCT}
        self.id = PlayerId(name=f"rollout MCTS, {num_playouts} playouts", kind="rollout", settings=settings)
        self._rules, self._num_playouts, self._seed = rules, num_playouts, seed
        self._boards: dict[int, Board] = {}
        num_threads = max(1, min(num_threads or len(os.sched_getaffinity(0)), games_at_once))
        # kernels release the GIL, so threads suffice; each takes a workspace from the queue
        self._workspaces: queue.SimpleQueue[Workspace] = queue.SimpleQueue()
        try:
            for _ in range(num_threads):
                self._workspaces.put(new_workspace(rules, num_playouts))
        except MemoryError:
            raise ParamsError(
                f"{num_threads} trees of {num_playouts} playouts do not fit in memory; give fewer playouts"
            ) from None
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="rollout")

    def begin(self, games: Sequence[int]) -> None:
        """Sets up the empty board of new games."""
        for game in games:
            self._boards[game] = Board(self._rules)

    def choose(self, games: Sequence[int]) -> list[Reply]:
        """Searches in each of these games."""
        return list(self._threads.map(self._search, games))

    def play(self, game: int, action: int) -> None:
        """Plays a move of either side."""
        self._boards[game].play(action)

    def end(self, game: int) -> None:
        """Removes the game."""
        del self._boards[game]

    def close(self) -> None:
        """Ends the threads once running searches are done."""
        self._threads.shutdown(cancel_futures=True)

    def _search(self, game: int) -> Reply:
        board = self._boards[game]
        stream = stream_of(self._seed, 0, f"rollout move {len(board.actions)}", game)
        space = self._workspaces.get()
        try:
            return Reply(search(self._rules, board.positions, board.history, space, stream, self._num_playouts))
        finally:
            self._workspaces.put(space)
