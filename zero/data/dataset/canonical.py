"""The canonical digest of a game, which finds duplicates, and the split that follows from it."""

import hashlib

import numpy as np

from zero.data.dataset.manifest import SPLITS, SplitFractions, SplitName
from zero.games.position import GO, Rules


def canonical_digest(rules: Rules, actions: np.ndarray) -> str:
    """SHA-256 (hex) of the moves under the symmetry of the board that makes them the smallest.

    Passes at the end do not count: one server records them, another does not.

    Args:
      rules: the game.
      actions: [T] int16.
    """
    length = len(actions)
    while rules.game == GO and length and actions[length - 1] == rules.num_points:
        length -= 1
    images = rules.symmetries[:, actions[:length]].astype(">i2")  # big-endian: bytes in the order of the numbers
    return hashlib.sha256(min(image.tobytes() for image in images)).hexdigest()


def split_of(digest: str, seed: int, fractions: SplitFractions) -> SplitName:
    """The split of the games with a canonical digest; a function of its arguments only."""
    draw = int.from_bytes(hashlib.sha256(f"{seed} {digest}".encode()).digest()[:7]) / 2**56
    for name in SPLITS:
        draw -= getattr(fractions, name)
        if draw < 0.0:
            return name
    # The fractions add up to slightly less than 1.
    return next(name for name in reversed(SPLITS) if getattr(fractions, name) > 0.0)
