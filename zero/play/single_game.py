"""A player of one game: it takes moves, searches the position and chooses a move. For GTP, the terminal and analysis.

It plays as players do in a match (`zero.play.lockstep_games`): no root noise, and the best move. Several leaves are in
flight at once (`zero.search.virtual_loss`). Not for self-play.

A Gumbel root plans its simulations in advance and chooses by them alone. So it needs a fixed number of simulations and
a tree without many older visits. The root follows PUCT instead in a search with a time limit, as in analysis, and in a
short search of a well-visited reused tree (`MAX_KEPT_RATIO`).
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from zero.config.params import SearchParams
from zero.errors import ParamsError
from zero.games.position import NUM_PASSES, Position, Rules, load, new_history, new_position, reset, store
from zero.games.rules import ended, play
from zero.play.moves import resigns
from zero.play.search_result import SearchResult, principal_variation, read_tree
from zero.search.evaluator import Evaluator
from zero.search.gumbel import gumbel_choice, new_gumbel_roots
from zero.search.streams import stream_of
from zero.search.tree import clear, new_trees, reroot
from zero.search.virtual_loss import ParallelSettings, backup_leaves, new_pending_leaves, select_leaves

TREE = 0
"""Index of the one tree and the one game in arrays with a leading axis."""

VIRTUAL_LOSS = 1
"""Lost visits that an edge counts per pending leaf below it."""
MAX_KEPT_RATIO = 4
"""Maximum visits of a reused tree for a Gumbel search, as a multiple of the simulations of the search."""
MAX_VISITS = 1 << 22
"""Visits of a root at which a search ends. The sums of values are float32: from 2**24 on they would no longer change.
Only the analysis of a decided position, whose tree stays small, gets there."""


class SingleGamePlayer:
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
        search: SearchParams,
        num_simulations: int,
        max_nodes: int,
        num_leaves: int = 8,
        seed: int = 0,
    ) -> None:
        """Sets up the empty board.

        Args:
          rules: the game.
          evaluator: evaluates positions in batches of 1, 2, 4, ... or `num_leaves` rows.
          search: search parameters; `tree_reuse`, `max_nodes` and `evaluation_cache` are ignored.
          num_simulations: simulations of a search; 0 plays by the prior alone (the paper's raw network).
          max_nodes: capacity of the tree, at least `num_simulations` + 2.
          num_leaves: maximum number of pending leaves, at least 1, which is the sequential search.
          seed: seed of the symmetries.

        Raises:
          ParamsError: a number is too small, the tree does not fit in memory, or the network is for another board.
        """
        check_board(rules, evaluator)
        bounds = {"num_simulations": (num_simulations, 0), "num_leaves": (num_leaves, 1)}
        for name, (number, least) in (bounds | {"max_nodes": (max_nodes, num_simulations + 2)}).items():
            if number < least:  # kernels check no bounds
                raise ParamsError(f"{name} {number} is too small; give at least {least}")
        self.rules = rules
        self._evaluator, self._seed = evaluator, seed
        self._num_simulations, self._max_nodes = num_simulations, max_nodes
        self._settings = ParallelSettings(
            c_puct=search.c_puct,
            fpu_from_parent=search.first_play == "parent",
            random_symmetry=search.random_symmetry,
            virtual_loss=VIRTUAL_LOSS,
            considered_actions=search.considered_actions if search.root == "gumbel" else 0,
        )
        try:
            self._trees = new_trees(1, max_nodes, rules.num_actions, search.pass_wins)
        except MemoryError:
            raise ParamsError(
                f"a tree of {max_nodes:,} nodes does not fit in memory; give fewer simulations than {num_simulations:,}"
            ) from None
        roots = new_gumbel_roots(1, rules.num_actions, search.value_scale, search.rescale_values)
        self._pending = new_pending_leaves(rules, num_leaves, max_nodes, roots)
        self._roots = new_position(rules, 1)  # current position of the game
        self._position = new_position(rules)  # scratch
        self._history = new_history(rules)
        self._result: SearchResult | None = None  # of the current position
        self._num_games = 0
        self.new_game()

    def new_game(self) -> None:
        """Starts the next game, with the empty board. The seed and the number of the game select its random stream."""
        self.actions: tuple[int, ...] = ()
        # A stream per game: the symmetries of a game do not depend on the length of the games before it.
        self._stream = stream_of(self._seed, 0, "player", self._num_games)
        self._num_games += 1
        reset(self.rules, self._position, self._history)
        store(self._position, self._roots, TREE)
        self._clear_tree()

    def play(self, action: int) -> None:
        """Plays a move of either player. The subtree below it becomes the tree.

        The action is not checked: `SearchResult.legal_mask` has the legal ones, and another one may write outside of
        the arrays. The game must not be over.
        """
        play(self.rules, self._current(), self._history, action)
        store(self._position, self._roots, TREE)
        self.actions += (action,)
        self._result = None
        # Leaves room for a root and the simulations of the next search.
        reroot(self._trees, TREE, action, self._max_nodes - self._num_simulations - 1)

    def ignore_last_pass(self) -> None:
        """Removes the last pass from the count that ends a game, and clears the tree.

        For a filler pass that no one played, which only makes the colours alternate in a position that was set up.
        """
        self._roots.state[TREE, NUM_PASSES] = 0
        self._clear_tree()

    def search(
        self,
        num_simulations: int | None = None,
        seconds: float | None = None,
        interrupted: Callable[[], bool] | None = None,
    ) -> SearchResult:
        """Adds simulations to the tree of the position, up to their number, the time limit or the capacity of the tree.

        The game must not be over. If the evaluator raises an error, the tree is emptied.

        Args:
          num_simulations: number of simulations; by default the player's own number. A root gets 2**22 at most.
          seconds: time limit, checked after each batch: the search always waits for a batch in flight.
          interrupted: called after each batch; True ends the search. It may call `result_so_far`.
        """
        assert not self.is_over, "a finished game has no move to search"
        wanted = self._num_simulations if num_simulations is None else num_simulations
        pending, trees, started = self._pending, self._trees, time.perf_counter()
        kept = int(trees.node_visits[TREE, 0]) if trees.num_nodes[TREE] else 0
        requested = min(wanted, max(0, MAX_VISITS - kept))
        settings = self._settings
        if seconds is not None or not requested or kept > MAX_KEPT_RATIO * requested:
            settings = settings._replace(considered_actions=0)
        pending.simulations_left[0] = requested
        pending.is_new_root[0] = True
        try:
            # The first batch of an empty tree is its root alone.
            while rows := select_leaves(
                self.rules, settings, trees, TREE, self._roots, self._history, pending, self._stream
            ):
                # Rows beyond the pending leaves hold planes of earlier batches; their results are not read.
                shape = _batch_shape(rows, len(pending.leaf))
                self._evaluator.evaluate(pending.planes[:shape], pending.prior[:shape], pending.value[:shape])
                backup_leaves(self.rules, trees, TREE, pending)
                # After the backup: a break before it would leave leaves without a prior in the tree.
                if seconds is not None and time.perf_counter() - started >= seconds:
                    break
                if interrupted is not None and interrupted():
                    break
        finally:
            if pending.num_pending[0]:  # the evaluator failed; the pending leaves have no prior
                self._clear_tree()
        done = requested - int(pending.simulations_left[0])
        choice = None
        # A search that ended early has not finished its schedule, and its visits do not mean what `gumbel_choice`
        # assumes.
        if settings.considered_actions and done == requested:
            choice = int(trees.action[TREE, 0, gumbel_choice(pending.roots, trees, TREE)])
        result = read_tree(trees, TREE, done, choice)
        self._result = result
        return result

    def result_so_far(self) -> SearchResult:
        """The tree of the position, for `interrupted` in a running search; without the number of its simulations."""
        return read_tree(self._trees, TREE, 0)

    def choose(self) -> int:
        """The best action, see `SearchResult.ranking`; searches first if the position has no result yet.

        It does not play the action. The game must not be over.
        """
        return (self._result or self.search()).ranking()[0]

    def should_resign(self, threshold: float) -> bool:
        """True if the values of the root and its best child are both below the threshold, as in the paper.

        False until both players have moved. Without simulations the network's value replaces both. Searches first if
        the position has no result yet. The threshold is in [-1, 1], for the player to move; -1 never resigns.
        """
        result = self._result or self.search()
        values = np.float32(result.root_value), np.float32(result.best_value)
        return bool(resigns(len(self.actions), *values, threshold))

    def principal_variation(self, action: int) -> tuple[int, ...]:
        """An action of the position, the most visited reply, and so on; only the action if it has no visit."""
        return principal_variation(self._trees, TREE, action)

    @property
    def is_over(self) -> bool:
        """True once the game has ended by the rules."""
        return bool(ended(self._current()))

    def _current(self) -> Position:
        """The current position, copied into the scratch."""
        load(self._roots, TREE, self._position)
        return self._position

    def _clear_tree(self) -> None:
        """Empties the tree and drops all pending leaves."""
        clear(self._trees, TREE)
        self._pending.num_pending[0] = 0
        self._result = None


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
