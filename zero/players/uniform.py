"""Plays a legal action, all equally likely: the weakest player that keeps to the rules.

In Go the pass is one of the actions and as likely as any point, neither kept for the end nor avoided; so it fills its
own eyes, and a game of two such players is as long as chance has it.
"""

from collections.abc import Sequence

from zero.games.position import Rules
from zero.players.base import PlayerId, Reply
from zero.players.board import Board
from zero.search.streams import next_below, stream_of


class UniformPlayer:
    """Plays at random; a move depends on the seed, the game's number, the number of the move and the position."""

    def __init__(self, rules: Rules, seed: int) -> None:
        self.player = PlayerId(name="random", kind="random", settings={})
        self._rules, self._seed = rules, seed
        self._boards: dict[int, Board] = {}

    def begin(self, games: Sequence[int]) -> None:
        """Sets up the empty board of new games."""
        for game in games:
            self._boards[game] = Board(self._rules)

    def choose(self, games: Sequence[int]) -> list[Reply]:
        """Draws an action in each of these games."""
        return [self._draw(game) for game in games]

    def play(self, game: int, action: int) -> None:
        """Plays a move of either player."""
        self._boards[game].play(action)

    def end(self, game: int) -> None:
        """Forgets the game."""
        del self._boards[game]

    def close(self) -> None:
        """Nothing is held that needs it."""

    def _draw(self, game: int) -> Reply:
        board = self._boards[game]
        legal = board.legal_actions()
        stream = stream_of(self._seed, 0, f"random move {board.num_moves}", game)
        return Reply(int(legal[next_below(stream, len(legal))]))
