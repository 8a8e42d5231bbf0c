"""A search through the kernels, one simulation at a time, and its tree in the form of the slow twin."""

from typing import Any, NamedTuple

import numpy as np

from tests.games.kernel_game import KernelGame
from tests.oracle import mcts as twin
from zero.games.planes import write_planes
from zero.games.position import Rules
from zero.search.evaluator import Evaluator
from zero.search.mcts import backup, descend, make_node, new_path, root_value
from zero.search.tree import NO_CHILD, NO_EDGE, Trees, add_root_noise, new_trees, reroot, set_prior


class View(NamedTuple):
    """A node and its subtree; an edge is (action, prior, visits, value sum, child)."""

    visits: int
    value_sum: np.float32
    edges: tuple[tuple[int, np.float32, int, np.float32, "View | None"], ...]


class KernelSearch:
    """A tree of a game; one of several, so that a write into another tree is detected."""

    TREE, NUM_TREES = 1, 3

    def __init__(
        self,
        rules: Rules,
        evaluator: Evaluator,
        c_puct: float,
        max_nodes: int,
        symmetries=None,
        fpu_from_parent: bool = False,
        pass_wins: bool = False,
    ) -> None:
        self.game = KernelGame(rules)
        self.rules, self.evaluator, self.c_puct = rules, evaluator, c_puct
        self.trees = new_trees(self.NUM_TREES, max_nodes, rules.num_actions, pass_wins)
        self.path = new_path(1, rules.max_moves + 1)
        self.mask = np.zeros(rules.num_actions, np.bool_)
        self.draw_symmetry = symmetries or (lambda: 0)
        self.fpu_from_parent = fpu_from_parent

    @property
    def num_nodes(self) -> int:
        return int(self.trees.num_nodes[self.TREE])

    def start(self) -> "KernelSearch":
        """Adds the root and evaluates it."""
        at = self.game.copy()
        leaf = make_node(self.rules, self.trees, self.TREE, at.position, at.history, self.mask)
        assert leaf == 0
        self._evaluate(at, leaf)
        return self

    def simulate(self, times: int = 1, root_edge: int = NO_EDGE) -> "KernelSearch":
        """Runs simulations, each from the current position of the game and through `root_edge` if it is given."""
        for _ in range(times):
            at = self.game.copy()
            c_puct = np.float32(self.c_puct)
            tree, mask, path = self.TREE, self.mask, self.path
            leaf = descend(
                self.rules,
                self.trees,
                tree,
                root_edge,
                c_puct,
                self.fpu_from_parent,
                at.position,
                at.history,
                mask,
                path,
                0,
            )
            ended = self.trees.num_edges[tree, leaf] == 0
            assert ended == at.ended or (ended and self.trees.pass_wins[0])
            value = self.trees.node_value[tree, leaf] if ended else self._evaluate(at, leaf)
            backup(self.trees, tree, value, path, 0)
        return self

    def mix_noise(self, concentration: float, fraction: float, stream: np.ndarray) -> list[float]:
        """Mixes noise into the root's prior and returns the noise by action, not normalised."""
        edges = self.order()
        add_root_noise(self.trees, self.TREE, concentration, fraction, stream)
        return [float(self.trees.noise[e]) for e in edges]

    def play(self, action: int, max_kept: int) -> None:
        """Plays a move and follows it in the tree."""
        self.game.play(action)
        reroot(self.trees, self.TREE, action, max_kept)

    def edges(self, node: int = 0) -> list[int]:
        """Legal actions of a node."""
        return [int(self.trees.action[self.TREE, node, e]) for e in self.order(node)]

    def order(self, node: int = 0) -> list[int]:
        """Edges of a node by action."""
        return order_of(self.trees, self.TREE, node)

    def visits(self, node: int = 0) -> dict[int, int]:
        return self._by_action(visited_only(self.trees, self.trees.visit_count, 0), node)

    def priors(self, node: int = 0) -> dict[int, float]:
        return self._by_action(self.trees.prior, node)

    def q_values(self, node: int = 0) -> dict[int, float]:
        sums = self._by_action(visited_only(self.trees, self.trees.value_sum, 0.0), node)
        return {action: sums[action] / count for action, count in self.visits(node).items() if count}

    def root_value(self) -> float:
        return float(root_value(self.trees, self.TREE))

    def view(self) -> View:
        return view_of(self.trees, self.TREE)

    def _evaluate(self, at: KernelGame, leaf: int) -> np.float32:
        planes = np.zeros((1, 17, self.rules.num_words), np.uint64)
        prior, value = np.zeros((1, self.rules.num_actions), np.float32), np.zeros(1, np.float32)
        symmetry = self.draw_symmetry()
        write_planes(self.rules, at.position, at.history, symmetry, planes[0])
        self.evaluator.evaluate(planes, prior, value)
        set_prior(self.trees, self.TREE, leaf, prior[0], value[0], self.rules.symmetries[symmetry])
        return np.float32(value[0])

    def _by_action(self, array: np.ndarray, node: int) -> dict[int, Any]:
        edges = self.order(node)
        return {int(self.trees.action[self.TREE, node, e]): array[self.TREE, node, e].item() for e in edges}


def order_of(trees: Trees, tree: int, node: int) -> list[int]:
    """Edges of a node by action; checks that each action has one edge."""
    actions = trees.action[tree, node, : trees.num_edges[tree, node]]
    assert len(set(actions.tolist())) == len(actions)
    return [int(e) for e in np.argsort(actions)]


def visited_only(trees: Trees, array: np.ndarray, otherwise: float) -> np.ndarray:
    """[T, N, A]: `array` for visited edges, else `otherwise`."""
    edges = np.arange(array.shape[2])
    return np.where(edges < trees.num_visited[:, :, None], array, array.dtype.type(otherwise))


def view_of(trees: Trees, tree: int, node: int = 0) -> View:
    """The tree of the kernels; checks its invariants."""
    assert trees.num_nodes[tree] <= trees.action.shape[1]
    edges = []
    visited = trees.num_visited[tree, node]
    unvisited = order_of(trees, tree, node)
    unvisited = [e for e in unvisited if e >= visited]
    if unvisited and visited:  # a pending leaf has no priors yet
        assert trees.prior[tree, node, visited] == max(trees.prior[tree, node, e] for e in unvisited)
    for e in order_of(trees, tree, node):
        child = int(trees.child[tree, node, e]) if e < visited else NO_CHILD
        assert child == NO_CHILD or node < child < trees.num_nodes[tree]
        below = None if child == NO_CHILD else view_of(trees, tree, child)
        edges.append(
            (
                int(trees.action[tree, node, e]),
                trees.prior[tree, node, e],
                int(trees.visit_count[tree, node, e]) if e < visited else 0,
                trees.value_sum[tree, node, e] if e < visited else np.float32(0.0),
                below,
            )
        )
    return View(int(trees.node_visits[tree, node]), trees.node_value_sum[tree, node], tuple(edges))


def view_of_twin(node: twin.Node) -> View:
    """The tree of the slow twin."""
    edges = tuple(
        (action, edge.prior, edge.visits, edge.value_sum, view_of_twin(edge.child) if edge.child else None)
        for action, edge in node.edges.items()
    )
    return View(node.visits, node.value_sum, edges)


def size_of(view: View) -> int:
    """Number of nodes of a tree."""
    return 1 + sum(size_of(edge[-1]) for edge in view.edges if edge[-1])


def depth_of(view: View) -> int:
    """Number of edges of the longest path."""
    return max((1 + depth_of(edge[-1]) for edge in view.edges if edge[-1]), default=0)
