"""The finished matches of `zero match`, `zero tournament` and `zero elo` for the index and replay of recorded games.

They are not part of the record (decision 9), and hold moves without searches.
"""

from pathlib import Path

import numpy as np

from zero.config.settings import STATE_FOLDER
from zero.errors import StorageError
from zero.evaluation.ladder import key_of
from zero.evaluation.match import MATCHES_DIR, RESULT_FILE, MatchSpec, read_game, read_match
from zero.evaluation.referee import MatchGame
from zero.games.rules import rules_of
from zero.storage.files import sha256_file
from zero.storage.manifests import GameRecord

MATCH_PREFIX = "~"
"""Precedes the name of a match's folder where other games have their lineage: it sorts after the names of lineages."""


def finished_match_digests(home: Path) -> dict[tuple[str, int], str]:
    """SHA-256 of the result of each finished match, by its name and the number 0, like `recorded_tags`.

    The digest is empty if the result cannot be read.
    """
    found = {}
    for path in (home / STATE_FOLDER / MATCHES_DIR).glob(f"*/{RESULT_FILE}"):
        try:
            digest = sha256_file(path)
        except StorageError:
            digest = ""
        found[MATCH_PREFIX + path.parent.name, 0] = digest
    return found


def match_path(name: str) -> str:
    """Path of a match's folder in the project."""
    return f"{STATE_FOLDER}/{MATCHES_DIR}/{name.removeprefix(MATCH_PREFIX)}"


def read_match_games(folder: Path) -> tuple[MatchSpec, list[GameRecord]]:
    """A finished match and its games.

    Raises:
      StorageError: the folder has no finished match, or a game is missing or corrupt.
    """
    spec = read_match(folder).spec
    return spec, [match_record(spec, read_game(folder, number)) for number in range(spec.num_games)]


def match_record(spec: MatchSpec, game: MatchGame) -> GameRecord:
    """A game of a match as a record without visits, whose values are 0; its players are named by their keys."""
    black, white = (key_of(player) for player in (spec.players if game.game % 2 == 0 else spec.players[::-1]))
    no_values = np.zeros(len(game.actions), np.float32)
    return GameRecord(
        actions=np.array(game.actions, np.int16),
        # A view of one zero, because a match of 400 games of 19x19 would need 100 MB.
        visit_counts=np.broadcast_to(np.uint16(0), (len(game.actions), rules_of(spec.game).num_actions)),
        root_values=no_values,
        best_values=no_values,
        sample_weights=np.ones(len(game.actions), np.float32),
        ownership=np.zeros(0, np.int8),
        outcome=game.outcome,
        margin=game.margin,
        end=game.end,
        never_resigns=False,
        game=game.game,
        black=black,
        white=white,
    )
