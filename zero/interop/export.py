"""`zero export`: the network of a generation, a lineage or a weight file, in the format of another program."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from zero.artifacts import MANIFEST_FILE, Champion, Checkpoint, checked_path, read_manifest, write_whole
from zero.errors import StorageError
from zero.lineage import checkout_generation, find_workspace
from zero.network.tower import AlphaZeroNetwork
from zero.network.weights import load_network
from zero.record import read_ledger

Format = Literal["leela-zero", "onnx"]
TAG_PATTERN = re.compile(r"^[^/]+/gen-\d+$")
CHAMPION_DIR, CHALLENGER_DIR = "state/champion", "models/challenger"


def export(home: Path, source: str, out: Path, file_format: Format) -> int:
    """Writes the network that `source` names to `out`, whole; returns the size in bytes.

    Raises:
      LineageError: there is no such generation or lineage.
      StorageError: the weights are missing, altered or of another program, or `out` cannot be written.
      ParamsError: the format has no such network.
    """
    data = _writer(file_format)(load_network(find_weights(home, source)))
    write_whole(out, data)
    return len(data)


def find_weights(home: Path, source: str) -> bytes:
    """The weight file that `source` names: a path, a generation's tag (its champion) or a lineage (its champion now).

    Raises:
      LineageError: there is no such generation or lineage.
      StorageError: the weights are missing or altered.
    """
    path = Path(source)
    if path.is_file():
        try:
            return path.read_bytes()
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from None
    if TAG_PATTERN.match(source):
        with tempfile.TemporaryDirectory(prefix="zero-export-") as scratch:
            folder = Path(scratch) / "generation"
            checkout_generation(home, source, folder, (CHAMPION_DIR, CHALLENGER_DIR))
            return _champion_weights(folder, source)
    if "/" in source or path.suffix:
        raise StorageError(f"no file {source}; give a weight file, a lineage, or a generation such as go9/gen-0012")
    return _champion_weights(find_workspace(home, source), source)


def _champion_weights(folder: Path, source: str) -> bytes:
    """Weights of the champion after the last decision in a ledger: the one before it, or the challenger."""
    wanted = read_ledger(folder)[-1].champion
    kinds: dict[str, type[Champion | Checkpoint]] = {CHAMPION_DIR: Champion, CHALLENGER_DIR: Checkpoint}
    for name, kind in kinds.items():
        if (folder / name / MANIFEST_FILE).exists():
            weights = read_manifest(folder / name, kind).weights
            if weights.sha256 == wanted:
                return checked_path(weights, folder / name).read_bytes()
    raise StorageError(
        f"the champion of {source}, {wanted[:12]}, is not on this machine; "
        "fetch it with `dvc pull`, in the lineage's workspace or in a `zero checkout` of the generation"
    )


def _writer(file_format: Format) -> Callable[[AlphaZeroNetwork], bytes]:
    if file_format == "onnx":
        from zero.interop.onnx import onnx_model

        return onnx_model
    from zero.interop.leela_zero import leela_zero_weights

    return leela_zero_weights
