"""Imported games as columns of `zero.data.records`, their origins, and the check of both.

A game has no search. The policy target of a position is the move that was played, with one visit: so every reader of
records sees one target per move, and training draws from all moves but the random ones of an opening. The values of the
search are the result of the game, seen by the player to move, so that a mix of both is the result. Ownership is empty:
the area was counted by the players.
"""

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zero.data.adjudication import ILLEGAL_MOVE, ILLEGAL_TARGET, MOVE_AFTER_END, adjudicate, violation_text
from zero.data.dataset.manifest import ImportedGame
from zero.data.records import COMPRESSION, COMPRESSION_LEVEL, GameColumns
from zero.data.validation import NO_MOVE, Violation, moves_of
from zero.games.position import Rules

ORIGIN_SCHEMA = pa.schema(
    [
        pa.field("digest", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("game", pa.int32(), nullable=False),
        pa.field("result", pa.string(), nullable=False),
        pa.field("komi", pa.float32()),
        pa.field("rules", pa.string(), nullable=False),
        pa.field("black_rating", pa.string(), nullable=False),
        pa.field("white_rating", pa.string(), nullable=False),
        pa.field("date", pa.string(), nullable=False),
        pa.field("place", pa.string(), nullable=False),
    ]
)
"""One row per game. `game` is the number in its file, from 1; the texts are those of the header."""
MOVE_VIOLATIONS = (ILLEGAL_MOVE, ILLEGAL_TARGET, MOVE_AFTER_END)
"""Violations by moves. The other ones compare the result with the board, and people agree on results."""


def columns_of(rules: Rules, games: Sequence[ImportedGame], first_game: int, opening_moves: int = 0) -> GameColumns:
    """One or more games as columns, numbered from `first_game`. The first `opening_moves` have no policy target."""
    lengths = np.array([len(game.actions) for game in games])
    actions = np.concatenate([np.array(game.actions, np.int16) for game in games])
    move_offsets = np.concatenate([[0], np.cumsum(lengths)])
    outcome = np.array([game.outcome for game in games], np.int8)
    move = np.arange(len(actions)) - np.repeat(move_offsets[:-1], lengths)
    is_target = move >= opening_moves
    values = (np.repeat(outcome, lengths) * np.where(move % 2 == 0, 1, -1)).astype(np.float32)
    return GameColumns(
        num_actions=rules.num_actions,
        game=np.arange(first_game, first_game + len(games), dtype=np.int32),
        black=tuple(game.black for game in games),
        white=tuple(game.white for game in games),
        outcome=outcome,
        margin=np.array([game.margin for game in games], np.float32),
        end=tuple(game.end for game in games),
        never_resigns=np.zeros(len(games), np.bool_),
        ownership_offsets=np.zeros(len(games) + 1, np.int64),
        ownership=np.zeros(0, np.int8),
        move_offsets=move_offsets,
        actions=actions,
        root_values=values,
        best_values=values,  # the played move is the only action with a visit
        sample_weights=np.ones(len(actions), np.float32),
        visit_offsets=np.concatenate([[0], np.cumsum(is_target)]),
        visit_actions=actions[is_target],
        visit_counts=np.ones(np.count_nonzero(is_target), np.uint16),
    )


def write_origins(games: Sequence[ImportedGame]) -> bytes:
    """The Parquet file of the origins of one or more games."""
    columns = {field.name: [getattr(game, field.name) for game in games] for field in ORIGIN_SCHEMA}
    file = io.BytesIO()
    table = pa.Table.from_pydict(columns, schema=ORIGIN_SCHEMA)
    pq.write_table(table, file, version="2.6", compression=COMPRESSION, compression_level=COMPRESSION_LEVEL)
    return file.getvalue()


def dataset_violations(games: GameColumns, rules: Rules, opening_moves: int = 0) -> list[Violation]:
    """Illegal moves, and everything else that `columns_of` does not write; empty if there is nothing.

    Args:
      games: as many actions as the game of the rules, see `zero.data.window.shard_mismatch`.
      rules: those of the dataset.
      opening_moves: moves at the start of each game without a policy target.
    """
    found = adjudicate(rules, games)
    violations = [
        Violation(
            "rules", int(games.game[i]), int(found.violation_move[i]), violation_text(rules, games, found, int(i))
        )
        for i in np.flatnonzero(np.isin(found.violation, MOVE_VIOLATIONS))
    ]
    moves = moves_of(games)
    expected = (moves.move >= opening_moves).astype(moves.total.dtype)
    results = games.outcome[moves.game] * moves.mover
    is_result = (games.root_values == results) & (games.best_values == results)
    for clause, text, wrong in (
        ("targets", "the policy target is not the played move", (moves.total != expected) | (moves.played != expected)),
        ("values", "a value is not the result of the game", ~is_result),
        ("weights", "the sample weight is not 1", games.sample_weights != 1.0),
    ):
        for index in np.flatnonzero(wrong):
            violations.append(Violation(clause, int(games.game[moves.game[index]]), int(moves.move[index]), text))
    for game in np.flatnonzero(np.diff(games.ownership_offsets)):
        violations.append(Violation("rules", int(games.game[game]), NO_MOVE, "it has owners of points"))
    for game in np.flatnonzero(~np.isfinite(games.margin)):
        text = f"the margin is {games.margin[game]:g}"
        violations.append(Violation("values", int(games.game[game]), NO_MOVE, text))
    return violations
