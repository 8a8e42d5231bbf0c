"""A Gumbel search through the kernels, one simulation at a time."""

from typing import Self

import numpy as np

from tests.search.kernel_search import KernelSearch
from zero.games.position import Rules
from zero.search.evaluator import Evaluator
from zero.search.gumbel import (
    begin_gumbel_search,
    descend_gumbel,
    gumbel_choice,
    new_gumbel_roots,
    write_improved_policy,
)
from zero.search.mcts import backup
from zero.search.streams import stream_of


class KernelGumbelSearch(KernelSearch):
    """A tree of a game, searched with a Gumbel root."""

    def __init__(
        self,
        rules: Rules,
        evaluator: Evaluator,
        max_nodes: int,
        num_considered: int = 16,
        symmetries=None,
        value_scale: float = 0.1,
        rescale_values: bool = True,
        pass_wins: bool = False,
    ) -> None:
        super().__init__(rules, evaluator, 0.0, max_nodes, symmetries, pass_wins=pass_wins)
        self.roots = new_gumbel_roots(self.NUM_TREES, rules.num_actions, value_scale, rescale_values)
        self.num_considered = num_considered
        self.simulation = 0

    def begin(self, num_simulations: int, scale: float = 0.0, stream: np.ndarray | None = None) -> Self:
        """Begins a search; evaluates the root first if the tree is empty."""
        stream = stream_of(1, 2, "test", 3) if stream is None else stream
        if self.num_nodes == 0:
            self.start()
        self.simulation = 0
        begin_gumbel_search(self.roots, self.trees, self.TREE, self.num_considered, num_simulations, scale, stream)
        return self

    def search(self, num_simulations: int, scale: float = 0.0, stream: np.ndarray | None = None) -> Self:
        """A complete search."""
        self.begin(num_simulations, scale, stream)
        return self.go_on(num_simulations)

    def go_on(self, times: int = 1) -> Self:
        """Runs simulations of the current search, each from the current position of the game."""
        trees, tree, path = self.trees, self.TREE, self.path
        for _ in range(times):
            at = self.game.copy()
            leaf = descend_gumbel(
                self.rules, self.roots, trees, tree, self.simulation, at.position, at.history, self.mask, path, 0
            )
            ended = trees.num_edges[tree, leaf] == 0
            assert ended == at.ended or (ended and trees.pass_wins[0])
            backup(trees, tree, trees.node_value[tree, leaf] if ended else self._evaluate(at, leaf), path, 0)
            self.simulation += 1
        return self

    def gumbel(self) -> list[float]:
        """The root's Gumbel numbers, in the order of the legal actions."""
        return [float(self.roots.gumbel[self.TREE, action]) for action in self.edges()]

    def own_visits(self) -> dict[int, int]:
        """Visits of the root's actions in this search."""
        base_visits = self.roots.base_visits[self.TREE]
        return {action: visits - int(base_visits[action]) for action, visits in self.visits().items()}

    def choice(self) -> int:
        """The action to play."""
        return int(self.trees.action[self.TREE, 0, gumbel_choice(self.roots, self.trees, self.TREE)])

    def target(self) -> np.ndarray:
        """The policy target, [A] integers that sum to 65,535."""
        out = np.full(self.rules.num_actions, 12345, np.uint16)
        write_improved_policy(self.roots, self.trees, self.TREE, out)
        return out
