"""The search and its games, slow and obvious: nodes that hold their own game, edges in a dict, and recursion.

Twin of zero/search and zero/play/boards.py, written from the paper (Methods, 'Search algorithm' and 'Self-play'). Sums
are taken in float32 and in the same order, so that whole trees compare bit for bit. The rules are those of the twins.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tests.oracle import planes as plane_twin
from tests.oracle.go import GoGame
from tests.oracle.gomoku import GomokuGame

Game = GoGame | GomokuGame
Judge = Callable[[np.ndarray], tuple[np.ndarray, float]]
"""Planes [17, S*S] -> prior of every action [A] and value for the player to move."""

F32 = np.float32
WORD = 2**64


class Stream:
    """The random stream of one game: SplitMix64 under each half of a 128-bit key, in whole numbers of any size."""

    def __init__(self, seed: int, generation: int, phase: str, game: int) -> None:
        digest = hashlib.sha256(f"{seed}/{generation}/{phase}/{game}".encode()).digest()
        self.keys = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
        self.counter = 0

    @staticmethod
    def mix(word: int) -> int:
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % WORD
        return word ^ (word >> 31)

    def word(self) -> int:
        self.counter += 1
        return self.mix(self.mix((self.counter * 0x9E3779B97F4A7C15 + self.keys[0]) % WORD) ^ self.keys[1])

    def uniform(self) -> float:
        return (self.word() >> 11) / 2**53

    def below(self, bound: int) -> int:
        return int(self.uniform() * bound)

    def normal(self) -> float:
        """Box and Muller."""
        radius = math.sqrt(-2 * math.log(1 - self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())

    def gamma(self, shape: float) -> float:
        """Marsaglia and Tsang."""
        if shape < 1:
            boost = math.pow(1 - self.uniform(), 1 / shape)
            return boost * self.gamma(shape + 1)
        d = shape - 1 / 3
        while True:
            x = self.normal()
            v = (1 + x / math.sqrt(9 * d)) ** 3
            if v > 0 and math.log(1 - self.uniform()) < x * x / 2 + d - d * v + d * math.log(v):
                return d * v


class Edge:
    """A legal action of a node; its child is made when it is first taken."""

    def __init__(self) -> None:
        self.prior = F32(0)
        self.visits = 0
        self.value_sum = F32(0)  # seen by the player to move at the node
        self.child: Node | None = None


class Node:
    """A position of the tree."""

    def __init__(self, game: Game, serial: int) -> None:
        self.game = game
        self.serial = serial  # nodes are numbered in the order they were made
        self.value_sum = F32(0)  # of all edges
        self.edges = {action: Edge() for action in sorted(game.legal_actions())}

    @property
    def visits(self) -> int:
        return sum(edge.visits for edge in self.edges.values())

    def end_value(self) -> np.float32:
        """Value of an ended game for the player to move."""
        return F32(self.game.outcome() * self.game.to_play)

    def below(self) -> list["Node"]:
        """This node and all under it."""
        children = [edge.child for edge in self.edges.values() if edge.child]
        return [self, *(node for child in children for node in child.below())]


class Search:
    """The tree of one player in one game."""

    def __init__(
        self,
        judge: Judge,
        symmetries: np.ndarray,
        c_puct: float,
        parent_first_play: bool,
        draw_symmetry: Callable[[], int],
    ) -> None:
        self.judge = judge
        self.symmetries = symmetries.tolist()
        self.c_puct = F32(c_puct)
        self.parent_first_play = parent_first_play  # the value of an untried action is that of its node, not 0
        self.draw_symmetry = draw_symmetry
        self.tree: Node | None = None
        self.num_made = 0

    @property
    def root(self) -> Node:
        """The root of a tree that is not empty."""
        assert self.tree
        return self.tree

    def start(self, game: Game) -> None:
        """Makes the root and has it judged."""
        self.tree = self.make(game)
        self.ask(self.tree)

    def make(self, game: Game) -> Node:
        self.num_made += 1
        return Node(game, self.num_made)

    def ask(self, node: Node) -> np.float32:
        """Has a new leaf judged under a symmetry: gives its edges their priors and returns its value."""
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
        """The edge with the greatest Q + U; of equals the first."""
        exploration = self.c_puct * np.sqrt(F32(max(1, node.visits)))
        first_play = node.value_sum / F32(max(1, node.visits)) if self.parent_first_play else F32(0)

        def score(edge: Edge) -> np.float32:
            q_value = edge.value_sum / F32(edge.visits) if edge.visits else first_play
            return F32(q_value + exploration * edge.prior / (F32(1) + F32(edge.visits)))

        return max(node.edges.values(), key=score)

    def simulate(self, node: Node) -> np.float32:
        """One simulation from `node` on; returns its value for the player to move there."""
        edge = self.select(node)
        if edge.child is None:
            action = next(action for action, other in node.edges.items() if other is edge)
            edge.child = self.make(played(node.game, action))
            value = edge.child.end_value() if edge.child.game.ended else self.ask(edge.child)
        elif edge.child.game.ended:
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
        """Makes the child of the played action the root; of its nodes the newest are forgotten."""
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
        """The action to play: of equally visited ones that with the greater prior, then the first."""
        edges = self.root.edges
        return max(edges, key=lambda action: (edges[action].visits, edges[action].prior))


class TwinGame(NamedTuple):
    """A finished game."""

    actions: list[int]
    visit_counts: list[dict[int, int]]
    root_values: list[np.float32]
    margin: float
    outcome: int


class Settings(NamedTuple):
    """How a game is played; named as in zero/play/boards.py."""

    num_simulations: int
    max_nodes: int
    c_puct: float
    parent_first_play: bool
    random_symmetry: bool
    tree_reuse: bool
    temperature_moves: int
    dirichlet_concentration: float
    dirichlet_fraction: float


def play_game(
    game: Game, settings: Settings, judges: dict[int, Judge], symmetries: np.ndarray, stream: Stream
) -> TwinGame:
    """Plays a game to its end.

    Args:
      game: the board before the first move.
      settings: how it is played.
      judges: by colour; one and the same object for both colours is self-play with one tree.
      symmetries: [K, A], where action a goes under symmetry k.
      stream: every random number of the game comes from here.
    """

    def draw_symmetry() -> int:
        return stream.below(len(symmetries)) if settings.random_symmetry else 0

    searches = {
        colour: Search(judge, symmetries, settings.c_puct, settings.parent_first_play, draw_symmetry)
        for colour, judge in judges.items()
    }
    if judges[1] is judges[-1]:
        searches[-1] = searches[1]
    record = TwinGame([], [], [], 0.0, 0)
    while not game.ended:
        search = searches[game.to_play]
        if search.tree is None:
            search.start(game)
        root = search.root
        if settings.dirichlet_fraction > 0:
            alpha = settings.dirichlet_concentration / len(root.edges)
            search.mix_noise([stream.gamma(alpha) for _ in root.edges], settings.dirichlet_fraction)
        for _ in range(settings.num_simulations):
            search.simulate(root)
        action = search.most_visited()
        if len(record.actions) < settings.temperature_moves:
            action = drawn_by_visits(root, stream.uniform())
        record.actions.append(action)
        record.visit_counts.append({a: edge.visits for a, edge in root.edges.items() if edge.visits})
        record.root_values.append(search.root_value())
        game = played(game, action)
        for search in set(searches.values()):
            if settings.tree_reuse:
                search.follow(action, settings.max_nodes - settings.num_simulations - 1)
            else:
                search.tree = None
    return record._replace(margin=game.margin(), outcome=game.outcome())


def drawn_by_visits(root: Node, uniform: float) -> int:
    """The action in whose share of the visits, laid end to end, the number in [0, 1) falls."""
    mark = uniform * root.visits
    end = 0
    for action, edge in root.edges.items():
        end += edge.visits
        if mark < end:
            return action
    raise AssertionError("a root that has no visits")


def played(game: Game, action: int) -> Game:
    """The game with one move more; the one given is left as it is."""
    after = copy.copy(game)
    for name, value in vars(game).items():
        if isinstance(value, list | set):
            setattr(after, name, value.copy())
    after.play(action)
    return after
