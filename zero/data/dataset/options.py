"""Reads the options of an import from the texts of the command line."""

import math

from zero.config.params import GameParams, GoParams
from zero.data.dataset.manifest import SPLITS, ImportOptions, SplitFractions
from zero.data.dataset.result import parse_rating
from zero.data.sgf import parse_komi
from zero.errors import ZeroError

ANY = "any"
SUM_SLACK = 1e-6
"""Tolerance of the sum of the fractions: 0.7, 0.2 and 0.1 do not add up to 1 exactly."""


def parse_options(
    game: GameParams,
    komi: str,
    min_rating: str | None,
    min_moves: int,
    split: str,
    seed: int,
    opening_moves: int = 0,
) -> ImportOptions:
    """The options.

    Args:
      game: the game of the dataset; its komi is accepted if `komi` is empty.
      komi: numbers separated by commas, `any`, or nothing.
      min_rating: a rank or a number, or None.
      min_moves: shortest game.
      split: three fractions, separated by commas.
      seed: seed of the split.
      opening_moves: moves at the start that were drawn at random.

    Raises:
      ZeroError: a text is not an option.
    """
    if min_rating is not None and parse_rating(min_rating) is None:
        raise ZeroError(f"--min-rating {min_rating!r} is not a rating; give a rank (3d, 5k, 1p) or a number (2000)")
    if opening_moves >= min_moves:
        raise ZeroError(
            f"--opening-moves {opening_moves} leaves no move of a game of --min-moves {min_moves}; raise the latter"
        )
    return ImportOptions(
        komi=_komi(game, komi),
        min_rating=min_rating,
        min_moves=min_moves,
        split=_fractions(split),
        seed=seed,
        opening_moves=opening_moves,
    )


def _komi(game: GameParams, text: str) -> tuple[float, ...] | None:
    if not isinstance(game, GoParams) or text == ANY:
        return None
    if not text:
        return (game.komi,)
    values = [parse_komi(part) for part in text.split(",")]
    accepted = sorted({value for value in values if value is not None})
    if None in values:
        raise ZeroError(f"--komi {text!r} is not a komi; give numbers (6.5,7.5) or {ANY}")
    return tuple(accepted)


def _fractions(text: str) -> SplitFractions:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != len(SPLITS) or not all(0.0 <= value <= 1.0 for value in values):
        raise ZeroError(f"--split {text!r} must be three fractions for {', '.join(SPLITS)}, such as 0.8,0.1,0.1")
    if not math.isclose(sum(values), 1.0, abs_tol=SUM_SLACK):
        raise ZeroError(f"--split {text!r} adds up to {sum(values):g}, expected 1; give three fractions that do")
    return SplitFractions(train=values[0], validation=values[1], test=values[2])
