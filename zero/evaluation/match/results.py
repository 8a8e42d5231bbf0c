"""What a match is, its games, and its count, all as the first player sees it."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from zero.config.params import GameParams
from zero.players.player import PlayerId
from zero.statistics import wilson_interval
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.manifests import Colours, Manifest, MatchResult

FORFEIT = "forfeit"
"""How a game ended in which a player failed."""


class MatchSpec(Manifest):
    """All that a match depends on."""

    version: Literal[1] = 1
    game: GameParams
    players: tuple[PlayerId, PlayerId]
    """The first has Black in the games of even number."""
    num_games: Annotated[int, Field(ge=2, multiple_of=2)]
    opening_moves: Annotated[int, Field(ge=0)]
    """Random legal moves at the start, the same in games 2k and 2k + 1; 0: from the empty board."""
    seed: int

    def key(self) -> str:
        """SHA-256 (hex) of the canonical JSON."""
        return sha256_bytes(canonical_json(self))


class MatchGame(Manifest):
    """One game of a match."""

    game: int
    actions: tuple[int, ...]
    outcome: Literal[-1, 0, 1]
    """For Black."""
    margin: float
    """Black's area less White's less komi; 0 where it was not played out."""
    end: str
    """"passes", "length", "line", "full", "resignation" or "forfeit"."""
    fault: str = ""
    """Why it was forfeited."""

    @property
    def result(self) -> int:
        """+1, 0, -1 for the first player, who has Black in the games of even number."""
        return self.outcome if self.game % 2 == 0 else -self.outcome


class MatchTable(Manifest):
    """The count of a match, as the first player sees it."""

    players: tuple[PlayerId, PlayerId]
    result: MatchResult
    forfeits: tuple[int, int]
    """Games that each player forfeited."""
    mean_margin: float | None
    """Points by which the first player won, over the games that were played out; None without any."""


def count_match(spec: MatchSpec, games: list[MatchGame]) -> MatchTable:
    """Counts the games of a match."""
    results = np.array([game.result for game in games])
    black = np.array([game.game % 2 == 0 for game in games])
    total = _colours(results)
    score = (total.wins + total.draws / 2) / len(games)
    margins = [(1 - 2 * (game.game % 2)) * game.margin for game in games if game.end in ("passes", "length")]
    forfeits = results[np.array([game.end == FORFEIT for game in games])]
    return MatchTable(
        players=spec.players,
        result=MatchResult(
            wins=total.wins,
            losses=total.losses,
            draws=total.draws,
            as_black=_colours(results[black]),
            as_white=_colours(results[~black]),
            unique_games=len({game.actions for game in games}),
            score=score,
            interval=wilson_interval(score, len(games)),
            mean_length=float(np.mean([len(game.actions) for game in games])),
        ),
        forfeits=(int((forfeits < 0).sum()), int((forfeits > 0).sum())),
        mean_margin=float(np.mean(margins)) if margins else None,
    )


def _colours(results: np.ndarray) -> Colours:
    wins, losses, draws = (int((results == r).sum()) for r in (1, -1, 0))
    return Colours(wins=wins, losses=losses, draws=draws)
