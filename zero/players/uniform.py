"""A player that draws a legal action, all equally likely: the weakest player that follows the rules.

In Go a pass is as likely as any point, so it fills its own eyes, and the length of its games varies widely.
"""

from collections.abc import Sequence

from zero.games.position import Rules
from zero.players.board import Board
from zero.players.player import PlayerId, Reply
from zero.search.streams import next_below, stream_of


class UniformPlayer:
    """Plays at random. A move depends on the seed, the game's number, the move's number and the position."""

    def __init__(self, rules: Rules, seed: int) -> None:
        self.id = PlayerId(name="random", kind="random", settings={})
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
        """Plays a move of either side."""
        self._boards[game].play(action)

    def end(self, game: int) -> None:
        """Removes the game."""
        del self._boards[game]

    def close(self) -> None:
        """Does nothing: it holds no resources."""

    def _draw(self, game: int) -> Reply:
        board = self._boards[game]
        legal = board.legal_actions()
        stream = stream_of(self._seed, 0, f"random move {len(board.actions)}", game)
        return Reply(int(legal[next_below(stream, len(legal))]))
