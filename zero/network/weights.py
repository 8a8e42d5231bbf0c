"""Weights as bytes and back: safetensors with one metadata key, equal bytes for equal weights. Nothing is unpickled.

The metadata key holds the `NetworkSpec`, so that a weight file alone makes a network. The running statistics of the
normalisations are weights too.
"""

import json

import numpy as np
import safetensors
import safetensors.torch
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from zero.config.params import GomokuParams, GoParams, NetworkParams
from zero.errors import StorageError
from zero.network.model import AlphaZeroNetwork, NetworkSpec, network_spec
from zero.search.streams import stream_of
from zero.storage.files import canonical_line

METADATA_KEY = "zero"
HEADER_LENGTH_BYTES = 8  # of the safetensors format: a little-endian length, the JSON header, the tensors
INIT_PHASE = "weights"
"""Phase of the initial weights' stream."""
OUTPUT_GAIN = 0.1
"""Scale of the last layers' first weights: generation 0 has nearly even priors and values near 0, so that its games
are led by the ends of games that the search sees and not by accidents of the seed."""
POOL_GAIN = 0.1
"""Scale of the first weights of global pooling, whose biases would else be larger than what they are added to."""
GAINS = {"output": OUTPUT_GAIN, "passing": OUTPUT_GAIN, "pool": POOL_GAIN}
"""Scales of the first weights by the layer's name; 1 for all others."""


def new_network(network: NetworkParams, game: GoParams | GomokuParams, seed: int) -> AlphaZeroNetwork:
    """The network of generation 0, a function of its arguments alone; in evaluation mode.

    He's normal initialisation from a NumPy stream: torch's own draws differ between instruction sets.
    """
    model = _empty_network(network_spec(network, game))
    key = stream_of(seed, 0, INIT_PHASE, 0)[:2]
    stream = np.random.Generator(np.random.Philox(key=key))
    with torch.no_grad():
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
      StorageError: the bytes are no such file, or its tensors are not those of its spec.
    """
    tensors, note = parse_tensors(data, "weight file")
    try:
        spec = NetworkSpec.model_validate_json(note)
    except ValidationError as error:
        raise StorageError(f"the weight file does not say what network it is: {error.errors()[0]['msg']}") from None
    model = _empty_network(spec)
    copy_tensors(tensors, model.state_dict(), "weight file")
    return model.eval()


def tensors_bytes(tensors: dict[str, Tensor], note: str) -> bytes:
    """A safetensors file of the tensors by name, and a text in its metadata."""
    plain = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(plain, metadata={METADATA_KEY: note})


def parse_tensors(data: bytes, what: str) -> tuple[dict[str, Tensor], str]:
    """The tensors and the text of `tensors_bytes`.

    Raises:
      StorageError: the bytes are cut short, altered or of another format; `what` names them.
    """
    try:
        tensors = safetensors.torch.load(data)
        length = int.from_bytes(data[:HEADER_LENGTH_BYTES], "little")
        header = json.loads(data[HEADER_LENGTH_BYTES : HEADER_LENGTH_BYTES + length])
        return tensors, str(header["__metadata__"][METADATA_KEY])
    except safetensors.SafetensorError as error:
        raise StorageError(f"the {what} is broken: {error}; restore it with `dvc checkout --force`") from None
    except KeyError:
        raise StorageError(f"the {what} was not written by zero: it has no metadata {METADATA_KEY!r}") from None


def copy_tensors(tensors: dict[str, Tensor], targets: dict[str, Tensor], what: str) -> None:
    """Copies each tensor into the target of its name.

    Raises:
      StorageError: names, shapes or types differ, or a number is not finite; `what` names the source.
    """
    if odd := sorted(tensors.keys() ^ targets.keys()):
        state = "is missing from" if odd[0] in targets else "does not belong into"
        raise StorageError(f"tensor {odd[0]} {state} the {what}; restore it with `dvc checkout --force`")
    with torch.no_grad():
        for name, target in targets.items():
            tensor = tensors[name]
            if tensor.shape != target.shape or tensor.dtype != target.dtype:
                found, expected = (f"{x.dtype} {list(x.shape)}" for x in (tensor, target))
                raise StorageError(f"tensor {name} of the {what} is {found}, expected {expected}")
            if not bool(torch.isfinite(tensor).all()):
                raise StorageError(f"tensor {name} of the {what} holds numbers that are not finite")
            target.copy_(tensor)


def _empty_network(spec: NetworkSpec) -> AlphaZeroNetwork:
    with torch.device("meta"):  # so that torch's own initialisation neither runs nor moves the global generator
        model = AlphaZeroNetwork(spec)
    tensors = model.state_dict()
    for name, tensor in tensors.items():
        tensors[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
    model.load_state_dict(tensors, assign=True)  # `to_empty` does the same and imports sympy for it: 0.9 s
    return model
