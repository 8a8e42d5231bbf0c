"""A search with several pending leaves through the kernels, with checks of each batch and of the tree's sums."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.oracle import mcts as twin
from tests.oracle.games import oracle_of
from tests.oracle.gumbel import ParallelGumbelSearch, Sigma
from tests.oracle.streams import Stream
from tests.search.evaluators import judge_of
from tests.search.kernel_search import KernelSearch
from zero.games.position import Position
from zero.search.gumbel import new_gumbel_roots
from zero.search.streams import stream_of
from zero.search.tree import NO_CHILD
from zero.search.virtual_loss import ParallelSettings, backup_leaves, new_pending_leaves, select_leaves

SEED = 5
SIGMA = Sigma()


class ParallelSearch(KernelSearch):
    """The search in batches through the kernels; checks each batch."""

    def __init__(
        self,
        rules,
        evaluator,
        num_leaves: int,
        virtual_loss: int = 1,
        max_nodes: int = 2000,
        c_puct: float = 1.5,
        fpu_from_parent: bool = False,
        random_symmetry: bool = False,
        considered_actions: int = 0,
        sigma: Sigma = SIGMA,
        pass_wins: bool = False,
    ) -> None:
        super().__init__(rules, evaluator, c_puct, max_nodes, None, fpu_from_parent, pass_wins)
        self.settings = ParallelSettings(c_puct, fpu_from_parent, random_symmetry, virtual_loss, considered_actions)
        self.pending = new_pending_leaves(
            rules, num_leaves, max_nodes, new_gumbel_roots(self.NUM_TREES, rules.num_actions, *sigma)
        )
        self.sigma = sigma
        self.stream = stream_of(SEED, 0, "test", 0)
        self.batches: list[int] = []  # leaves of each batch of the last search
        self.num_evaluations = 0

    def search(self, num_simulations: int) -> int:
        """Runs simulations in batches and returns their number."""
        self.batches = []
        self.pending.simulations_left[0] = num_simulations
        self.pending.is_new_root[0] = True
        while rows := self.select_leaves():
            self.backup(rows)
        return num_simulations - int(self.pending.simulations_left[0])

    def select_leaves(self) -> int:
        roots = Position(*(array[None] for array in self.game.position))
        made, root_is_pending = self.num_nodes, self.num_nodes == 0
        rows = select_leaves(
            self.rules, self.settings, self.trees, self.TREE, roots, self.game.history, self.pending, self.stream
        )
        assert 0 <= rows == self.pending.num_pending[0] <= len(self.pending.leaf)
        leaves = self.pending.leaf[:rows].tolist()
        assert len(set(leaves)) == rows
        assert all(made <= leaf < self.num_nodes for leaf in leaves)  # all are new
        assert (self.trees.num_edges[self.TREE, leaves] > 0).all()
        if rows and not root_is_pending:
            self.batches.append(rows)
        self.num_evaluations += rows
        return rows

    def backup(self, rows: int) -> None:
        pending = self.pending
        self.evaluator.evaluate(pending.planes[:rows], pending.prior[:rows], pending.value[:rows])
        backup_leaves(self.rules, self.trees, self.TREE, pending)
        assert pending.num_pending[0] == 0

    def paths(self) -> list[list[tuple[int, int]]]:
        """Nodes and actions of the simulations in flight."""
        path, rows = self.pending.path, range(self.pending.num_pending[0])
        taken = [[(int(path.node[row, d]), int(path.edge[row, d])) for d in range(path.length[row])] for row in rows]
        return [[(node, int(self.trees.action[self.TREE, node, edge])) for node, edge in one] for one in taken]


def twin_of(search: ParallelSearch) -> twin.ParallelSearch:
    """The slow twin of a search, with an evaluated root."""
    settings, draw = search.settings, _draws_of(search)
    symmetries, judge = search.rules.symmetries, judge_of(search.evaluator)
    slow = twin.ParallelSearch(judge, symmetries, settings.c_puct, settings.fpu_from_parent, draw)
    slow.num_leaves, slow.virtual_loss = len(search.pending.leaf), settings.virtual_loss
    slow.max_nodes, slow.pass_wins = search.trees.action.shape[1], bool(search.trees.pass_wins[0])
    slow.start(oracle_of(search.rules))
    return slow


def gumbel_twin_of(search: ParallelSearch) -> ParallelGumbelSearch:
    """The slow twin of a Gumbel search, with an evaluated root."""
    considered, draw = search.settings.considered_actions, _draws_of(search)
    slow = ParallelGumbelSearch(judge_of(search.evaluator), search.rules.symmetries, draw, considered, search.sigma)
    slow.num_leaves, slow.max_nodes = len(search.pending.leaf), search.trees.action.shape[1]
    slow.start(oracle_of(search.rules))
    return slow


def _draws_of(search: ParallelSearch) -> Callable[[], int]:
    """The symmetries that the search draws, from a second stream; also prepares the evaluator for a twin."""
    evaluator: Any = search.evaluator
    evaluator.num_actions = search.rules.num_actions
    stream, num_symmetries = Stream(SEED, 0, "test", 0), len(search.rules.symmetries)
    return (lambda: stream.below(num_symmetries)) if search.settings.random_symmetry else (lambda: 0)


def check_sums(search: ParallelSearch, node: int = 0) -> None:
    """Checks that each edge has the sum of the values below it; exact if the values are multiples of a power of two."""
    trees, tree = search.trees, search.TREE
    visits, value_sum = 0, np.float32(0.0)
    for edge in range(trees.num_visited[tree, node]):
        child, count = trees.child[tree, node, edge], trees.visit_count[tree, node, edge]
        assert child != NO_CHILD
        value = trees.node_value[tree, child]
        if trees.num_edges[tree, child] == 0:
            assert count > 0
            assert trees.value_sum[tree, node, edge] == -value * count
        else:
            check_sums(search, child)
            assert count == 1 + trees.node_visits[tree, child]
            assert trees.value_sum[tree, node, edge] == -(value + trees.node_value_sum[tree, child])
        visits += count
        value_sum += trees.value_sum[tree, node, edge]
    assert trees.node_visits[tree, node] == visits
    assert trees.node_value_sum[tree, node] == value_sum


def check_paths(search: ParallelSearch) -> None:
    """Checks that every path leads from the root to its own leaf."""
    trees = search.trees
    for row, path in enumerate(search.paths()):
        node = 0
        for here, action in path:
            assert here == node
            edge = search.pending.path.edge[row, path.index((here, action))]
            node = int(trees.child[search.TREE, node, edge])
        assert node == search.pending.leaf[row]
