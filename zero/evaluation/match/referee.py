"""The referee of a match: it enforces the rules, and plays many games in lock-step.

In each turn every player receives one request for all games in which it is to move. The two players compute at the same
time, each in its own thread. A player forfeits a game if it fails or plays an illegal move. Which games share a turn
depends only on their moves.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from zero.errors import ParamsError
from zero.evaluation.match.results import FORFEIT, MatchGame
from zero.games.legality import why_illegal
from zero.games.position import (
    TO_PLAY,
    History,
    Position,
    Rules,
    new_history,
    new_position,
    reset,
)
from zero.games.rules import ended, legal_mask, margin, outcome, play
from zero.play.moves import end_reason
from zero.play.slots import END_NAMES
from zero.players.player import RESIGN, Player, Reply
from zero.search.streams import next_below, stream_of

OPENING_TRIES = 100
"""Maximum number of random openings that are tried for a pair of games: some of them end the game."""


def max_opening_moves(rules: Rules) -> int:
    """Maximum number of random moves in an opening: half of the board stays empty."""
    return rules.num_points // 2


class Table(NamedTuple):
    """One game in play."""

    game: int
    position: Position
    history: History
    actions: list[int]


class Referee:
    """Plays games of two players. A context manager: leaving it ends the threads."""

    def __init__(
        self, rules: Rules, players: tuple[Player, Player], seed: int, opening_moves: int, games_at_once: int
    ) -> None:
        """Keeps at most `games_at_once` games in play; both players must have capacity for them."""
        self._rules, self._players = rules, players
        self._seed, self._opening_moves, self._at_once = seed, opening_moves, games_at_once
        self._pool = ThreadPoolExecutor(2, "player")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def play(self, games: Sequence[int]) -> Iterator[MatchGame]:
        """Plays these games of the match and yields each one when it is over.

        Raises:
          ParamsError: every random opening with that many moves ends the game.
        """
        waiting = list(games)
        tables: dict[int, Table] = {}
        while waiting or tables:
            capacity = self._at_once - len(tables)
            if opened := waiting[:capacity]:
                tables |= {table.game: table for table in self._open(opened)}
                del waiting[:capacity]
            for game in self._turn(list(tables.values())):
                del tables[game.game]
                yield game

    def _turn(self, tables: list[Table]) -> list[MatchGame]:
        """Plays one move in every game; returns the games that ended."""
        turns = [[t for t in tables if self._to_move(t) == player] for player in (0, 1)]
        requests = [
            self._pool.submit(self._players[player].choose, [table.game for table in turns[player]])
            for player in (0, 1)
            if turns[player]
        ]
        replies = [reply for future in requests for reply in future.result()]
        finished = [self._take(t, reply) for t, reply in zip(turns[0] + turns[1], replies, strict=True)]
        return [game for game in finished if game is not None]

    def _take(self, table: Table, reply: Reply) -> MatchGame | None:
        """Plays a reply; returns the game if it is over."""
        name = self._players[self._to_move(table)].id.name
        if reply.fault:
            return self._lost(table, FORFEIT, f"{name}: {reply.fault}")
        if reply.action == RESIGN:
            return self._lost(table, "resignation")
        if fault := self._illegal(table, reply.action):
            return self._lost(table, FORFEIT, f"{name}: {fault}")
        self._move(table, reply.action)
        return self._result(table) if ended(table.position) else None

    def _illegal(self, table: Table, action: int) -> str | None:
        """Why an action is illegal; None if it is legal."""
        mask = np.zeros(self._rules.num_actions, np.bool_)
        legal_mask(self._rules, table.position, table.history, mask)
        if 0 <= action < self._rules.num_actions and mask[action]:
            return None
        copy = Position(*(np.copy(field) for field in table.position))
        return why_illegal(self._rules, copy, table.history, action)

    def _move(self, table: Table, action: int) -> None:
        play(self._rules, table.position, table.history, action)
        table.actions.append(int(action))
        for player in self._players:
            player.play(table.game, action)

    def _result(self, table: Table) -> MatchGame:
        """The result of a game that ended by the rules."""
        end = END_NAMES[end_reason(self._rules, table.position)]
        points = float(margin(self._rules, table.position))
        return self._finish(table, int(outcome(self._rules, table.position)), points, end)

    def _lost(self, table: Table, end: str, fault: str = "") -> MatchGame:
        """The result of a game that the player to move loses."""
        return self._finish(table, -int(table.position.state[TO_PLAY]), 0.0, end, fault)

    def _finish(self, table: Table, won_by: int, points: float, end: str, fault: str = "") -> MatchGame:
        for player in self._players:
            player.end(table.game)
        return MatchGame.model_validate(
            {
                "game": table.game,
                "actions": tuple(table.actions),
                "outcome": won_by,
                "margin": points,
                "end": end,
                "fault": fault,
            }
        )

    def _to_move(self, table: Table) -> int:
        """Index of the player to move. The first player has Black in the games of even number."""
        white = int(table.position.state[TO_PLAY] < 0)
        return white if table.game % 2 == 0 else 1 - white

    def _open(self, games: Sequence[int]) -> list[Table]:
        """Sets up games with their openings. One call per player for all games, so that engines start in parallel."""
        openings = [self._opening(game // 2) for game in games]
        for player in self._players:
            player.begin(games)
        tables = [Table(game, new_position(self._rules), new_history(self._rules), []) for game in games]
        for table, opening in zip(tables, openings, strict=True):
            reset(self._rules, table.position, table.history)
            for action in opening:
                self._move(table, action)
        return tables

    def _opening(self, pair: int) -> list[int]:
        """Random legal moves without passes that do not end the game; the same for both games of a pair."""
        rules, stream = self._rules, stream_of(self._seed, 0, "opening", pair)
        position, history = new_position(rules), new_history(rules)
        mask = np.zeros(rules.num_actions, np.bool_)
        for _ in range(OPENING_TRIES):
            reset(rules, position, history)
            actions: list[int] = []
            while len(actions) < self._opening_moves and not ended(position):
                legal_mask(rules, position, history, mask)
                legal = np.flatnonzero(mask[: rules.num_points])
                if not len(legal):
                    break
                actions.append(int(legal[next_below(stream, len(legal))]))
                play(rules, position, history, actions[-1])
            if len(actions) == self._opening_moves and not ended(position):
                return actions
        raise ParamsError(
            f"opening_moves = {self._opening_moves}: all of {OPENING_TRIES} random openings ended the game; give a "
            "smaller number"
        )
