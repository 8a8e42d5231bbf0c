"""A player of one game: it takes moves, searches the position and chooses a move. For GTP, the web page, analysis.

It plays as players do in a match (`zero.play.lockstep_games`): no root noise, and the best move unless the caller sets
a temperature. Several leaves are in flight at once (`zero.search.virtual_loss`). Not for self-play.

A Gumbel root plans its simulations in advance and chooses by them alone. So it needs a fixed number of simulations and
a tree without many older visits. The root follows PUCT instead in a search with a time limit, as in analysis, and in a
short search of a well-visited reused tree (`MAX_KEPT_RATIO`).
"""

import math
import time
from typing import Any

import numpy as np

from zero.errors import MoveError, ParamsError
from zero.games.legality import why_illegal
from zero.games.position import (
    NUM_PASSES,
    TO_PLAY,
    Position,
    Rules,
    load,
    new_history,
    new_position,
    reset,
    store,
)
from zero.games.rules import ended, legal_mask, margin, outcome, play
from zero.play.moves import resigns
from zero.play.search_result import SearchResult, principal_variation, read_tree
from zero.search.evaluator import Evaluator
from zero.search.gumbel import gumbel_choice, new_gumbel_roots
from zero.search.streams import next_float, stream_of
from zero.search.tree import clear, new_trees, reroot
from zero.search.virtual_loss import ParallelSettings, backup_leaves, new_pending_leaves, select_leaves

TREE = 0
"""Index of the one tree and the one game in arrays with a leading axis."""

MAX_LEAVES = 256
MAX_VIRTUAL_LOSS = 100
MAX_NODES = 2**24
"""110 GB at 19x19; a larger number is a typing error."""
MAX_C_PUCT = 100.0
MAX_CONSIDERED = 19 * 19 + 1
MAX_VALUE_SCALE = 10.0
MAX_KEPT_RATIO = 4
"""Maximum visits of a reused tree for a Gumbel search, as a multiple of the simulations of the search."""


