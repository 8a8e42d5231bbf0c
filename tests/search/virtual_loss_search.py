"""Several leaves of one tree at once through the kernels, each batch checked on its way, and the sums of its tree."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.games.kernel_game import oracle_of
from tests.oracle import mcts as twin
from tests.oracle.gumbel import ParallelGumbelSearch, Sigma
from tests.oracle.streams import Stream
from tests.search.evaluators import judge_of
from tests.search.kernel_search import KernelSearch
from zero.games.position import Position
from zero.search.gumbel import new_gumbel_roots
from zero.search.streams import stream_of
from zero.search.tree import NO_CHILD
from zero.search.virtual_loss import ParallelSettings, gather, new_flight, scatter

SEED = 5
SIGMA = Sigma()


class ParallelSearch(KernelSearch):
    """The kernels' search in batches; checks each batch on its way."""

    def __init__(
        self,
        rules,
        evaluator,
        num_leaves: int,
        virtual_loss: int = 1,
        max_nodes: int = 2000,
        c_puct: float = 1.5,
        parent_first_play: bool = False,
        random_symmetry: bool = False,
        considered_actions: int = 0,
        sigma: Sigma = SIGMA,
        pass_wins: bool = False,
    ) -> None:
        super().__init__(rules, evaluator, c_puct, max_nodes, None, parent_first_play, pass_wins)
        self.settings = ParallelSettings(c_puct, parent_first_play, random_symmetry, virtual_loss, considered_actions)
        self.flight = new_flight(
            rules, num_leaves, max_nodes, new_gumbel_roots(self.NUM_TREES, rules.num_actions, *sigma)
        )
        self.sigma = sigma
        self.stream = stream_of(SEED, 0, "test", 0)
        self.batches: list[int] = []  # leaves of each batch of the last search
        self.num_asked = 0

    def search(self, num_simulations: int) -> int:
        """Simulations in batches; returns how many there were."""
        self.batches = []
        self.flight.simulations_left[0] = num_simulations
        self.flight.is_new_root[0] = True
        while rows := self.gather():
            self.answer(rows)
        return num_simulations - int(self.flight.simulations_left[0])

    def gather(self) -> int:
        roots = Position(*(array[None] for array in self.game.position))
        made, asked_root = self.num_nodes, self.num_nodes == 0
        rows = gather(
            self.rules, self.settings, self.trees, self.TREE, roots, self.game.history, self.flight, self.stream
        )
        assert 0 <= rows == self.flight.num_on_way[0] <= len(self.flight.leaf)
        leaves = self.flight.leaf[:rows].tolist()
        assert len(set(leaves)) == rows
        assert all(made <= leaf < self.num_nodes for leaf in leaves)  # none has been asked for before
        assert (self.trees.num_edges[self.TREE, leaves] > 0).all()
        if rows and not asked_root:
            self.batches.append(rows)
        self.num_asked += rows
        return rows

    def answer(self, rows: int) -> None:
        flight = self.flight
        self.evaluator.evaluate(flight.planes[:rows], flight.prior[:rows], flight.value[:rows])
        scatter(self.rules, self.trees, self.TREE, flight)
        assert flight.num_on_way[0] == 0

    def paths(self) -> list[list[tuple[int, int]]]:
        """Nodes and actions of the simulations on their way."""
        path, rows = self.flight.path, range(self.flight.num_on_way[0])
        taken = [[(int(path.node[row, d]), int(path.edge[row, d])) for d in range(path.length[row])] for row in rows]
        return [[(node, int(self.trees.action[self.TREE, node, edge])) for node, edge in one] for one in taken]


def twin_of(search: ParallelSearch) -> twin.ParallelSearch:
    """The slow twin of a search, with its tree begun."""
    settings, draw = search.settings, _draws_of(search)
    symmetries, judge = search.rules.symmetries, judge_of(search.evaluator)
    slow = twin.ParallelSearch(judge, symmetries, settings.c_puct, settings.parent_first_play, draw)
    slow.num_leaves, slow.virtual_loss = len(search.flight.leaf), settings.virtual_loss
    slow.max_nodes, slow.pass_wins = search.trees.action.shape[1], bool(search.trees.pass_wins[0])
    slow.start(oracle_of(search.rules))
    return slow


def gumbel_twin_of(search: ParallelSearch) -> ParallelGumbelSearch:
    """The slow twin of a Gumbel search, with its tree begun."""
    considered, draw = search.settings.considered_actions, _draws_of(search)
    slow = ParallelGumbelSearch(judge_of(search.evaluator), search.rules.symmetries, draw, considered, search.sigma)
    slow.num_leaves, slow.max_nodes = len(search.flight.leaf), search.trees.action.shape[1]
    slow.start(oracle_of(search.rules))
    return slow


def _draws_of(search: ParallelSearch) -> Callable[[], int]:
    """The symmetries that the search draws, drawn again; its evaluator is made ready for a twin."""
    evaluator: Any = search.evaluator
    evaluator.num_actions = search.rules.num_actions
    stream, num_symmetries = Stream(SEED, 0, "test", 0), len(search.rules.symmetries)
    return (lambda: stream.below(num_symmetries)) if search.settings.random_symmetry else (lambda: 0)


def check_sums(search: ParallelSearch, node: int = 0) -> None:
    """Each edge has what the values below it sum up to, and nothing else. Exact where the values are dyadic."""
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
    """Every path leads from the root to its own leaf."""
    trees = search.trees
    for row, path in enumerate(search.paths()):
        node = 0
        for here, action in path:
            assert here == node
            edge = search.flight.path.edge[row, path.index((here, action))]
            node = int(trees.child[search.TREE, node, edge])
        assert node == search.flight.leaf[row]
