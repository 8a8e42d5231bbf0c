"""The sizes of a network, without PyTorch: what its tensor shapes depend on, and which batches it takes."""

from typing import Annotated

import numpy as np
from pydantic import Field

from zero.config.params import GameParams, NetworkParams
from zero.errors import ParamsError
from zero.games.position import NUM_PLANES, WORD_BITS
from zero.games.rules import rules_of
from zero.storage.manifests import Manifest

# Filters of the 1x1 convolutions of the two heads, from the paper.
POLICY_FILTERS = 2
VALUE_FILTERS = 1
POOLED_SHARE = 4
"""One in this many channels is pooled, as in most of KataGo's networks."""
HEAD_SHARE = 2
"""Pooled heads have F = channels of the trunk / HEAD_SHARE filters in the value head and 2 F in the policy head."""
POOLING_MEAN_SIZE, POOLING_SIZE_UNIT = 14.0, 10.0
"""KataGo's normalisation of the board size S, (S - 14) / 10: -0.5 at 9x9 and 0.5 at 19x19."""
MAX_BATCH = 65_536
"""Largest batch. No device is faster beyond it, and a mistyped `num_slots` must not allocate terabytes."""


class NetworkSpec(Manifest):
    """Everything that the tensor shapes of a network depend on; stored in its weight file."""

    network: NetworkParams
    num_planes: Annotated[int, Field(ge=1, le=NUM_PLANES)]
    rows: Annotated[int, Field(ge=1, le=19)]
    columns: Annotated[int, Field(ge=1, le=19)]
    num_actions: Annotated[int, Field(ge=1, le=19 * 19 + 1)]


def network_spec(network: NetworkParams, game: GameParams) -> NetworkSpec:
    """The spec of a network that plays `game`.

    Raises:
      ParamsError: the network has too few channels for pooling.
    """
    if (network.global_pooling or network.pooled_heads) and network.num_channels < 2:
        name = "global_pooling" if network.global_pooling else "pooled_heads"
        raise ParamsError(f"network.{name} = True needs network.num_channels of 2 or more, got 1")
    rules = rules_of(game)
    return NetworkSpec(
        network=network,
        num_planes=NUM_PLANES,
        rows=rules.rows,
        columns=rules.columns,
        num_actions=rules.num_actions,
    )


def check_batch(spec: NetworkSpec, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
    """Checks that a batch fits the network's board and has a valid size; arguments as in `Evaluator.evaluate`.

    Raises:
      ParamsError: the network is for another board or game, or the batch is empty or too large.
    """
    rows = len(planes)
    words = -(-spec.rows * spec.columns // WORD_BITS)
    if not 1 <= rows <= MAX_BATCH:
        raise ParamsError(
            f"a batch must have 1 to {MAX_BATCH} positions, got {rows}; change num_slots (selfplay and gating)"
        )
    if planes.shape[1:] != (spec.num_planes, words) or prior.shape[1:] != (spec.num_actions,):
        raise ParamsError(
            f"the network is for {spec.rows}x{spec.columns} boards ({spec.num_planes} planes of {words} words, "
            f"{spec.num_actions} actions), but the position has {planes.shape[1]} planes of {planes.shape[2]} words "
            f"and {prior.shape[1]} actions; use weights of this game and board"
        )
    assert len(prior) == len(value) == rows and planes.dtype == np.uint64
