"""The referee of a match: it enforces the rules, and plays many games in lock-step.

In each turn every player receives one request for all games in which it is to move. The two players compute at the same
time, each in its own thread. A player forfeits a game if it fails or plays an illegal move. Which games share a turn
depends only on their moves.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Self

from zero.data.sgf import FORFEIT
from zero.errors import MoveError, ParamsError
from zero.games.position import Rules
from zero.players.board import Board
from zero.players.player import RESIGN, Player, Reply
from zero.search.streams import next_below, stream_of
from zero.storage.manifests import RESIGNATION, Manifest

OPENING_TRIES = 100
"""Maximum number of random openings that are tried for a pair of games: some of them end the game."""


class MatchGame(Manifest):
    """One game of a match."""

    game: int
    actions: tuple[int, ...]
    outcome: Literal[-1, 0, 1]
    """For Black."""
    margin: float
    """Black's area less White's area less komi; 0 if the game was not played out."""
    end: str
    """One of `zero.play.slots.END_NAMES`, or FORFEIT."""
    fault: str = ""
    """Reason of a forfeit."""

    @property
    def result(self) -> int:
        """Outcome for the first player, who has Black in the games of even number: +1, 0, -1."""
        return self.outcome if self.game % 2 == 0 else -self.outcome


def max_opening_moves(rules: Rules) -> int:
    """Maximum number of random moves in an opening: half of the board stays empty."""
    return rules.num_points // 2


class Referee:
    """Plays games of two players. A context manager: the caller closes the players after it."""

    def __init__(
        self, rules: Rules, players: Sequence[Player], seed: int, opening_moves: int, games_at_once: int
    ) -> None:
        """Keeps at most `games_at_once` games in play; the two players must have capacity for them."""
        self._rules, self._players = rules, players
        self._seed, self._opening_moves, self._at_once = seed, opening_moves, games_at_once
        self._boards: dict[int, Board] = {}  # games in play, by number
        self._pool = ThreadPoolExecutor(2, "player")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Without waiting: after an interruption a thread may wait for an engine until its player is closed.
        self._pool.shutdown(wait=False, cancel_futures=True)

    def play(self, games: Sequence[int]) -> Iterator[MatchGame]:
        """Plays these games of the match and yields each one when it is over.

        Raises:
          ParamsError: every random opening with that many moves ends the game.
        """
        waiting = list(games)
        while waiting or self._boards:
            capacity = self._at_once - len(self._boards)
            if opened := waiting[:capacity]:
                self._open(opened)
                del waiting[:capacity]
            yield from self._turn()

    def _open(self, games: Sequence[int]) -> None:
        """Sets up games with their openings. One call per player for all games, so that engines start in parallel."""
        openings = [self._opening(game // 2) for game in games]
        for player in self._players:
            player.begin(games)
        for game, opening in zip(games, openings, strict=True):
            self._boards[game] = Board(self._rules)
            for action in opening:
                self._move(game, action)

    def _opening(self, pair: int) -> tuple[int, ...]:
        """Random legal moves without passes that do not end the game; the same for both games of a pair."""
        stream = stream_of(self._seed, 0, "opening", pair)
        for _ in range(OPENING_TRIES):
            board = Board(self._rules)
            while len(board.actions) < self._opening_moves and not board.is_over:
                legal = [action for action in board.legal_actions() if action < self._rules.num_points]
                if not legal:
                    break
                board.play(legal[next_below(stream, len(legal))])
            if len(board.actions) == self._opening_moves and not board.is_over:
                return board.actions
        raise ParamsError(
            f"opening_moves = {self._opening_moves}: all of {OPENING_TRIES} random openings ended the game; give a "
            "smaller number"
        )

    def _turn(self) -> list[MatchGame]:
        """Plays one move in every game; returns the games that ended."""
        turns = [[game for game in self._boards if self._to_move(game) == player] for player in (0, 1)]
        requests = [
            self._pool.submit(player.choose, turn) for player, turn in zip(self._players, turns, strict=True) if turn
        ]
        replies = [reply for request in requests for reply in request.result()]
        finished = [self._take(game, reply) for game, reply in zip(turns[0] + turns[1], replies, strict=True)]
        return [game for game in finished if game is not None]

    def _take(self, game: int, reply: Reply) -> MatchGame | None:
        """Plays a reply; returns the game if it is over."""
        board, name = self._boards[game], self._players[self._to_move(game)].id.name
        loss = -board.to_play
        if reply.fault:
            return self._finish(game, loss, FORFEIT, fault=f"{name}: {reply.fault}")
        if reply.action == RESIGN:
            return self._finish(game, loss, RESIGNATION)
        try:
            self._move(game, reply.action)
        except MoveError as error:
            return self._finish(game, loss, FORFEIT, fault=f"{name}: {error}")
        if board.is_over:
            return self._finish(game, board.outcome(), board.end, board.margin())
        return None

    def _move(self, game: int, action: int) -> None:
        self._boards[game].play(action)
        for player in self._players:
            player.play(game, action)

    def _finish(self, game: int, outcome: int, end: str, margin: float = 0.0, fault: str = "") -> MatchGame:
        actions = self._boards.pop(game).actions
        for player in self._players:
            player.end(game)
        ended = {"game": game, "actions": actions, "outcome": outcome, "margin": margin, "end": end, "fault": fault}
        return MatchGame.model_validate(ended)

    def _to_move(self, game: int) -> int:
        """Index of the player to move. The first player has Black in the games of even number."""
        white = int(self._boards[game].to_play < 0)
        return white if game % 2 == 0 else 1 - white
