"""The specification of a match, its games and its result, and the folder that contains them.

| file | content |
|---|---|
| `match.json` | `MatchSpec`: players, rules, seed |
| `games/0007.json` | `MatchGame`, written when the game is over |
| `result.json`, `games.sgf` | `MatchTable` and all games, written when the last game is over |
| `lock` | held by the process that plays |

Scores are those of the first player, who has Black in the games of even number.
"""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationError

from zero.config.params import GameParams
from zero.data.sgf import SgfHead, moves_to_sgf, write_collection
from zero.errors import StorageError
from zero.games.rules import rules_of
from zero.players.player import PlayerId
from zero.statistics import wilson_interval
from zero.storage.files import canonical_json, read_manifest, sha256_bytes, write_atomic, write_manifest
from zero.storage.manifests import Colours, Manifest, MatchResult

FORFEIT = "forfeit"
"""How a game ended in which a player failed or played an illegal move."""
SPEC_FILE, RESULT_FILE, SGF_FILE = "match.json", "result.json", "games.sgf"
MATCH_GAMES_DIR = "games"


class MatchSpec(Manifest):
    """Everything that a match depends on."""

    version: Literal[1] = 1
    game: GameParams
    players: tuple[PlayerId, PlayerId]
    num_games: Annotated[int, Field(ge=2, multiple_of=2)]
    opening_moves: Annotated[int, Field(ge=0)]
    """Random legal moves at the start, the same in games 2k and 2k + 1."""
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
    """Black's area less White's area less komi; 0 if the game was not played out."""
    end: str
    """"passes", "length", "line", "full", "resignation" or "forfeit"."""
    fault: str = ""
    """Reason of a forfeit."""

    @property
    def result(self) -> int:
        """Outcome for the first player: +1, 0, -1."""
        return self.outcome if self.game % 2 == 0 else -self.outcome


class MatchTable(Manifest):
    """The result of a match."""

    players: tuple[PlayerId, PlayerId]
    result: MatchResult
    forfeits: tuple[int, int]
    """Games that each player forfeited."""
    mean_margin: float | None
    """Mean margin in points for the first player over the games that were played out; None without such games."""


class MatchFolder:
    """The files of one match."""

    def __init__(self, folder: Path, spec: MatchSpec) -> None:
        """Opens or creates the folder of `spec`.

        Raises:
          StorageError: the folder contains another match, or games without a specification.
        """
        self._folder, self._spec = folder, spec
        if (folder / SPEC_FILE).exists():
            if read_manifest(folder, MatchSpec, SPEC_FILE) != spec:
                raise StorageError(f"{folder} contains another match; give another folder")
        elif any(folder.glob(f"{MATCH_GAMES_DIR}/*.json")):
            raise StorageError(f"{folder} contains games of a match without {SPEC_FILE}; give another folder")
        else:
            (folder / MATCH_GAMES_DIR).mkdir(parents=True, exist_ok=True)
            write_manifest(folder, spec, SPEC_FILE)

    def missing(self) -> list[int]:
        """Numbers of the games that are not finished."""
        return [game for game in range(self._spec.num_games) if not self._path(game).exists()]

    def write(self, game: MatchGame) -> None:
        """Writes a finished game."""
        write_atomic(self._path(game.game), canonical_json(game))

    def games(self) -> list[MatchGame]:
        """All games, in order.

        Raises:
          StorageError: a game is missing or corrupt.
        """
        return [self._read(game) for game in range(self._spec.num_games)]

    def finish(self, games: list[MatchGame], table: MatchTable) -> None:
        """Writes the result, and the games as one SGF collection."""
        write_collection(self._folder / SGF_FILE, [self._sgf(game) for game in games])
        write_manifest(self._folder, table, RESULT_FILE)

    def _read(self, game: int) -> MatchGame:
        path = self._path(game)
        try:
            read = MatchGame.model_validate_json(path.read_bytes())
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from None
        except ValidationError:
            read = None
        if read is None or read.game != game:
            raise StorageError(f"{path} is not game {game} of this match; delete the file, and the game is replayed")
        return read

    def _path(self, game: int) -> Path:
        return self._folder / MATCH_GAMES_DIR / f"{game:04d}.json"

    def _sgf(self, game: MatchGame) -> str:
        names = [player.name for player in self._spec.players]
        black, white = names if game.game % 2 == 0 else reversed(names)
        head = SgfHead(
            event=f"match of {self._spec.num_games} games, seed {self._spec.seed}",
            game_name=f"game {game.game}",
            black_name=black,
            white_name=white,
            comment=f"end: {game.end}" + (f", {game.fault}" if game.end == FORFEIT else ""),
        )
        return moves_to_sgf(rules_of(self._spec.game), head, game.actions, game.outcome, game.margin, game.end)


def count_match(spec: MatchSpec, games: list[MatchGame]) -> MatchTable:
    """The result of these games."""
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
