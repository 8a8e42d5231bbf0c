"""The 17 planes that the network sees (paper, Methods, 'Neural network architecture').

| plane | 1 where |
|---|---|
| 2 i, i = 0..7 | the player to move had a stone i moves ago |
| 2 i + 1 | the opponent had a stone i moves ago |
| 16 | everywhere, if Black is to move |

Before the first move the board is empty, so those planes are zero.
"""

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from zero._jit import kernel
from zero.games.position import (
    BLACK,
    NUM_HISTORY,
    NUM_MOVES,
    NUM_PLANES,
    TO_PLAY,
    History,
    Position,
    Rules,
    reset,
    side,
)
from zero.games.rules import play


@kernel
def write_planes(rules: Rules, position: Position, history: History, symmetry: int, out: np.ndarray) -> None:
    """Draws the position, point p at `symmetries[symmetry, p]`. Writes into `out` ([P, S*S])."""
    out[:] = 0.0
    target = rules.symmetries[symmetry]
    colour = position.state[TO_PLAY]
    time = position.state[NUM_MOVES]
    for i in range(min(NUM_HISTORY, time + 1)):
        for whose in range(2):
            board = history.boards[time - i, side(colour if whose == 0 else -colour)]
            plane = out[2 * i + whose]
            for word in range(rules.num_words):
                bits = board[word]
                while bits:
                    plane[target[(word << 6) + np.int64(trailing_zeros(bits))]] = 1.0
                    bits &= bits - np.uint64(1)
    if colour == BLACK:
        out[NUM_PLANES - 1] = 1.0


@kernel
def write_sample(
    rules: Rules, position: Position, history: History, actions: np.ndarray, move: int, symmetry: int, out: np.ndarray
) -> None:
    """Replays a game's first `move` actions and draws the position. Writes into `position`, `history` and `out`."""
    reset(rules, position, history)
    for t in range(move):
        play(rules, position, history, actions[t])
    write_planes(rules, position, history, symmetry, out)
