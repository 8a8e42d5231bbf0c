"""Rollout search, slow and obvious: the twin search with random games by the twins of the rules.

Twin of zero/players/rollout.py.
"""

import numpy as np

from tests.oracle.games import Game
from tests.oracle.go import GoGame, Point, all_points, neighbours
from tests.oracle.gomoku import GomokuGame
from tests.oracle.mcts import F32, Node, Search, played
from tests.oracle.streams import Stream

C_PUCT = 5.0


class RolloutSearch(Search):
    """A search that evaluates leaves by random games."""

    def __init__(self, stream: Stream) -> None:
        def judge(_: np.ndarray) -> tuple[np.ndarray, float]:
            raise AssertionError("there is no network")

        super().__init__(judge, np.zeros((1, 1), np.int16), C_PUCT, False, lambda: 0)
        self.stream = stream

    def choose(self, game: Game, num_playouts: int) -> int:
        """The most visited action after `num_playouts` playouts."""
        self.tree = self.make(game)
        even_priors(self.tree)
        for _ in range(num_playouts):
            self.simulate(self.tree)
        return self.most_visited()

    def evaluate(self, node: Node) -> np.float32:
        even_priors(node)
        return F32(outcome_of_random_game(node.game, self.stream) * node.game.to_play)


def even_priors(node: Node) -> None:
    for edge in node.edges.values():
        edge.prior = F32(1) / F32(len(node.edges))


def outcome_of_random_game(game: Game, stream: Stream) -> int:
    """Result of a copy of the game after random moves to the end."""
    if isinstance(game, GoGame):
        while not game.ended:
            game = played(game, random_move(game, stream))
            assert isinstance(game, GoGame)
        return game.outcome()
    if not isinstance(game, GomokuGame):
        while not game.ended:
            legal = sorted(game.legal_actions())
            game = played(game, legal[stream.below(len(legal))])
        return game.outcome()
    left = sorted(game.legal_actions())
    while not game.ended:
        drawn = stream.below(len(left))
        left[drawn], left[-1] = left[-1], left[drawn]
        game = played(game, left.pop())
    return game.outcome()


def random_move(game: GoGame, stream: Stream) -> int:
    """A random legal point that is not an own eye, else the pass."""
    empty = sorted(set(all_points(game.rows, game.columns)) - game.board.black - game.board.white)
    while empty:
        point = empty.pop(stream.below(len(empty)))
        if not is_eye(game, point) and game.is_legal(point):
            return point[0] * game.columns + point[1]
    return game.rows * game.columns


def is_eye(game: GoGame, point: Point) -> bool:
    """True if all neighbours are own stones; away from the edge the opponent may have one diagonal point."""
    board = set(all_points(game.rows, game.columns))
    row, column = point
    diagonals = {(row + down, column + right) for down in (-1, 1) for right in (-1, 1)}
    allowed = 1 if diagonals <= board else 0
    enemies = diagonals & game.board.stones(-game.to_play)
    return neighbours(point) & board <= game.board.stones(game.to_play) and len(enemies) <= allowed
