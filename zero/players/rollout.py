"""Monte-Carlo tree search with random games: no network, no knowledge but the rules.

The opponent that reproductions on 8x8 Gomoku are measured with (github.com/junxiaosong/AlphaZero_Gomoku, `mcts_pure`):
the search of `zero.search.mcts` with equal priors, c_puct = 5 and no value before the first visit; each new leaf is
judged by one random game (`playouts`); N of them a move, from an empty tree; then the most visited action. It never
resigns. Slow twin: tests/oracle/rollout.py.
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
from zero.players.base import PlayerId, Reply
from zero.players.board import Board
from zero.players.playouts import play_out
from zero.search.mcts import Path, backup, descend, make_node, new_path
from zero.search.streams import stream_of
from zero.search.tree import NO_EDGE, Trees, clear, new_trees, set_prior

C_PUCT = 5.0
MAX_PLAYOUTS = 10_000_000
"""More is a slip: at 9x9 that tree is 15 GB."""


class Workspace(NamedTuple):
    """What a search writes into: one for each that runs at once."""

    trees: Trees  # T = 1
    path: Path  # G = 1
    position: Position
    mask: np.ndarray  # [A] bool
    prior: np.ndarray  # [A] float32, all equal
    empty: np.ndarray  # [W] uint64


def new_workspace(rules: Rules, num_playouts: int) -> Workspace:
    """An empty tree with room for one search."""
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
    """Searches position 0 of `positions`, which has not ended, from an empty tree, and returns the most visited action.

    Writes into `history` (beyond the position), `space` and `stream`.
    """
    trees, path, position, no_symmetry = space.trees, space.path, space.position, rules.symmetries[0]
    clear(trees, 0)
    load(positions, 0, position)
    root = make_node(rules, trees, 0, position, history, space.mask)
    set_prior(trees, 0, root, space.prior, np.float32(0.0), no_symmetry)
    for _ in range(num_playouts):
        load(positions, 0, position)
        leaf = descend(rules, trees, 0, NO_EDGE, np.float32(C_PUCT), False, position, history, space.mask, path, 0)
        if trees.num_edges[0, leaf] > 0:
            colour = position.state[TO_PLAY]
            value = np.float32(play_out(rules, position, history, space.empty, stream) * colour)
            set_prior(trees, 0, leaf, space.prior, value, no_symmetry)
        backup(trees, 0, trees.node_value[0, leaf], path, 0)
    return int(trees.action[0, 0, most_visited(trees, 0)])


class RolloutPlayer:
    """Searches on several threads, a game each; the random numbers of a move are keyed by the game's number and it."""

    def __init__(
        self, rules: Rules, num_playouts: int, games_at_once: int, seed: int, num_threads: int | None = None
    ) -> None:
        """Makes the trees.

        Args:
          rules: the game.
          num_playouts: random games a move.
          games_at_once: games open at once.
          seed: of all random games.
          num_threads: searches at once, one core and one tree each; None: one a core.

        Raises:
          ParamsError: the number is out of range, or the trees do not fit in the memory.
        """
        if not 1 <= num_playouts <= MAX_PLAYOUTS:
            raise ParamsError(f"{num_playouts} playouts a move are out of range; give 1 to {MAX_PLAYOUTS:,}")
        settings: dict[str, str | int | float | bool] = {"playouts": num_playouts, "c_puct": C_PUCT}
        self.player = PlayerId(name=f"rollout MCTS, {num_playouts} playouts", kind="rollout", settings=settings)
        self._rules, self._num_playouts, self._seed = rules, num_playouts, seed
        self._boards: dict[int, Board] = {}
        num_threads = max(1, min(num_threads or len(os.sched_getaffinity(0)), games_at_once))
        self._workspaces: queue.SimpleQueue[Workspace] = queue.SimpleQueue()
        try:
            for _ in range(num_threads):
                self._workspaces.put(new_workspace(rules, num_playouts))
        except MemoryError:
            raise ParamsError(
                f"{num_threads} trees of {num_playouts} playouts do not fit in the memory; give fewer playouts"
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
        """Plays a move of either player."""
        self._boards[game].play(action)

    def end(self, game: int) -> None:
        """Forgets the game."""
        del self._boards[game]

    def close(self) -> None:
        """Ends the threads, after the searches that have begun."""
        self._threads.shutdown(cancel_futures=True)

    def _search(self, game: int) -> Reply:
        board = self._boards[game]
        stream = stream_of(self._seed, 0, f"rollout move {board.num_moves}", game)
        space = self._workspaces.get()
        try:
            return Reply(search(self._rules, board.positions, board.history, space, stream, self._num_playouts))
        finally:
            self._workspaces.put(space)
