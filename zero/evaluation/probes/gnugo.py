"""GNU Go's games as a fixed yardstick: what a network makes of moves and outcomes that no network of ours chose.

`gnugo9.sgf` has games of GNU Go 3.8 at level 10 against itself on 9x9 under our rules, each pair with other random
moves at the start, without which it would play few games over and over. It was made by

    zero match gnugo:10 gnugo:10 --games 40 --openings 4 --size 9 --komi 7 --out games

and is that folder's `games.sgf`. On other boards there is no such yardstick.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zero.data.records import GameColumns
from zero.data.sgf import SgfGame, read_collection
from zero.errors import StorageError
from zero.games.position import GO, Rules
from zero.storage.files import sha256_bytes
from zero.storage.manifests import Sha256

GAMES_FILE = Path(__file__).with_name("gnugo9.sgf")
BOARD = 9
OPENING_MOVES = 4
"""Random moves at the start of each game, which are nobody's choice."""


def gnugo_games(rules: Rules) -> GameColumns | None:
    """The games for those rules, each move but the opening a policy target; None where there are none.

    Raises:
      StorageError: the file is missing.
    """
    if gnugo_digest(rules) is None:
        return None
    different = {game.actions: game for game in read_collection(_file().decode())}  # chances are not always taken
    return columns_of(rules, list(different.values()), OPENING_MOVES)


def gnugo_digest(rules: Rules) -> Sha256 | None:
    """SHA-256 of the file with the games for those rules; None where there are none.

    Raises:
      StorageError: the file is missing.
    """
    if rules.game != GO or (rules.rows, rules.columns) != (BOARD, BOARD):
        return None
    return sha256_bytes(_file())


def columns_of(rules: Rules, games: Sequence[SgfGame], opening_moves: int) -> GameColumns | None:
    """Games as records in which each move after the opening is a target; None where none of them was decided.

    A margin is counted anew with the rules' komi; who resigned or failed has lost with any.
    """
    kept = [(game, result) for game in games if (result := _outcome(game, rules.komi)) is not None]
    if not kept:
        return None
    lengths = [len(game.actions) for game, _ in kept]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    actions = np.array([action for game, _ in kept for action in game.actions], np.int16)
    is_target = np.concatenate([np.arange(length) >= opening_moves for length in lengths])
    return GameColumns(
        num_actions=rules.num_actions,
        game=np.arange(len(kept), dtype=np.int32),
        black=tuple(game.black_name for game, _ in kept),
        white=tuple(game.white_name for game, _ in kept),
        outcome=np.array([np.sign(margin) for _, margin in kept], np.int8),
        margin=np.array([margin if np.isfinite(margin) else 0.0 for _, margin in kept], np.float32),
        end=tuple("passes" if np.isfinite(margin) else "resignation" for _, margin in kept),
        never_resigns=np.zeros(len(kept), np.bool_),
        ownership_offsets=np.zeros(len(kept) + 1, np.int64),
        ownership=np.zeros(0, np.int8),
        move_offsets=offsets,
        actions=actions,
        root_values=np.zeros(len(actions), np.float32),
        best_values=np.zeros(len(actions), np.float32),
        visit_offsets=np.concatenate([[0], np.cumsum(is_target)]).astype(np.int64),
        visit_actions=actions[is_target],
        visit_counts=np.ones(int(is_target.sum()), np.uint16),
    )


def _file() -> bytes:
    try:
        return GAMES_FILE.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {GAMES_FILE}: {error.strerror}; install the package again") from None


def _outcome(game: SgfGame, komi: float) -> float | None:
    """Margin for Black with that komi, infinite where it was not counted; None where the file does not tell it."""
    winner, _, how = game.result.partition("+")
    if game.result == "0":
        margin = 0.0
    elif winner not in ("B", "W"):
        return None
    else:
        sign = 1 if winner == "B" else -1
        try:
            margin = sign * float(how)
        except ValueError:
            return sign * np.inf if how else None
    return margin + game.komi - komi
