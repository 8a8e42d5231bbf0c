"""The 17 input planes of the network (paper, Methods, 'Neural network architecture').

| plane | 1 if |
|---|---|
| 2 i, i = 0..7 | the player to move had a stone i moves ago |
| 2 i + 1 | the opponent had a stone i moves ago |
| 16 | Black is to move (all points) |

Planes of times before the first move are zero. A plane is a bitboard of W words: point p is bit p & 63 of word p >> 6.
A position takes 272 bytes at 9x9 instead of 5,508 as float32, which saves cache, transfers to a GPU and comparisons.
"""

import numpy as np
from numba.cpython.unsafe.numbers import trailing_zeros

from zero.games.position import (
    BLACK,
    NUM_HISTORY,
    NUM_MOVES,
    NUM_PLANES,
    TO_PLAY,
    WORD_BITS,
    History,
    Position,
    Rules,
    reset,
    side,
)
from zero.games.rules import play
from zero.kernels import kernel


def pack_planes(planes: np.ndarray) -> np.ndarray:
    """Bitboards [..., W] uint64 of planes [..., S*S]; each non-zero number becomes a one. For planes from outside."""
    num_words = -(-planes.shape[-1] // WORD_BITS)
    padded = np.zeros((*planes.shape[:-1], num_words * WORD_BITS), np.bool_)
    padded[..., : planes.shape[-1]] = planes != 0
    # Little-endian in both steps, so that point p is bit p & 63 of word p >> 6 on any machine.
    return np.packbits(padded, axis=-1, bitorder="little").view("<u8").astype(np.uint64)


@kernel
def write_planes(rules: Rules, position: Position, history: History, symmetry: int, out: np.ndarray) -> None:
    """The planes of a position, with point p at `symmetries[symmetry, p]`. Writes into `out` ([P, W] uint64)."""
    target = rules.symmetries[symmetry]
    colour = position.state[TO_PLAY]
    time = position.state[NUM_MOVES]
    for i in range(NUM_HISTORY):
        for whose in range(2):
            plane = out[2 * i + whose]
            # Rows of a batch are used again, so every word is written.
            for word in range(rules.num_words):
                plane[word] = np.uint64(0)
            if i > time:
                continue
            # For White the colours are exchanged: the network sees the stones of the player to move in the even planes.
            board = history.boards[time - i, side(colour if whose == 0 else -colour)]
            for word in range(rules.num_words):
                bits = board[word]
                if symmetry == 0:
                    plane[word] = bits
                    continue
                while bits:  # one step per stone: clears the lowest bit each time
                    point = target[(word << 6) + np.int64(trailing_zeros(bits))]
                    plane[point >> 6] |= np.uint64(1) << np.uint64(point & 63)
                    bits &= bits - np.uint64(1)
    for word in range(rules.num_words):
        out[NUM_PLANES - 1, word] = rules.full_board[word] if colour == BLACK else np.uint64(0)


@kernel
def expand_planes(bits: np.ndarray, out: np.ndarray) -> None:
    """Expands bitboards ([B, P, W] uint64) to floats, channels last. Writes into `out` ([B, S*S, P] float32)."""
    # Channels last, the layout in which torch's convolutions are fastest on a CPU.
    out[:] = np.float32(0.0)
    for b in range(bits.shape[0]):
        for plane in range(bits.shape[1]):
            for word in range(bits.shape[2]):
                left = bits[b, plane, word]  # one step per stone: most points of most planes are 0
                while left:
                    out[b, (word << 6) + np.int64(trailing_zeros(left)), plane] = np.float32(1.0)
                    left &= left - np.uint64(1)


@kernel
def write_sample(
    rules: Rules, position: Position, history: History, actions: np.ndarray, move: int, symmetry: int, out: np.ndarray
) -> None:
    """The planes of a game after its first `move` actions. Writes into `position`, `history` and `out`."""
    reset(rules, position, history)
    # Records hold actions, not boards, so that a window fits in memory; replaying a 9x9 game takes microseconds.
    for t in range(move):
        play(rules, position, history, actions[t])
    write_planes(rules, position, history, symmetry, out)
