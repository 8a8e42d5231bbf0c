"""Monte-Carlo tree search that evaluates leaves by random games, without a network.

The opponent that reproductions on 8x8 Gomoku measure against (github.com/junxiaosong/AlphaZero_Gomoku, `mcts_pure`).
It is the search of `zero.search.mcts` with equal priors, c_puct = 5 and a value of 0 for unvisited actions. One random
game evaluates each new leaf. Each move starts from an empty tree and plays the most visited action. It never resigns.

Each move of a random game is drawn uniformly. In Gomoku it is drawn from the empty points; a line or the full board
ends the game. In Go it is drawn from the legal points (positional superko included) that are not an eye of the player's
own colour; without such a point the player passes. An eye is an empty point whose neighbours all have that colour. At
most one of its diagonal points may hold an enemy stone, and none at the edge. Without that rule no group would survive.
Two passes or the rules' limit of 2 * rows * columns moves end the game, and the areas are scored as they are. In other
games each move is drawn from the legal actions.
Slow twin of search and random games: tests/oracle/rollout.py.
"""

import os
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from zero.errors import ParamsError
from zero.games.go import is_legal_point
from zero.games.gomoku import makes_line
from zero.games.position import (
    EMPTY,
    ENDED,
    GO,
    GOMOKU,
    NUM_MOVES,
    NUM_PASSES,
    TO_PLAY,
    WALL,
    History,
    Position,
    Rules,
    load,
    new_position,
)
from zero.games.rules import legal_mask, outcome, play
from zero.kernels import kernel
from zero.play.moves import most_visited
from zero.players.board import Board
from zero.players.player import PlayerId, Reply
from zero.search.mcts import Path, backup, descend, make_node, new_path
from zero.search.streams import next_below, stream_of
from zero.search.tree import NO_EDGE, Trees, clear, new_trees, set_prior

C_PUCT = 5.0
BITS_1 = np.uint64(0x5555555555555555)
BITS_2 = np.uint64(0x3333333333333333)
BITS_4 = np.uint64(0x0F0F0F0F0F0F0F0F)
BYTES = np.uint64(0x0101010101010101)


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
            value = np.float32(play_out(rules, position, history, space, stream) * colour)
            set_prior(trees, 0, leaf, space.prior, value, no_symmetry)
        backup(trees, 0, trees.node_value[0, leaf], path, 0)
    return int(trees.action[0, 0, most_visited(trees, 0)])


class RolloutPlayer:
    """Searches several games at once, one thread per game. Random numbers are keyed by game and move number."""

    def __init__(self, rules: Rules, num_playouts: int, games_at_once: int, seed: int) -> None:
        """Makes the trees, one for each game or core, whichever are fewer.

        Args:
          rules: the game.
          num_playouts: random games for each move.
          games_at_once: maximum number of open games.
          seed: seed of all random games.

        Raises:
          ParamsError: the trees do not fit in memory.
        """
        settings: dict[str, str | int | float | bool] = {"playouts": num_playouts, "c_puct": C_PUCT}
        self.id = PlayerId(name=f"rollout MCTS, {num_playouts} playouts", kind="rollout", settings=settings)
        self._rules, self._num_playouts, self._seed = rules, num_playouts, seed
        self._boards: dict[int, Board] = {}
        num_threads = max(1, min(len(os.sched_getaffinity(0)), games_at_once))
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
        # Copies: Ctrl-C ends this call but not the searches, and the game may go on meanwhile.
        copies = []
        for game in games:
            board = self._boards[game]
            positions, history = Position(*map(np.copy, board.positions)), History(*map(np.copy, board.history))
            copies.append((game, len(board.actions), positions, history))
        return list(self._threads.map(self._search, copies))

    def play(self, game: int, action: int) -> None:
        """Plays a move of either side."""
        self._boards[game].play(action)

    def ignore_last_pass(self, game: int) -> None:
        """Removes the last pass from the count that ends a game; see `SingleGamePlayer.ignore_last_pass`."""
        self._boards[game].positions.state[0, NUM_PASSES] = 0

    def end(self, game: int) -> None:
        """Removes the game."""
        del self._boards[game]

    def close(self) -> None:
        """Ends the threads once running searches are done."""
        self._threads.shutdown(cancel_futures=True)

    def _search(self, copied: tuple[int, int, Position, History]) -> Reply:
        game, num_moves, positions, history = copied
        stream = stream_of(self._seed, 0, f"rollout move {num_moves}", game)
        space = self._workspaces.get()
        try:
            return Reply(search(self._rules, positions, history, space, stream, self._num_playouts))
        finally:
            self._workspaces.put(space)


