"""A player of one game: takes moves, searches the position, says what it would play. For GTP, a web page, analysis.

No root noise, and the best move unless a temperature is asked for: it plays as players do in a match
(`zero.play.boards`), with several leaves on their way at once (`zero.search.virtual_loss`). Not for self-play.

A Gumbel root plans its simulations and chooses by them alone, so it is for searches whose number is sure, of a tree
that knows little more. One with a limit of time, analysis among them, has a PUCT root, and so has one of few
simulations in a tree of many (`MOST_KEPT`).
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
    new_positions,
    reset,
    store,
)
from zero.games.rules import ended, legal_mask, margin, outcome, play
from zero.play.moves import resigns
from zero.play.search_result import SearchResult, line_of, read_tree
from zero.search.evaluator import Evaluator
from zero.search.gumbel import gumbel_choice, new_gumbel_roots
from zero.search.streams import next_float, stream_of
from zero.search.tree import clear, new_trees, reroot
from zero.search.virtual_loss import ParallelSettings, gather, new_flight, scatter

TREE = 0
"""The one tree of a player, and the one game of its arrays."""

MAX_LEAVES = 256
MAX_VIRTUAL_LOSS = 100
MAX_NODES = 2**24
"""At 19x19 110 GB: more is a slip."""
MAX_C_PUCT = 100.0
MAX_CONSIDERED = 19 * 19 + 1
MAX_VALUE_SCALE = 10.0
MOST_KEPT = 4
"""Visits that a kept tree may have where a Gumbel search begins, as a multiple of its simulations."""


class Player:
    """One game, and one player's tree over it. Not for several threads at once.

    Without a limit in seconds a player is deterministic: the same calls with the same seed give the same results.

    The tree holds `max_nodes` nodes of 18 bytes an action: 1.5 kB at 9x9, 6.5 kB at 19x19, so 100,000 nodes are 150 MB
    or 650 MB; memory is taken as nodes are made. The part below a move that is played is kept, as far as it leaves room
    for `num_simulations` more. A tree that is full ends a search.

    Leaves sent together are chosen without each other's values, so few simulations want few leaves: 8 are 1.7 times as
    fast as 1 with OpenVINO (9x9, 4x32, one core) and 2.5 times with PyTorch, but with 100 simulations each they scored
    39 % +- 6 % against 1 in 240 games (PUCT).
    """

    def __init__(
        self,
        rules: Rules,
        evaluator: Evaluator,
        num_simulations: int,
        c_puct: float,
        parent_first_play: bool,
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
          evaluator: judges positions, up to `num_leaves` at once.
          num_simulations: of a search; 0 plays by the network's prior alone (the paper's raw network).
          c_puct: exploration constant of the PUCT rule; a Gumbel search has none.
          parent_first_play: an untried action is worth the mean of its position, not 0.
          random_symmetry: each position is judged under a symmetry drawn at random.
          max_nodes: nodes the tree can hold, at least `num_simulations` + 2.
          num_leaves: leaves on their way to the evaluator at once; 1 is the sequential search.
          virtual_loss: lost visits that an edge counts for each leaf on its way below it, not in a Gumbel search.
          considered_actions: of a Gumbel root, `zero.search.gumbel`; 0: PUCT.
          value_scale: how much Q-values weigh against priors in a Gumbel search.
          rescale_values: they are brought to [0, 1] there.
          pass_wins: after a pass, a player whom a second one would make the winner has won.
          seed: of the symmetries and of moves chosen at a temperature.
          seconds: limit of every search, looked at between two batches.

        Raises:
          ParamsError: a number is out of its range, the tree too large for the memory, or the evaluator a network for
            another board.
        """
        check_board(rules, evaluator)
        self._max_nodes = _in_range("max_nodes", max_nodes, 2, MAX_NODES)
        self._num_simulations = self._checked_simulations(num_simulations)
        self.seconds = _checked_seconds(seconds)
        if not 0.0 < c_puct <= MAX_C_PUCT:
            raise ParamsError(f"c_puct = {c_puct} is out of range; give more than 0 and at most {MAX_C_PUCT:g}")
        virtual_loss = _in_range("virtual_loss", virtual_loss, 1, MAX_VIRTUAL_LOSS)
        num_leaves = _in_range("num_leaves", num_leaves, 1, MAX_LEAVES)
        self.rules = rules
        self._evaluator = evaluator
        self._seed = seed
        considered_actions = _in_range("considered_actions", considered_actions, 0, MAX_CONSIDERED)
        if not 0.0 < value_scale <= MAX_VALUE_SCALE:
            raise ParamsError(
                f"value_scale = {value_scale} is out of range; give more than 0 and at most {MAX_VALUE_SCALE:g}"
            )
        self._settings = ParallelSettings(
            float(c_puct), bool(parent_first_play), bool(random_symmetry), virtual_loss, considered_actions
        )
        try:
            self._trees = new_trees(1, self._max_nodes, rules.num_actions, bool(pass_wins))
        except MemoryError:
            raise ParamsError(
                f"max_nodes = {max_nodes} does not fit in the memory: a node of this board takes "
                f"{18 * rules.num_actions:,} bytes; give fewer"
            ) from None
        roots = new_gumbel_roots(1, rules.num_actions, value_scale, rescale_values)
        self._flight = new_flight(rules, num_leaves, self._max_nodes, roots)
        self._roots = new_positions(rules, 1)  # the position of the game
        self._position = new_position(rules)  # scratch
        self._history = new_history(rules)
        self._result: SearchResult | None = None  # of the position as it stands
        self._num_games = 0
        self.new_game()

    def new_game(self) -> None:
        """Sets up the empty board. The stream of the game's random numbers is that of its number and the seed."""
        self.actions: tuple[int, ...] = ()
        self._stream = stream_of(self._seed, 0, "player", self._num_games)
        self._num_games += 1
        reset(self.rules, self._position, self._history)
        store(self._position, self._roots, TREE)
        self._forget()

    def play(self, action: int) -> None:
        """Plays a move of whoever is to move.

        Raises:
          MoveError: it is illegal; the message says why.
        """
        if why := why_illegal(self.rules, self._current(), self._history, action):
            raise MoveError(why)
        play(self.rules, self._current(), self._history, int(action))
        store(self._position, self._roots, TREE)
        self.actions += (int(action),)
        self._result = None
        reroot(self._trees, TREE, int(action), self._max_nodes - self._num_simulations - 1)

    def forget_pass(self) -> None:
        """A pass that was played last does not bring the end of the game nearer; the tree is lost."""
        self._roots.state[TREE, NUM_PASSES] = 0
        self._forget()

    def undo(self) -> None:
        """Takes the last move back, whoever made it; the tree is lost.

        Raises:
          MoveError: no move has been played.
        """
        if not self.actions:
            raise MoveError("no move to take back: the board is empty; play one first")
        self.actions = self.actions[:-1]
        reset(self.rules, self._position, self._history)
        for action in self.actions:
            play(self.rules, self._position, self._history, action)
        store(self._position, self._roots, TREE)
        self._forget()

    def search(self, num_simulations: int | None = None, seconds: float | None = None) -> SearchResult:
        """Adds simulations to the tree of the position, until their number, the time or the tree's room is used up.

        Args:
          num_simulations: how many; by default the player's own number.
          seconds: how long, at most, within the player's own limit. A batch that is on its way is waited for.

        Raises:
          MoveError: the game is over.
          ParamsError: a number is out of its range.
        """
        if self.is_over:
            moves = len(self.actions)
            raise MoveError(f"no move to search for: the game is over after {moves} moves; start a new game")
        wanted = self._num_simulations if num_simulations is None else self._checked_simulations(num_simulations)
        limits = [each for each in (self.seconds, _checked_seconds(seconds)) if each is not None]
        limit = min(limits, default=None)
        flight, trees, started = self._flight, self._trees, time.perf_counter()
        kept = int(trees.node_visits[TREE, 0]) if trees.num_nodes[TREE] else 0
        settings = self._settings
        if limit is not None or not wanted or kept > MOST_KEPT * wanted:
            settings = settings._replace(considered_actions=0)
        flight.simulations_left[0] = wanted
        flight.is_new_root[0] = True
        try:
            while rows := gather(self.rules, settings, trees, TREE, self._roots, self._history, flight, self._stream):
                shape = _batch_shape(rows, len(flight.leaf))
                self._evaluator.evaluate(flight.planes[:shape], flight.prior[:shape], flight.value[:shape])
                scatter(self.rules, trees, TREE, flight)
                if limit is not None and time.perf_counter() - started >= limit:
                    break
        finally:
            if flight.num_on_way[0]:  # the evaluator failed: nodes without a prior are of no use
                self._forget()
        done = wanted - int(flight.simulations_left[0])
        choice = None
        if settings.considered_actions and done == wanted:
            choice = int(trees.action[TREE, 0, gumbel_choice(flight.roots, trees, TREE)])
        result = read_tree(trees, TREE, done, time.perf_counter() - started, choice)
        self._result = result
        return result

    def choose(self, temperature: float = 0.0) -> int:
        """The action to play, after a search where the position has had none. Plays nothing.

        Args:
          temperature: 0: the best action, see `SearchResult.ranking`; above 0:
            drawn with a chance that goes with visits ^ (1 / temperature). Without visits the prior stands for them.

        Raises:
          MoveError: the game is over.
          ParamsError: the temperature is out of its range.
        """
        if not 0.0 <= temperature < math.inf:
            raise ParamsError(f"temperature = {temperature} is out of range; give 0 (the best move) or more")
        result = self._result or self.search()
        if temperature == 0.0:
            return result.ranking()[0]
        weights = np.float64(result.visit_counts if result.visit_counts.any() else result.prior)
        ends = np.cumsum((weights / weights.max()) ** (1.0 / temperature))
        return int(np.searchsorted(ends, next_float(self._stream) * ends[-1], side="right"))

    def should_resign(self, threshold: float) -> bool:
        """True where the root and its best child are both worth less than the threshold, as in the paper.

        Never before both players have moved; without simulations the network's value stands for both. Searches where
        the position has had none.

        Args:
          threshold: in [-1, 1], seen by the player to move; -1 never resigns.

        Raises:
          MoveError: the game is over.
          ParamsError: the threshold is out of its range.
        """
        if not -1.0 <= threshold <= 1.0:
            raise ParamsError(f"threshold = {threshold} is out of range; give a value from -1 (never) to 1")
        result = self._result or self.search()
        values = np.float32(result.root_value), np.float32(result.best_value)
        return bool(resigns(len(self.actions), *values, float(threshold)))

    def line(self, action: int) -> tuple[int, ...]:
        """An action of the position, the answer to it that was searched most, and so on; alone where none was."""
        return line_of(self._trees, TREE, action)

    @property
    def to_play(self) -> int:
        """Colour to move: +1 Black, -1 White."""
        return int(self._roots.state[TREE, TO_PLAY])

    @property
    def is_over(self) -> bool:
        """True once the game has ended by the rules."""
        return bool(ended(self._current()))

    def board(self) -> np.ndarray:
        """Colour of each point, [S*S] int8."""
        return self._roots.board[TREE, : self.rules.num_points].copy()

    def legal_mask(self) -> np.ndarray:
        """Legal actions, [A] bool, under positional superko with this game's history; none once it is over."""
        mask = np.zeros(self.rules.num_actions, np.bool_)
        legal_mask(self.rules, self._current(), self._history, mask)
        return mask

    def margin(self) -> float:
        """Black's area less White's less komi, of the board as it stands; 0 in a game without a score."""
        return float(margin(self.rules, self._current()))

    def outcome(self) -> int:
        """+1, 0, -1 for Black.

        Raises:
          MoveError: the game is not over.
        """
        if not self.is_over:
            raise MoveError(f"no outcome after {len(self.actions)} moves: the game is not over; ask for the margin")
        return int(outcome(self.rules, self._current()))

    def _current(self) -> Position:
        """The position, in the scratch."""
        load(self._roots, TREE, self._position)
        return self._position

    def _forget(self) -> None:
        """Empties the tree; nothing is on its way any more."""
        clear(self._trees, TREE)
        self._flight.num_on_way[0] = 0
        self._result = None

    def _checked_simulations(self, num_simulations: int) -> int:
        """`num_simulations` where the tree has room for them."""
        if num_simulations > self._max_nodes - 2:
            raise ParamsError(
                f"num_simulations = {num_simulations} does not fit in a tree of max_nodes = {self._max_nodes}; give at "
                f"most {self._max_nodes - 2}, or max_nodes = {num_simulations + 2} or more"
            )
        return _in_range("num_simulations", num_simulations, 0, self._max_nodes - 2)


