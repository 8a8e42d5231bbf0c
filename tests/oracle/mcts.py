"""The search, slow and obvious: nodes with their own game, edges in a dict, and recursion.

Twin of zero/search, written from the paper (Methods, 'Search algorithm'). Sums are in float32, in the order of the
kernels, so that trees are equal bit for bit. The rules are those of the twins.
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np

from tests.oracle import planes as plane_twin
from tests.oracle.games import Game
from tests.oracle.go import GoGame

Judge = Callable[[np.ndarray], tuple[np.ndarray, float]]
"""Planes [17, S*S] -> prior of every action [A] and value for the player to move."""
F32 = np.float32


class Edge:
    """A legal action of a node; its first visit adds the child."""

    def __init__(self) -> None:
        self.prior = F32(0)
        self.visits = 0
        self.value_sum = F32(0)  # for the player to move at the node
        self.child: Node | None = None


class Node:
    """A position of the tree."""

    def __init__(self, game: Game, serial: int, decided: bool = False) -> None:
        self.game = game
        self.decided = decided  # the player to move wins by a pass
        self.serial = serial  # nodes are numbered in the order of their creation
        self.value_sum = F32(0)  # of all edges
        self.edges = {action: Edge() for action in sorted(game.legal_actions()) if not decided}

    @property
    def visits(self) -> int:
        return sum(edge.visits for edge in self.edges.values())

    @property
    def ended(self) -> bool:
        """True if the node is terminal."""
        return self.decided or self.game.ended

    def end_value(self) -> np.float32:
        """Value of an ended or decided game for the player to move."""
        return F32(1) if self.decided else F32(self.game.outcome() * self.game.to_play)

    def below(self) -> list["Node"]:
        """This node and all its descendants."""
        children = [edge.child for edge in self.edges.values() if edge.child]
        return [self, *(node for child in children for node in child.below())]


class Search:
    """The tree of one player in one game."""

    def __init__(
        self,
        judge: Judge,
        symmetries: np.ndarray,
        c_puct: float,
        fpu_from_parent: bool,
        draw_symmetry: Callable[[], int],
    ) -> None:
        self.judge = judge
        self.symmetries = symmetries.tolist()
        self.c_puct = F32(c_puct)
        self.fpu_from_parent = fpu_from_parent  # first-play urgency: the mean value of the node, not 0
        self.draw_symmetry = draw_symmetry
        self.tree: Node | None = None
        self.num_made = 0
        self.pass_wins = False

    @property
    def root(self) -> Node:
        """The root of a tree that is not empty."""
        assert self.tree
        return self.tree

    def start(self, game: Game) -> None:
        """Adds the root and evaluates it."""
        self.tree = self.make(game)
        self.evaluate(self.tree)

    def make(self, game: Game, below_root: bool = False) -> Node:
        self.num_made += 1
        decided = self.pass_wins and below_root and isinstance(game, GoGame) and is_won_by_a_pass(game)
        return Node(game, self.num_made, decided)

    def evaluate(self, node: Node) -> np.float32:
        """Evaluates a new leaf under a symmetry: sets the priors of its edges and returns its value."""
        game = node.game
        goes_to = self.symmetries[self.draw_symmetry()]
        seen = plane_twin.planes(game.rows, game.columns, game.boards, game.to_play)
        shown = np.empty_like(seen)
        for point in range(seen.shape[1]):
            shown[:, goes_to[point]] = seen[:, point]
        prior, value = self.judge(shown)
        total = F32(0)
        for action in node.edges:
            total += F32(prior[goes_to[action]])
        for action, edge in node.edges.items():
            edge.prior = F32(prior[goes_to[action]]) / total if total > 0 else F32(1) / F32(len(node.edges))
        return F32(value)

    def select(self, node: Node) -> Edge:
        """The edge with the greatest Q + U; ties go to the first."""
        exploration = self.c_puct * np.sqrt(F32(max(1, node.visits)))
        fpu = node.value_sum / F32(max(1, node.visits)) if self.fpu_from_parent else F32(0)

        def score(edge: Edge) -> np.float32:
            q_value = edge.value_sum / F32(edge.visits) if edge.visits else fpu
            return F32(q_value + exploration * edge.prior / (F32(1) + F32(edge.visits)))

        return max(node.edges.values(), key=score)

    def simulate(self, node: Node, forced: int | None = None) -> np.float32:
        """Runs one simulation from `node`, through the forced action if any; its value for the player to move."""
        edge = self.select(node) if forced is None else node.edges[forced]
        if edge.child is None:
            action = next(action for action, other in node.edges.items() if other is edge)
            edge.child = self.make(played(node.game, action), below_root=True)
            value = edge.child.end_value() if edge.child.ended else self.evaluate(edge.child)
        elif edge.child.ended:
            value = edge.child.end_value()
        else:
            value = self.simulate(edge.child)
        edge.visits += 1
        edge.value_sum += -value
        node.value_sum += -value
        return -value

    def mix_noise(self, noise: Sequence[float], fraction: float) -> None:
        """Mixes noise (not normalised yet) into the root's prior."""
        total = F32(0)
        for one in noise:
            total += F32(one)
        for edge, one in zip(self.root.edges.values(), noise, strict=True):
            edge.prior = (F32(1) - F32(fraction)) * edge.prior + F32(fraction) * F32(one) / total

    def follow(self, action: int, max_kept: int) -> None:
        """Makes the child of the played action the root, and drops its newest nodes above `max_kept`."""
        root = self.tree.edges[action].child if self.tree else None
        if root is None or not root.edges or max_kept < 1:
            self.tree = None
            return
        kept = sorted(node.serial for node in root.below())[:max_kept]
        for node in root.below():
            for edge in node.edges.values():
                if edge.child and edge.child.serial not in kept:
                    edge.child = None
        self.tree = root

    def root_value(self) -> np.float32:
        return self.root.value_sum / F32(max(1, self.root.visits))

    def most_visited(self) -> int:
        """The most visited action; ties go to the greater prior, then to the first."""
        edges = self.root.edges
        return max(edges, key=lambda action: (edges[action].visits, edges[action].prior))


