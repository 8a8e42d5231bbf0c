"""Weight files: safetensors with one metadata key. Equal weights give equal bytes, and nothing is unpickled.

The metadata holds the `NetworkSpec`, so that a network can be made from a weight file alone. The running statistics of
the batch normalisations count as weights.
"""

import json

import numpy as np
import safetensors
import safetensors.torch
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from zero.config.params import GameParams, NetworkParams
from zero.errors import StorageError
from zero.network.model import AlphaZeroNetwork, NetworkSpec, network_spec
from zero.search.streams import stream_of
from zero.storage.files import canonical_line

METADATA_KEY = "zero"
HEADER_LENGTH_BYTES = 8  # a safetensors file: the header's length (little-endian), the JSON header, the tensors
INIT_PHASE = "weights"
"""Phase of the random stream of the initial weights."""
OUTPUT_GAIN = 0.1
"""Scale of the initial weights of the output layers. Generation 0 then has nearly uniform priors and values near 0, so
that its games are decided by the game ends that the search finds and not by the seed."""
POOL_GAIN = 0.1
"""Scale of the initial weights of global pooling. At 1, its biases would exceed the numbers that they are added to."""
GAINS = {"output": OUTPUT_GAIN, "passing": OUTPUT_GAIN, "pool": POOL_GAIN}
"""Scales of the initial weights by layer name; 1 for all other layers."""


def new_network(network: NetworkParams, game: GameParams, seed: int) -> AlphaZeroNetwork:
    """The network of generation 0, in evaluation mode. Its weights depend on the arguments alone.

    He's normal initialisation, drawn from a NumPy stream: torch's random numbers differ between instruction sets.
    """
    model = _empty_network(network_spec(network, game))
    key = stream_of(seed, 0, INIT_PHASE, 0)[:2]
    stream = np.random.Generator(np.random.Philox(key=key))
    with torch.no_grad():
        # The order of the modules is the order of the draws: reordering their definitions changes the weights.
        for name, module in model.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.fill_(1.0)
                module.bias.zero_()
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.zero_()
                module.running_var.fill_(1.0)
            elif isinstance(module, nn.Conv2d | nn.Linear):
                gain = GAINS.get(name.rpartition(".")[2], 1.0)
                fan_in = module.weight[0].numel()
                # Drawn in float64 and rounded once; sqrt(2 / fan_in) is He's deviation for layers before a rectifier.
                values = stream.standard_normal(tuple(module.weight.shape)) * (gain * np.sqrt(2.0 / fan_in))
                module.weight.copy_(torch.from_numpy(values))
                if module.bias is not None:
                    module.bias.zero_()
    return model.eval()


def weights_bytes(model: AlphaZeroNetwork) -> bytes:
    """The weight file of a network."""
    return tensors_bytes(model.state_dict(), canonical_line(model.spec).decode().strip())


def load_network(data: bytes) -> AlphaZeroNetwork:
    """The network of a weight file, on the CPU, in evaluation mode.

    Raises:
      StorageError: the bytes are not a weight file, or its tensors do not match its spec.
    """
    tensors, metadata = parse_tensors(data, "weight file")
    try:
        spec = NetworkSpec.model_validate_json(metadata)
    except ValidationError as error:
        raise StorageError(f"the weight file has no valid network spec: {error.errors()[0]['msg']}") from None
    model = _empty_network(spec)
    # `state_dict` returns the model's own tensors, so copying into them fills the model.
    copy_tensors(tensors, model.state_dict(), "weight file")
    return model.eval()


def tensors_bytes(tensors: dict[str, Tensor], metadata: str) -> bytes:
    """A safetensors file of tensors by name, with one metadata text."""
    # contiguous: the layout in memory, such as channels-last, must not show in the bytes
    plain = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain, metadata={METADATA_KEY: metadata})


def parse_tensors(data: bytes, what: str) -> tuple[dict[str, Tensor], str]:
    """The tensors and the metadata text of a file made by `tensors_bytes`; `what` names the file in errors.

    Raises:
      StorageError: the bytes are truncated, corrupt or of another format.
    """
    try:
        tensors = safetensors.torch.load(data)
        # `safetensors.torch.load` does not return the metadata, so they are read from the header.
        length = int.from_bytes(data[:HEADER_LENGTH_BYTES], "little")
        header = json.loads(data[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
        return tensors, str(header["__metadata__"][METADATA_KEY])
    except safetensors.SafetensorError as error:
        raise StorageError(f"the {what} is corrupt: {error}; restore it with `dvc checkout --force`") from None
    except KeyError:
        raise StorageError(f"the {what} was not written by zero: it has no metadata key {METADATA_KEY!r}") from None


def copy_tensors(tensors: dict[str, Tensor], targets: dict[str, Tensor], what: str) -> None:
    """Copies each tensor into the target of the same name; `what` names the source in errors.

    Raises:
      StorageError: names, shapes or types differ, or a number is not finite.
    """
    if different := sorted(tensors.keys() ^ targets.keys()):
        state = "is missing from" if different[0] in targets else "does not belong in"
        raise StorageError(f"tensor {different[0]} {state} the {what}; restore it with `dvc checkout --force`")
    with torch.no_grad():
        for name, target in targets.items():
            tensor = tensors[name]
            if tensor.shape != target.shape or tensor.dtype != target.dtype:
                found, expected = (f"{x.dtype} {list(x.shape)}" for x in (tensor, target))
                raise StorageError(f"tensor {name} of the {what} is {found}, expected {expected}")
            if not bool(torch.isfinite(tensor).all()):
                raise StorageError(f"tensor {name} of the {what} contains NaN or infinite numbers")
            target.copy_(tensor)


def _empty_network(spec: NetworkSpec) -> AlphaZeroNetwork:
    with torch.device("meta"):  # skips torch's own initialisation, which would advance the global generator
        model = AlphaZeroNetwork(spec)
    tensors = model.state_dict()
    for name, tensor in tensors.items():
        tensors[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
    model.load_state_dict(tensors, assign=True)  # like `to_empty`, which imports sympy and takes 0.9 s
    return model
