"""`zero export`: the network of a generation, a lineage or a weight file, in the format of another program."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from zero.network.model import AlphaZeroNetwork
from zero.network.weights import load_network
from zero.players.networks import find_source
from zero.storage.files import write_atomic

Format = Literal["leela-zero", "onnx"]


def export(home: Path, source: str, out: Path, file_format: Format) -> int:
    """Writes the network that `source` names to `out`, whole; returns the size in bytes.

    Raises:
      LineageError: there is no such generation or lineage.
      StorageError: the weights are missing, altered or of another program, or `out` cannot be written.
      ParamsError: the format has no such network.
    """
    data = _writer(file_format)(load_network(find_source(home, source).weights))
    write_atomic(out, data)
    return len(data)


def _writer(file_format: Format) -> Callable[[AlphaZeroNetwork], bytes]:
    if file_format == "onnx":
        from zero.interop.onnx import onnx_model

        return onnx_model
    from zero.interop.leela_zero import leela_zero_weights

    return leela_zero_weights
