"""The folder of a match: what is played, a file for each game that is over, then the count and all games as SGF.

| file | what |
|---|---|
| `match.json` | the match: players, rules, seed |
| `games/0007.json` | a game, as soon as it is over |
| `result.json`, `games.sgf` | when all are |
| `lock` | held by the process that plays |
"""

from pathlib import Path

from pydantic import ValidationError

from zero.data.sgf import SgfHead, moves_to_sgf, write_collection
from zero.errors import StorageError
from zero.evaluation.match.results import FORFEIT, MatchGame, MatchSpec, MatchTable
from zero.games.position import Rules
from zero.storage.files import canonical_json, read_manifest, write_atomic, write_manifest

SPEC_FILE, RESULT_FILE, SGF_FILE = "match.json", "result.json", "games.sgf"
GAMES_DIR = "games"


class MatchFolder:
    """The games of one match on disk."""

    def __init__(self, folder: Path, spec: MatchSpec) -> None:
        """Opens the folder of `spec`, or makes it.

        Raises:
          StorageError: it holds another match, or games of nobody knows which.
        """
        self._folder, self._spec = folder, spec
        if (folder / SPEC_FILE).exists():
            if read_manifest(folder, MatchSpec, SPEC_FILE) != spec:
                raise StorageError(f"{folder} holds another match; give another folder")
        elif any(folder.glob(f"{GAMES_DIR}/*.json")):
            raise StorageError(f"{folder} holds games of a match whose {SPEC_FILE} is gone; give another folder")
        else:
            (folder / GAMES_DIR).mkdir(parents=True, exist_ok=True)
            write_manifest(folder, spec, SPEC_FILE)

    def missing(self) -> list[int]:
        """Numbers of the games that are not there yet."""
        return [game for game in range(self._spec.num_games) if not self._path(game).exists()]

    def keep(self, game: MatchGame) -> None:
        """Keeps a game that is over."""
        write_atomic(self._path(game.game), canonical_json(game))

    def games(self) -> list[MatchGame]:
        """All games, in order.

        Raises:
          StorageError: one is missing or altered.
        """
        return [self._read(game) for game in range(self._spec.num_games)]

    def finish(self, rules: Rules, games: list[MatchGame], table: MatchTable) -> None:
        """Writes the count, and the games as one SGF collection."""
        write_collection(self._folder / SGF_FILE, [self._sgf(rules, game) for game in games])
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
            raise StorageError(f"{path} is no game of this match; delete it, and it is played again")
        return read

    def _path(self, game: int) -> Path:
        return self._folder / GAMES_DIR / f"{game:04d}.json"

    def _sgf(self, rules: Rules, game: MatchGame) -> str:
        names = [player.name for player in self._spec.players]
        black, white = names if game.game % 2 == 0 else reversed(names)
        head = SgfHead(
            event=f"match of {self._spec.num_games} games, seed {self._spec.seed}",
            game_name=f"game {game.game}",
            black_name=black,
            white_name=white,
            comment=f"end: {game.end}" + (f", {game.fault}" if game.end == FORFEIT else ""),
        )
        return moves_to_sgf(rules, head, game.actions, game.outcome, game.margin, game.end)