def _batch_shape(rows: int, num_leaves: int) -> int:
    """Rows of the padded batch, a power of two at most `num_leaves`: few shapes keep a network's kernels few."""
    return min(1 << (rows - 1).bit_length(), num_leaves)


def check_board(rules: Rules, evaluator: Evaluator) -> None:
    """Refuses a network for another board; an evaluator without a `spec` judges any."""
    spec: Any = getattr(evaluator, "spec", None)
    if spec is not None and (spec.rows, spec.columns, spec.num_actions) != (
        *(rules.rows, rules.columns, rules.num_actions),
    ):
        raise ParamsError(
            f"the network is for a board of {spec.rows}x{spec.columns} with {spec.num_actions} actions, the game has "
            f"{rules.rows}x{rules.columns} with {rules.num_actions}; take a network for this board"
        )


def _in_range(name: str, value: int, lowest: int, highest: int) -> int:
    if not lowest <= value <= highest:
        raise ParamsError(f"{name} = {value} is out of range; give {lowest} to {highest}")
    return int(value)


def _checked_seconds(seconds: float | None) -> float | None:
    if seconds is not None and not 0.0 < seconds < math.inf:
        raise ParamsError(f"seconds = {seconds} is out of range; give more than 0, or nothing for no limit")
    return seconds
