"""Files of tensors: safetensors with one metadata key. Equal tensors give equal bytes, and nothing is unpickled.

The metadata of a weight file is the `NetworkSpec`, so that a network can be made from a weight file alone. Tensors are
NumPy arrays here: processes that do not compute with PyTorch do not import it.
"""

import json
from collections.abc import Collection, Mapping

import numpy as np
import safetensors.numpy
from pydantic import ValidationError

from zero.errors import StorageError
from zero.network.spec import NetworkSpec

METADATA_KEY = "zero"
HEADER_LENGTH_BYTES = 8  # a safetensors file: the header's length (little-endian), the JSON header, the tensors
WEIGHT_FILE = "weight file"
"""Name of the file in errors."""

RESTORE = "restore it (in a lineage by `dvc checkout --force`)"
"""Remedy for a damaged file."""

Tensors = Mapping[str, np.ndarray]


def tensors_bytes(tensors: Tensors, metadata: str) -> bytes:
    """A safetensors file of contiguous arrays by name, with one metadata text."""
    return safetensors.numpy.save(dict(tensors), metadata={METADATA_KEY: metadata})


def parse_tensors(data: bytes, what: str) -> tuple[Tensors, str]:
    """The tensors and the metadata text of a file made by `tensors_bytes`; `what` names the file in errors.

    Raises:
      StorageError: the bytes are truncated, corrupt or of another format.
    """
    try:
        tensors = safetensors.numpy.load(data)
        # `safetensors.numpy.load` does not return the metadata, so they are read from the header.
        length = int.from_bytes(data[:HEADER_LENGTH_BYTES], "little")
        header = json.loads(data[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
        return tensors, str(header["__metadata__"][METADATA_KEY])
    except safetensors.SafetensorError as error:
        raise StorageError(f"the {what} is corrupt: {error}; {RESTORE}") from None
    except (KeyError, TypeError):
        raise StorageError(f"the {what} was not written by zero: it has no metadata key {METADATA_KEY!r}") from None


def parse_weights(data: bytes) -> tuple[NetworkSpec, Tensors]:
    """The spec and the tensors of a weight file; `tensor_of` checks each tensor.

    Raises:
      StorageError: the bytes are not a weight file.
    """
    tensors, metadata = parse_tensors(data, WEIGHT_FILE)
    try:
        return NetworkSpec.model_validate_json(metadata), tensors
    except ValidationError as error:
        raise StorageError(f"the weight file has no valid network spec: {error.errors()[0]['msg']}") from None


def tensor_of(tensors: Tensors, name: str, shape: tuple[int, ...], what: str) -> np.ndarray:
    """The tensor with this name: float32, of this shape.

    Raises:
      StorageError: there is no such tensor, or a number is not finite.
    """
    tensor = tensors.get(name)
    if tensor is None:
        raise StorageError(f"tensor {name} is missing from the {what}; {RESTORE}")
    if tensor.shape != shape or tensor.dtype != np.float32:
        raise StorageError(
            f"tensor {name} of the {what} is {tensor.dtype} {list(tensor.shape)}, expected float32 {list(shape)}"
        )
    if not np.isfinite(tensor).all():
        raise StorageError(f"tensor {name} of the {what} contains NaN or infinite numbers")
    return tensor


def check_names(tensors: Tensors, known: Collection[str], what: str) -> None:
    """Checks that a file has no tensors but the known ones.

    Raises:
      StorageError: it has.
    """
    if unknown := sorted(tensors.keys() - known):
        raise StorageError(f"tensor {unknown[0]} does not belong in the {what}; {RESTORE}")