class ParallelSearch(Search):
    """A search with several pending leaves; extra visits are counted from the paths in flight."""

    num_leaves = 1
    virtual_loss = 1
    max_nodes = 2**31

    def extra_visits(self, edge: Edge) -> int:
        """Virtual visits of an edge, all of them lost."""
        return self.virtual_loss * sum(edge is taken for path in self.in_flight for _, taken in path)

    def select(self, node: Node) -> Edge:
        """The edge with the greatest Q + U, extra visits included; ties go to the first."""
        all_visits = sum(edge.visits + self.extra_visits(edge) for edge in node.edges.values())
        exploration = self.c_puct * np.sqrt(F32(max(1, all_visits)))
        fpu = node.value_sum / F32(max(1, node.visits)) if self.fpu_from_parent else F32(0)

        def score(edge: Edge) -> np.float32:
            extra = self.extra_visits(edge)
            visits = F32(edge.visits + extra)
            q_value = (edge.value_sum - F32(extra)) / visits if visits else fpu
            return F32(q_value + exploration * edge.prior / (F32(1) + visits))

        return max(node.edges.values(), key=score)

    def search(self, num_simulations: int) -> int:
        """Runs simulations batch by batch, until the tree is full; returns their number."""
        self.in_flight: list[list[tuple[Node, Edge]]] = []
        self.batches: list[int] = []  # leaves of each batch
        done = 0
        while done < num_simulations:
            begun = self.select_leaves(num_simulations - done)
            if begun == 0:
                break
            done += begun
            if self.in_flight:
                self.batches.append(len(self.in_flight))
            for path in self.in_flight:
                leaf = path[-1][1].child
                assert leaf
                self.count(path, self.evaluate(leaf))
            self.in_flight = []
        return done

    def select_leaves(self, most: int) -> int:
        """Starts simulations until enough leaves are pending or one has no leaf; returns the number of started ones."""
        begun = 0
        while begun < most and len(self.in_flight) < self.num_leaves:
            path = self.walk()
            if path is None:
                break
            begun += 1
            leaf = path[-1][1].child
            assert leaf
            if leaf.ended:
                self.count(path, leaf.end_value())
            else:
                self.in_flight.append(path)
        return begun

    def walk(self) -> list[tuple[Node, Edge]] | None:
        """The path to a leaf; None if the leaf is already pending or the tree has no room for it."""
        node = self.root
        path: list[tuple[Node, Edge]] = []
        while not node.ended:
            if any(taken[-1][1].child is node for taken in self.in_flight):
                return None
            edge = self.select(node)
            path.append((node, edge))
            if edge.child is None:
                if len(self.root.below()) == self.max_nodes:
                    return None
                action = next(action for action, other in node.edges.items() if other is edge)
                edge.child = self.make(played(node.game, action), below_root=True)
                break
            node = edge.child
        return path

    def count(self, path: list[tuple[Node, Edge]], value: np.float32) -> None:
        """Adds a simulation to its path; `value` is for the player to move at the leaf."""
        for node, edge in reversed(path):
            value = -value
            edge.visits += 1
            edge.value_sum += value
            node.value_sum += value


def is_won_by_a_pass(game: GoGame) -> bool:
    """True if the other player has just passed, and a pass of the player to move ends and wins the game."""
    if game.ended or game.num_passes != 1:
        return False
    end = played(game, game.rows * game.columns)
    return end.outcome() == game.to_play


def played(game: Game, action: int) -> Game:
    """A copy of the game with one more move."""
    after = copy.copy(game)
    for name, value in vars(game).items():
        if isinstance(value, list | set):
            setattr(after, name, value.copy())
    after.play(action)
    return after
