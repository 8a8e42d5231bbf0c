"""The referee of a match: it alone knows the rules. Games go in lock-step, and both players think at the same time.

In each turn every player is asked for all games in which it is to move, the two side by side in threads. A move that is
illegal, or a player that fails, forfeits the game. Which games share a turn depends on nothing but their moves.
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
from zero.play.moves import end_by_rules
from zero.play.slots import END_NAMES
from zero.players.player import RESIGN, Player, Reply
from zero.search.streams import next_below, stream_of

OPENING_TRIES = 100
"""Openings drawn for a pair of games until one does not end the game."""


def most_opening_moves(rules: Rules) -> int:
    """Random moves that an opening may have: with half of the board filled there is a game left to play."""
    return rules.num_points // 2


class Table(NamedTuple):
    """One game in play."""

    game: int
    position: Position
    history: History
    actions: list[int]


class Referee:
    """Lets two players play; use it in a `with`."""

    def __init__(
        self, rules: Rules, players: tuple[Player, Player], seed: int, opening_moves: int, games_at_once: int
    ) -> None:
        """`games_at_once` games are open at once, for which both players have room."""
        self._rules, self._players = rules, players
        self._seed, self._opening_moves, self._at_once = seed, opening_moves, games_at_once
        self._pool = ThreadPoolExecutor(2, "player")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def play(self, games: Sequence[int]) -> Iterator[MatchGame]:
        """Plays these games of the match; each comes as soon as it is over.

        Raises:
          ParamsError: there is no opening of so many moves that does not end the game.
        """
        waiting = list(games)
        tables: dict[int, Table] = {}
        while waiting or tables:
            room = self._at_once - len(tables)
            if opened := waiting[:room]:
                tables |= {table.game: table for table in self._open(opened)}
                del waiting[:room]
            for game in self._turn(list(tables.values())):
                del tables[game.game]
                yield game

    def _turn(self, tables: list[Table]) -> list[MatchGame]:
        """Asks for one move in every game; the games that it ended."""
        turns = [[t for t in tables if self._to_move(t) == player] for player in (0, 1)]
        asked = [
            self._pool.submit(self._players[player].choose, [table.game for table in turns[player]])
            for player in (0, 1)
            if turns[player]
        ]
        replies = [reply for future in asked for reply in future.result()]
        over = [self._take(t, reply) for t, reply in zip(turns[0] + turns[1], replies, strict=True)]
        return [game for game in over if game is not None]

    def _take(self, table: Table, reply: Reply) -> MatchGame | None:
        """Plays a reply; the game, where it is over."""
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
        """A game that has ended by the rules."""
        end = END_NAMES[end_by_rules(self._rules, table.position)]
        points = float(margin(self._rules, table.position))
        return self._close(table, int(outcome(self._rules, table.position)), points, end)

    def _lost(self, table: Table, end: str, fault: str = "") -> MatchGame:
        """A game that the player to move has lost."""
        return self._close(table, -int(table.position.state[TO_PLAY]), 0.0, end, fault)

    def _close(self, table: Table, won_by: int, points: float, end: str, fault: str = "") -> MatchGame:
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
        """Which player is to move: the first has Black in the games of even number."""
        white = int(table.position.state[TO_PLAY] < 0)
        return white if table.game % 2 == 0 else 1 - white

    def _open(self, games: Sequence[int]) -> list[Table]:
        """Sets up games, with their openings. Each player hears of all at once: engines start side by side."""
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
        """Random legal moves, on the board alone, that do not end the game; the same for both games of a pair."""
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
            f"opening_moves = {self._opening_moves}: none of {OPENING_TRIES} random openings left a game to play; "
            "give fewer"
        )