class Player:
    """One game and the search tree of one player. Not thread-safe.

    Without a time limit a player is deterministic: the same calls with the same seed give the same results.

    The tree stores up to `max_nodes` nodes of 18 bytes per action: 1.5 kB at 9x9, 6.5 kB at 19x19. So 100,000 nodes
    take 150 MB or 650 MB; the memory is used as nodes are added. The subtree of a played move is reused, as far as it
    leaves room for `num_simulations` more nodes. A full tree ends a search.

    Leaves in flight together are selected without each other's values, so short searches need few leaves. 8 leaves are
    1.7 times as fast as 1 with OpenVINO (9x9, 4x32, one core) and 2.5 times with PyTorch. But with 100 simulations per
    move they scored 39 % +- 6 % against 1 leaf in 240 games (PUCT).
    """

    def __init__(
        self,
        rules: Rules,
        evaluator: Evaluator,
        num_simulations: int,
        c_puct: float,
        fpu_from_parent: bool,
        random_symmetry: bool,
        max_nodes: int,
        num_leaves: int = 8,
        virtual_loss: int = 1,
        considered_actions: int = 0,
        value_scale: float = 0.1,
        rescale_values: bool = True,
        pass_wins: bool = False,
        seed: int = 0,
        seconds: float | None = None,
    ) -> None:
        """Sets up the empty board.

        Args:
          rules: the game.
          evaluator: evaluates positions, up to `num_leaves` at once.
          num_simulations: simulations of a search; 0 plays by the prior alone (the paper's raw network).
          c_puct: exploration constant of the PUCT rule; a Gumbel search does not use it.
          fpu_from_parent: first-play urgency (FPU) of an unvisited action: the mean value of the position, else 0.
          random_symmetry: evaluate each position under a random symmetry of the board.
          max_nodes: capacity of the tree, at least `num_simulations` + 2.
          num_leaves: maximum number of pending leaves; 1 is the sequential search.
          virtual_loss: lost visits that an edge counts per pending leaf below it; a Gumbel search does not use it.
          considered_actions: actions that a Gumbel root considers, see `zero.search.gumbel`; 0: PUCT.
          value_scale: weight of Q-values against priors in a Gumbel search.
          rescale_values: map Q-values to [0, 1] in a Gumbel search.
          pass_wins: a position after a pass is terminal if a second pass would win it for the player to move.
          seed: seed of the symmetries and of moves drawn at a temperature.
          seconds: time limit of every search, checked after each batch.

        Raises:
          ParamsError: a number is out of range, the tree does not fit in memory, or the network is for another board.
        """
        check_board(rules, evaluator)
        self._max_nodes = _in_range("max_nodes", max_nodes, 2, MAX_NODES)
        self._num_simulations = self._checked_simulations(num_simulations)
        self.seconds = _checked_seconds(seconds)
        if not 0.0 < c_puct <= MAX_C_PUCT:
            raise ParamsError(f"c_puct must be above 0 and at most {MAX_C_PUCT:g}, got {c_puct}")
        virtual_loss = _in_range("virtual_loss", virtual_loss, 1, MAX_VIRTUAL_LOSS)
        num_leaves = _in_range("num_leaves", num_leaves, 1, MAX_LEAVES)
        self.rules = rules
        self._evaluator = evaluator
        self._seed = seed
        considered_actions = _in_range("considered_actions", considered_actions, 0, MAX_CONSIDERED)
        if not 0.0 < value_scale <= MAX_VALUE_SCALE:
            raise ParamsError(f"value_scale must be above 0 and at most {MAX_VALUE_SCALE:g}, got {value_scale}")
        self._settings = ParallelSettings(
            float(c_puct), bool(fpu_from_parent), bool(random_symmetry), virtual_loss, considered_actions
        )
        try:
            self._trees = new_trees(1, self._max_nodes, rules.num_actions, bool(pass_wins))
        except MemoryError:
            raise ParamsError(
                f"max_nodes = {max_nodes} does not fit in memory: a node of this board takes "
                f"{18 * rules.num_actions:,} bytes; use a smaller number"
            ) from None
        roots = new_gumbel_roots(1, rules.num_actions, value_scale, rescale_values)
        self._pending = new_pending_leaves(rules, num_leaves, self._max_nodes, roots)
        self._roots = new_position(rules, 1)  # current position of the game
        self._position = new_position(rules)  # scratch
        self._history = new_history(rules)
        self._result: SearchResult | None = None  # of the current position
        self._num_games = 0
        self.new_game()

    def new_game(self) -> None:
        """Starts the next game, with the empty board. The seed and the number of the game select its random stream."""
        self.actions: tuple[int, ...] = ()
        self._stream = stream_of(self._seed, 0, "player", self._num_games)
        self._num_games += 1
        reset(self.rules, self._position, self._history)
        store(self._position, self._roots, TREE)
        self._clear_tree()

    def play(self, action: int) -> None:
        """Plays a move of either player.

        Raises:
          MoveError: the move is illegal; the message gives the reason.
        """
        if why := why_illegal(self.rules, self._current(), self._history, action):
            raise MoveError(why)
        play(self.rules, self._current(), self._history, int(action))
        store(self._position, self._roots, TREE)
        self.actions += (int(action),)
        self._result = None
        reroot(self._trees, TREE, int(action), self._max_nodes - self._num_simulations - 1)

    def ignore_last_pass(self) -> None:
        """Removes the last pass from the count that ends a game, and clears the tree.

        For a filler pass that no one played, which only makes the colours alternate in a position that was set up.
        """
        self._roots.state[TREE, NUM_PASSES] = 0
        self._clear_tree()

    def undo(self) -> None:
        """Takes the last move of either player back and clears the tree.

        Raises:
          MoveError: no move has been played.
        """
        if not self.actions:
            raise MoveError("no move to take back: the game has no moves yet; play a move first")
        self.actions = self.actions[:-1]
        reset(self.rules, self._position, self._history)
        for action in self.actions:
            play(self.rules, self._position, self._history, action)
        store(self._position, self._roots, TREE)
        self._clear_tree()

    def search(self, num_simulations: int | None = None, seconds: float | None = None) -> SearchResult:
        """Adds simulations to the tree of the position, up to their number, the time limit or the capacity of the tree.

        Args:
          num_simulations: number of simulations; by default the player's own number.
          seconds: time limit, in addition to the player's own. The search always waits for a batch in flight.

        Raises:
          MoveError: the game is over.
          ParamsError: a number is out of range.
        """
        if self.is_over:
            moves = len(self.actions)
            raise MoveError(f"no move to search: the game is over after {moves} moves; start a new game")
        requested = self._num_simulations if num_simulations is None else self._checked_simulations(num_simulations)
        limits = [each for each in (self.seconds, _checked_seconds(seconds)) if each is not None]
        limit = min(limits, default=None)
        pending, trees, started = self._pending, self._trees, time.perf_counter()
        kept = int(trees.node_visits[TREE, 0]) if trees.num_nodes[TREE] else 0
        settings = self._settings
        if limit is not None or not requested or kept > MAX_KEPT_RATIO * requested:
            settings = settings._replace(considered_actions=0)
        pending.simulations_left[0] = requested
        pending.is_new_root[0] = True
        try:
            # The first batch of an empty tree is its root alone.
            while rows := select_leaves(
                self.rules, settings, trees, TREE, self._roots, self._history, pending, self._stream
            ):
                shape = _batch_shape(rows, len(pending.leaf))
                self._evaluator.evaluate(pending.planes[:shape], pending.prior[:shape], pending.value[:shape])
                backup_leaves(self.rules, trees, TREE, pending)
                if limit is not None and time.perf_counter() - started >= limit:
                    break
        finally:
            if pending.num_pending[0]:  # the evaluator failed; the pending leaves have no prior
                self._clear_tree()
        done = requested - int(pending.simulations_left[0])
        choice = None
        if settings.considered_actions and done == requested:
            choice = int(trees.action[TREE, 0, gumbel_choice(pending.roots, trees, TREE)])
        result = read_tree(trees, TREE, done, time.perf_counter() - started, choice)
        self._result = result
        return result

    def choose(self, temperature: float = 0.0) -> int:
        """The action to play; searches first if the position has no result yet. Does not play the action.

        Args:
          temperature: 0: the best action, see `SearchResult.ranking`. Above 0: an action drawn with a probability
            proportional to visits ^ (1 / temperature), or to prior ^ (1 / temperature) without visits.

        Raises:
          MoveError: the game is over.
          ParamsError: the temperature is out of range.
        """
        if not 0.0 <= temperature < math.inf:
            raise ParamsError(f"temperature must be 0 (the best move) or more, got {temperature}")
        result = self._result or self.search()
        if temperature == 0.0:
            return result.ranking()[0]
        weights = np.float64(result.visit_counts if result.visit_counts.any() else result.prior)
        # Divided by the maximum first, so that a small temperature does not overflow.
        ends = np.cumsum((weights / weights.max()) ** (1.0 / temperature))
        return int(np.searchsorted(ends, next_float(self._stream) * ends[-1], side="right"))

    def should_resign(self, threshold: float) -> bool:
        """True if the values of the root and its best child are both below the threshold, as in the paper.

        False until both players have moved. Without simulations the network's value replaces both. Searches first if
        the position has no result yet.

        Args:
          threshold: in [-1, 1], for the player to move; -1 never resigns.

        Raises:
          MoveError: the game is over.
          ParamsError: the threshold is out of range.
        """
        if not -1.0 <= threshold <= 1.0:
            raise ParamsError(f"threshold must be from -1 (never resign) to 1, got {threshold}")
        result = self._result or self.search()
        values = np.float32(result.root_value), np.float32(result.best_value)
        return bool(resigns(len(self.actions), *values, float(threshold)))

    def principal_variation(self, action: int) -> tuple[int, ...]:
        """An action of the position, the most visited reply, and so on; only the action if it has no visit."""
        return principal_variation(self._trees, TREE, action)

    @property
    def to_play(self) -> int:
        """Colour to move: +1 Black, -1 White."""
        return int(self._roots.state[TREE, TO_PLAY])

    @property
    def is_over(self) -> bool:
        """True once the game has ended by the rules."""
        return bool(ended(self._current()))

    def board(self) -> np.ndarray:
        """Colours of the points, [S*S] int8."""
        return self._roots.board[TREE, : self.rules.num_points].copy()

    def legal_mask(self) -> np.ndarray:
        """Legal actions, [A] bool, under positional superko with this game's history; all False after the end."""
        mask = np.zeros(self.rules.num_actions, np.bool_)
        legal_mask(self.rules, self._current(), self._history, mask)
        return mask

    def margin(self) -> float:
        """Black's area minus White's area minus komi on the current board; 0 in a game without a score."""
        return float(margin(self.rules, self._current()))

    def outcome(self) -> int:
        """+1, 0, -1 for Black.

        Raises:
          MoveError: the game is not over.
        """
        if not self.is_over:
            raise MoveError(f"no outcome after {len(self.actions)} moves: the game is not over; use the margin instead")
        return int(outcome(self.rules, self._current()))

    def _current(self) -> Position:
        """The current position, copied into the scratch."""
        load(self._roots, TREE, self._position)
        return self._position

    def _clear_tree(self) -> None:
        """Empties the tree and drops all pending leaves."""
        clear(self._trees, TREE)
        self._pending.num_pending[0] = 0
        self._result = None

    def _checked_simulations(self, num_simulations: int) -> int:
        """`num_simulations`, if the tree has room for them.

        Raises:
          ParamsError: the number is out of range.
        """
        if num_simulations > self._max_nodes - 2:
            raise ParamsError(
                f"num_simulations = {num_simulations} does not fit in a tree of max_nodes = {self._max_nodes}; use at "
                f"most {self._max_nodes - 2}, or max_nodes = {num_simulations + 2} or more"
            )
        return _in_range("num_simulations", num_simulations, 0, self._max_nodes - 2)


