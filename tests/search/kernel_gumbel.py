"""A Gumbel search through the kernels, a simulation at a time."""

from typing import Self

import numpy as np

from tests.search.kernel_search import KernelSearch
from zero.games.position import Rules
from zero.search.evaluator import Evaluator
from zero.search.gumbel import (
    GumbelRoots,
    draw_gumbel,
    gumbel_choice,
    improved_policy,
    new_gumbel_roots,
    select_gumbel_edge,
    select_root_edge,
)
from zero.search.mcts import backup, make_node
from zero.search.streams import stream_of
from zero.search.tree import NO_CHILD, Trees, visit_edge

ANY_STREAM = stream_of(1, 2, "test", 3)


def walk(roots: GumbelRoots, trees: Trees, tree: int, simulation: int) -> list[tuple[int, int]]:
    """Selects down from the root to an edge without a child, or to the end of a game: (node, edge) a step."""
    node, steps = 0, []
    while node != NO_CHILD and trees.num_edges[tree, node] > 0:
        if node == 0:
            edge = select_root_edge(roots, trees, tree, simulation)
        else:
            edge = select_gumbel_edge(roots, trees, tree, node)
        if edge >= trees.num_visited[tree, node]:
            edge = visit_edge(trees, tree, node, edge)
        steps.append((node, edge))
        node = int(trees.child[tree, node, edge])
    return steps


class KernelGumbelSearch(KernelSearch):
    """A tree over a game, searched with a Gumbel root."""

    def __init__(
        self, rules: Rules, evaluator: Evaluator, max_nodes: int, num_considered: int = 16, symmetries=None
    ) -> None:
        super().__init__(rules, evaluator, 0.0, max_nodes, symmetries)
        self.roots = new_gumbel_roots(self.NUM_TREES, rules.num_actions)
        self.num_considered = num_considered
        self.simulation = 0

    def begin(self, num_simulations: int, scale: float = 0.0, stream: np.ndarray = ANY_STREAM) -> Self:
        """Begins a search, of a new root where there is none."""
        if self.num_nodes == 0:
            self.start()
        self.simulation = 0
        considered = self.num_considered
        draw_gumbel(self.roots, self.trees, self.TREE, considered, num_simulations, scale, stream)
        return self

    def search(self, num_simulations: int, scale: float = 0.0, stream: np.ndarray = ANY_STREAM) -> Self:
        """A whole search."""
        self.begin(num_simulations, scale, stream)
        return self.simulate(num_simulations)

    def simulate(self, times: int = 1) -> Self:
        trees, tree, path = self.trees, self.TREE, self.path
        for _ in range(times):
            at = self.game.copy()
            for depth, (node, edge) in enumerate(steps := walk(self.roots, trees, tree, self.simulation)):
                path.node[0, depth], path.edge[0, depth] = node, edge
                at.play(int(trees.action[tree, node, edge]))
            path.length[0] = len(steps)
            leaf = int(trees.child[tree, node, edge])
            is_new = leaf == NO_CHILD
            if is_new:
                leaf = make_node(self.rules, trees, tree, at.position, at.history, self.mask)
                trees.child[tree, node, edge] = leaf
            ended = trees.num_edges[tree, leaf] == 0
            assert ended == at.ended
            assert is_new or ended
            backup(trees, tree, trees.node_value[tree, leaf] if ended else self._ask(at, leaf), path, 0)
            self.simulation += 1
        return self

    def gumbel(self) -> list[float]:
        """The root's Gumbel numbers, of legal actions in order."""
        return [float(self.roots.gumbel[self.TREE, action]) for action in self.edges()]

    def own_visits(self) -> dict[int, int]:
        """Visits of the root's actions in this search."""
        base_visits = self.roots.base_visits[self.TREE]
        return {action: visits - int(base_visits[action]) for action, visits in self.visits().items()}

    def choice(self) -> int:
        """The action to play."""
        return int(self.trees.action[self.TREE, 0, gumbel_choice(self.roots, self.trees, self.TREE)])

    def target(self) -> np.ndarray:
        """The policy target, [A] in parts of 65,535."""
        out = np.full(self.rules.num_actions, 12345, np.uint16)
        improved_policy(self.roots, self.trees, self.TREE, out)
        return out
