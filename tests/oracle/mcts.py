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
from tests.oracle.forced import RootEdge, forced_action, pruned_visits
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

    def simulate(self, node: Node, forced: int | None = None) -> np.float32:
        """One simulation from `node` on, by the forced action if any; its value for the player to move there."""
        edge = self.select(node) if forced is None else node.edges[forced]
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


class ParallelSearch(Search):
    """The same with several leaves on their way at once; extra visits are looked up in the paths that are on theirs."""

    num_leaves = 1
    virtual_loss = 1
    max_nodes = 2**31

    def extra_visits(self, edge: Edge) -> int:
        """Visits that an edge counts beside its own, each of them lost."""
        return self.virtual_loss * sum(edge is taken for path in self.on_way for _, taken in path)

    def select(self, node: Node) -> Edge:
        """The edge with the greatest Q + U, extra visits included; of equals the first."""
        all_visits = sum(edge.visits + self.extra_visits(edge) for edge in node.edges.values())
        exploration = self.c_puct * np.sqrt(F32(max(1, all_visits)))
        first_play = node.value_sum / F32(max(1, node.visits)) if self.parent_first_play else F32(0)

        def score(edge: Edge) -> np.float32:
            extra = self.extra_visits(edge)
            visits = F32(edge.visits + extra)
            q_value = (edge.value_sum - F32(extra)) / visits if visits else first_play
            return F32(q_value + exploration * edge.prior / (F32(1) + visits))

        return max(node.edges.values(), key=score)

    def search(self, num_simulations: int) -> int:
        """Simulations, a batch at a time; returns how many there were before the tree was full."""
        self.on_way: list[list[tuple[Node, Edge]]] = []
        self.batches: list[int] = []  # leaves of each batch
        done = 0
        while done < num_simulations:
            begun = self.send(num_simulations - done)
            if begun == 0:
                break
            done += begun
            if self.on_way:
                self.batches.append(len(self.on_way))
            for path in self.on_way:
                leaf = path[-1][1].child
                assert leaf
                self.count(path, self.ask(leaf))
            self.on_way = []
        return done

    def send(self, most: int) -> int:
        """Begins simulations until enough are on their way or one has nowhere to go; returns how many it began."""
        begun = 0
        while begun < most and len(self.on_way) < self.num_leaves:
            path = self.walk()
            if path is None:
                break
            begun += 1
            leaf = path[-1][1].child
            assert leaf
            if leaf.game.ended:
                self.count(path, leaf.end_value())
            else:
                self.on_way.append(path)
        return begun

    def walk(self) -> list[tuple[Node, Edge]] | None:
        """The path to a leaf; None where another is on its way to it or the tree has no room for it."""
        node = self.root
        path: list[tuple[Node, Edge]] = []
        while not node.game.ended:
            if any(taken[-1][1].child is node for taken in self.on_way):
                return None
            edge = self.select(node)
            path.append((node, edge))
            if edge.child is None:
                if len(self.root.below()) == self.max_nodes:
                    return None
                action = next(action for action, other in node.edges.items() if other is edge)
                edge.child = self.make(played(node.game, action))
                break
            node = edge.child
        return path

    def count(self, path: list[tuple[Node, Edge]], value: np.float32) -> None:
        """Counts a simulation along its path; `value` is seen by the player to move at the leaf."""
        for node, edge in reversed(path):
            value = -value
            edge.visits += 1
            edge.value_sum += value
            node.value_sum += value


class TwinGame(NamedTuple):
    """A finished game."""

    actions: list[int]
    visit_counts: list[dict[int, int]]
    root_values: list[np.float32]
    best_values: list[np.float32]
    never_resigns: bool
    margin: float
    outcome: int
    resigned: bool


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
    forced_playouts: float
    full_search_fraction: float
    fast_simulations: int
    calibration_fraction: float
    resign_threshold: float


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
    never_resigns = settings.resign_threshold <= -1 or stream.uniform() < settings.calibration_fraction
    record = TwinGame([], [], [], [], never_resigns, 0.0, 0, False)
    fast = is_fast(settings, stream)
    while not game.ended:
        search = searches[game.to_play]
        if search.tree is None:
            search.start(game)
        root = search.root
        if settings.dirichlet_fraction > 0 and not fast:
            alpha = settings.dirichlet_concentration / len(root.edges)
            search.mix_noise([stream.gamma(alpha) for _ in root.edges], settings.dirichlet_fraction)
        for _ in range(settings.fast_simulations if fast else settings.num_simulations):
            forced = None if fast else forced_action(root_edges(root), settings.forced_playouts)
            search.simulate(root, forced)
        action = search.most_visited()
        value, best_value = search.root_value(), root.edges[action].value_sum / F32(root.edges[action].visits)
        if not never_resigns and len(record.actions) >= 2 and max(value, best_value) < settings.resign_threshold:
            return record._replace(outcome=-game.to_play, resigned=True)
        if len(record.actions) < settings.temperature_moves:
            action = drawn_by_visits(root, stream.uniform())
        record.actions.append(action)
        target = {a: edge.visits for a, edge in root.edges.items() if edge.visits}
        if settings.forced_playouts:
            target = pruned_visits(root_edges(root), float(F32(settings.c_puct)), settings.forced_playouts)
        record.visit_counts.append({} if fast else target)
        record.root_values.append(value)
        record.best_values.append(best_value)
        game = played(game, action)
        for search in set(searches.values()):
            if settings.tree_reuse:
                search.follow(action, settings.max_nodes - settings.num_simulations - 1)
            else:
                search.tree = None
        if not game.ended:
            fast = is_fast(settings, stream)
    return record._replace(margin=game.margin(), outcome=game.outcome())


def is_fast(settings: Settings, stream: Stream) -> bool:
    """Whether the next move has few simulations."""
    return settings.full_search_fraction < 1 and stream.uniform() >= settings.full_search_fraction


def root_edges(root: Node) -> list[RootEdge]:
    """The edges of a root, for the twin of forced playouts."""
    return [RootEdge(a, float(e.prior), e.visits, float(e.value_sum)) for a, e in root.edges.items()]


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