def _batch_shape(rows: int, num_leaves: int) -> int:
    """Rows of the padded batch, a power of two up to `num_leaves`: networks compile once per shape."""
    return min(1 << (rows - 1).bit_length(), num_leaves)


def check_board(rules: Rules, evaluator: Evaluator) -> None:
    """Checks that a network is for this board; an evaluator without a `spec` fits any board.

    Raises:
      ParamsError: the network is for another board.
    """
    spec: Any = getattr(evaluator, "spec", None)
    if spec is not None and (spec.rows, spec.columns, spec.num_actions) != (
        *(rules.rows, rules.columns, rules.num_actions),
    ):
        raise ParamsError(
            f"the network is for a {spec.rows}x{spec.columns} board with {spec.num_actions} actions, the game has a "
            f"{rules.rows}x{rules.columns} board with {rules.num_actions}; use a network for this board"
        )


def _in_range(name: str, value: int, lowest: int, highest: int) -> int:
    if not lowest <= value <= highest:
        raise ParamsError(f"{name} must be from {lowest} to {highest}, got {value}")
    return int(value)


def _checked_seconds(seconds: float | None) -> float | None:
    if seconds is not None and not 0.0 < seconds < math.inf:
        raise ParamsError(f"seconds must be above 0, or None for no limit, got {seconds}")
    return seconds