@kernel
def play_out(rules: Rules, position: Position, history: History, space: Workspace, stream: np.ndarray) -> int:
    """Plays random moves to the end. Writes into `position`, `history` (beyond the position), `space` and `stream`.

    On entry the game must not be over. Returns the outcome for Black: +1, 0 or -1. In Gomoku only the board of
    `position` is written. `space.empty` and `space.mask` are scratch.
    """
    if rules.game == GOMOKU:
        return play_out_gomoku(rules, position, stream)
    while not position.state[ENDED]:
        if rules.game == GO:
            action = random_go_move(rules, position, history, space.empty, stream)
        else:
            action = random_action(rules, position, history, space.mask, stream)
        play(rules, position, history, action)
    return outcome(rules, position)


@kernel
def random_action(rules: Rules, position: Position, history: History, mask: np.ndarray, stream: np.ndarray) -> int:
    """A random legal action. Writes into `mask` and `stream`."""
    left = next_below(stream, legal_mask(rules, position, history, mask))
    action = 0
    while left > 0 or not mask[action]:
        left -= mask[action]
        action += 1
    return action


@kernel
def play_out_gomoku(rules: Rules, position: Position, stream: np.ndarray) -> int:
    """Plays Gomoku to the end; returns the outcome for Black. Writes into `position` (board, scratch) and `stream`."""
    board, left = position.board, position.scratch[0]
    num_left = 0
    for point in range(rules.num_points):
        left[num_left] = point  # branch-free: the next point overwrites an occupied one
        num_left += board[point] == EMPTY
    colour = position.state[TO_PLAY]
    for _ in range(min(num_left, rules.max_moves - position.state[NUM_MOVES])):
        drawn = next_below(stream, num_left)
        num_left -= 1
        point = left[drawn]
        left[drawn] = left[num_left]
        board[point] = colour
        if makes_line(rules, board, point):
            return int(colour)
        colour = -colour
    return 0


@kernel
def random_go_move(rules: Rules, position: Position, history: History, empty: np.ndarray, stream: np.ndarray) -> int:
    """A random legal point that is not an own eye, or the pass without one. Writes into `empty` and `stream`."""
    stones = history.boards[position.state[NUM_MOVES]]
    num_left = 0
    for word in range(rules.num_words):
        empty[word] = rules.full_board[word] & ~(stones[0, word] | stones[1, word])
        num_left += num_bits(empty[word])
    while num_left > 0:
        point = take_bit(empty, next_below(stream, num_left))
        num_left -= 1
        if not is_own_eye(rules, position, point) and is_legal_point(rules, position, history, point):
            return point
    return int(rules.num_points)


@kernel
def is_own_eye(rules: Rules, position: Position, point: int) -> bool:
    """True if the empty point is an eye of the colour to move, as defined at the top of this file."""
    colour, board = position.state[TO_PLAY], position.board
    for i in range(4):
        content = board[rules.neighbours[point, i]]
        if content != colour and content != WALL:
            return False
    row, column = point // rules.columns, point % rules.columns
    num_enemies, on_edge = 0, False
    for down in (-1, 1):
        for right in (-1, 1):
            r, c = row + down, column + right
            if 0 <= r < rules.rows and 0 <= c < rules.columns:
                num_enemies += board[r * rules.columns + c] == -colour
            else:
                on_edge = True
    return num_enemies + on_edge < 2


@kernel
def num_bits(word: np.uint64) -> int:
    """Number of set bits in a word (SWAR population count)."""
    word -= (word >> np.uint64(1)) & BITS_1
    word = (word & BITS_2) + ((word >> np.uint64(2)) & BITS_2)
    word = (word + (word >> np.uint64(4))) & BITS_4
    return int(np.int64((word * BYTES) >> np.uint64(56)))


@kernel
def take_bit(bits: np.ndarray, index: int) -> int:
    """Clears the set bit number `index` and returns its point. Writes into `bits` ([W] uint64)."""
    word = 0
    count = num_bits(bits[0])
    while index >= count:
        index -= count
        word += 1
        count = num_bits(bits[word])
    left = bits[word]
    for _ in range(index):
        left &= left - np.uint64(1)
    bits[word] &= ~(left & (~left + np.uint64(1)))
    return (word << 6) + int(np.int64(trailing_zeros(left)))
