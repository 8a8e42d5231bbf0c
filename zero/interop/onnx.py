"""Exports a network as an ONNX model with any batch size, for runtimes that know nothing of this project.

| name | shape | meaning |
|---|---|---|
| `planes` | [B, 17, S, S] float32 | input, see `zero.games.planes`; row 0 is the top row |
| `policy` | [B, A] float32 | probabilities of all actions, also of illegal ones; the pass comes last |
| `value` | [B] float32 | in [-1, 1], for the player to move |

Normalisations are folded into the convolutions; heads that only training uses are left out. The model's metadata
contains the `NetworkSpec`, under the same key as in the weight file.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from zero import __version__
from zero.network.model import AlphaZeroNetwork, fold
from zero.network.weight_files import METADATA_KEY
from zero.storage.files import canonical_line

OPSET = 18  # native to PyTorch's exporter, which only converts to others
EXAMPLE_BATCH = 2  # the exporter would treat a batch of 1 as a constant


class _ExportedNetwork(nn.Module):
    """The exported part of a network: policy and value."""

    def __init__(self, network: AlphaZeroNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, planes: Tensor) -> tuple[Tensor, Tensor]:
        """[B, P, S, S] -> probabilities [B, A], values [B]."""
        logits, value = self.network(planes)[:2]
        return torch.softmax(logits, 1), value


def onnx_model(network: AlphaZeroNetwork) -> bytes:
    """The serialised model. Equal networks and versions of PyTorch and ONNX give equal bytes."""
    spec = network.spec
    example = torch.zeros(EXAMPLE_BATCH, spec.num_planes, spec.rows, spec.columns)
    with _quiet():
        program = torch.onnx.export(
            _ExportedNetwork(fold(network)).eval(),
            (example,),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=["planes"],
            output_names=["policy", "value"],
            dynamic_shapes={"planes": {0: torch.export.Dim("batch")}},
        )
    assert program is not None
    model: Any = program.model_proto
    for part in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.input,
        *model.graph.output,
        *model.graph.value_info,
    ):
        part.ClearField("metadata_props")  # local paths and source lines, which would change the bytes
    model.producer_name, model.producer_version = "zero", __version__
    note = model.metadata_props.add()
    note.key, note.value = METADATA_KEY, canonical_line(spec).decode().strip()
    data: bytes = model.SerializeToString(deterministic=True)
    return data


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the exporter's progress messages and a warning that PyTorch 2.13 raises about itself."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"`isinstance\(treespec, LeafSpec\)` is deprecated")
            yield
    finally:
        logging.disable(logging.NOTSET)
