"""The Gumbel search, slow and obvious: every formula over every legal action, in float64.

Twin of zero/search/gumbel.py, written from Danihelka et al. 2022, 'Policy improvement by planning with Gumbel':
sequential halving at the root, section 5 for the nodes below it, appendix D for the mixed value. Halving by visit
counts follows DeepMind's mctx; here the phases are an explicit list.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tests.oracle.games import Game
from tests.oracle.mcts import Edge, Judge, Node, ParallelSearch, Search

C_VISIT, MIN_RANGE = 50, 1e-8
MIN_PRIOR = float(np.finfo(np.float32).tiny)


def considered_visits(num_considered: int, num_simulations: int) -> list[int]:
    """For each simulation, the visit count of the action that it visits."""
    phases = math.ceil(math.log2(num_considered)) if num_considered > 1 else 1
    visits = [0] * num_considered
    survivors = num_considered
    sequence: list[int] = []
    while len(sequence) < num_simulations:
        for _ in range(max(1, num_simulations // (phases * survivors))):
            for action in range(survivors):
                sequence.append(visits[action])
                visits[action] += 1
        survivors = max(min(2, num_considered), survivors // 2)
    return sequence[:num_simulations]


def completed_q_values(edges: dict[int, Edge], node_value: float) -> dict[int, float]:
    """Q of each action for the player to move; unvisited actions have the mixed value."""
    q_values = {action: float(edge.value_sum) / edge.visits for action, edge in edges.items() if edge.visits}
    mixed = node_value
    if q_values:
        priors = {action: max(float(edges[action].prior), MIN_PRIOR) for action in q_values}
        mean = math.fsum(priors[action] * q for action, q in q_values.items()) / math.fsum(priors.values())
        visits = sum(edge.visits for edge in edges.values())
        mixed = (node_value + visits * mean) / (1 + visits)
    return {action: q_values.get(action, mixed) for action in edges}


class Sigma(NamedTuple):
    """The transformation of Q-values."""

    value_scale: float = 0.1
    rescale_values: bool = True

    def __call__(self, edges: dict[int, Edge], node_value: float) -> dict[int, float]:
        """The completed Q-values, rescaled to [0, 1] if set, and scaled."""
        q_values = completed_q_values(edges, node_value)
        if self.rescale_values:
            low, high = min(q_values.values()), max(q_values.values())
            q_values = {action: (q - low) / max(high - low, MIN_RANGE) for action, q in q_values.items()}
        scale = (C_VISIT + max(edge.visits for edge in edges.values())) * self.value_scale
        return {action: scale * q for action, q in q_values.items()}


def improved_policy(edges: dict[int, Edge], node_value: float, sigma: Sigma) -> dict[int, float]:
    """softmax(logit + sigma(q))."""
    values = sigma(edges, node_value)
    scores = {action: logit(edge) + values[action] for action, edge in edges.items()}
    most = max(scores.values())
    total = math.fsum(math.exp(score - most) for score in scores.values())
    return {action: math.exp(score - most) / total for action, score in scores.items()}


def logit(edge: Edge) -> float:
    return math.log(max(float(edge.prior), MIN_PRIOR))


class GumbelSearch(Search):
    """A search with sequential halving at the root and the improved policy at the other nodes."""

    def __init__(
        self, judge: Judge, symmetries: np.ndarray, draw_symmetry: Callable[[], int], num_considered: int, sigma: Sigma
    ) -> None:
        super().__init__(judge, symmetries, 0.0, False, draw_symmetry)
        self.sigma = sigma
        self.num_considered = num_considered
        self.node_values: dict[int, float] = {}  # by serial number

    def evaluate(self, node: Node) -> np.float32:
        value = super().evaluate(node)
        self.node_values[node.serial] = float(value)
        return value

    def begin(self, num_simulations: int, gumbel: Sequence[float]) -> None:
        """Begins a search of the root; `gumbel` has a number for each legal action, in order."""
        edges = self.root.edges
        self.gumbel = dict(zip(edges, gumbel, strict=True))
        self.base_visits = {action: edge.visits for action, edge in edges.items()}
        self.schedule = considered_visits(min(self.num_considered, len(edges)), num_simulations)

    def search(self, game: Game, num_simulations: int, gumbel: Sequence[float]) -> None:
        """Runs a complete search; evaluates the root first if the tree is empty."""
        if self.tree is None:
            self.start(game)
        self.begin(num_simulations, gumbel)
        for _ in range(num_simulations):
            self.simulate(self.root)

    def own_visits(self) -> dict[int, int]:
        """Visits of the root's actions in this search."""
        return {action: edge.visits - self.base_visits[action] for action, edge in self.root.edges.items()}

    def select(self, node: Node) -> Edge:
        if node is self.root:
            own = self.own_visits()
            return node.edges[self.best_with(self.schedule[sum(own.values())])]
        policy = improved_policy(node.edges, self.node_values[node.serial], self.sigma)
        return max(
            (edge for edge in node.edges.values()),
            key=lambda edge: policy[action_of(node, edge)] - edge.visits / (1 + node.visits),
        )

    def best_with(self, visits: int) -> int:
        """The root action with the greatest gumbel + logit + sigma(q) among those with `visits` own visits."""
        edges = self.root.edges
        values = self.sigma(edges, self.node_values[self.root.serial])
        candidates = [action for action, own in self.own_visits().items() if own == visits]
        return max(candidates, key=lambda action: self.gumbel[action] + logit(edges[action]) + values[action])

    def choice(self) -> int:
        """The action to play."""
        return self.best_with(max(self.own_visits().values()))

    def policy(self) -> dict[int, float]:
        """The policy target."""
        return improved_policy(self.root.edges, self.node_values[self.root.serial], self.sigma)


class ParallelGumbelSearch(GumbelSearch, ParallelSearch):  # type: ignore[misc]  # two `search`: `run` is for use
    """A Gumbel search with several pending leaves, whose visits count without values; no Gumbel numbers."""

    def run(self, num_simulations: int) -> int:
        """Runs a complete search of an evaluated root and returns the number of simulations."""
        self.begin(num_simulations, [0.0] * len(self.root.edges))
        return ParallelSearch.search(self, num_simulations)

    def own_visits(self) -> dict[int, int]:
        edges = self.root.edges
        return {action: own + self.extra_visits(edges[action]) for action, own in super().own_visits().items()}

    def select(self, node: Node) -> Edge:
        if node is self.root:
            return super().select(node)
        policy = improved_policy(node.edges, self.node_values[node.serial], self.sigma)
        visits = {action: edge.visits + self.extra_visits(edge) for action, edge in node.edges.items()}
        total = 1 + sum(visits.values())
        return node.edges[max(visits, key=lambda action: policy[action] - visits[action] / total)]


def action_of(node: Node, edge: Edge) -> int:
    return next(action for action, other in node.edges.items() if other is edge)
