"""Networks of PyTorch: initial weights, and networks to and from weight files (`weight_files`).

The running statistics of the batch normalisations count as weights.
"""

import numpy as np
import torch
from torch import Tensor, nn

from zero.config.params import GameParams, NetworkParams
from zero.network.model import AlphaZeroNetwork
from zero.network.spec import NetworkSpec, network_spec
from zero.network.weight_files import (
    WEIGHT_FILE,
    Tensors,
    check_names,
    parse_weights,
    tensor_of,
    tensors_bytes,
)
from zero.search.streams import stream_of
from zero.storage.files import canonical_line

INIT_PHASE = "weights"
"""Phase of the random stream of the initial weights."""
OUTPUT_GAIN, NEAR_ZERO_OUTPUT_GAIN = 0.1, 0.01
"""Scales of the initial weights of the output layers, without and with `network.near_zero_outputs`. With the second,
generation 0 has nearly uniform priors and values near 0, so that its games are decided by the game ends that the search
finds and not by the seed. Each residual block doubles the variance of the features, so a deep trunk also needs
`network.zero_init_residual`."""
POOL_GAIN = 0.1
"""Scale of the initial weights of global pooling. At 1, its biases would exceed the numbers that they are added to."""


def new_network(network: NetworkParams, game: GameParams, seed: int) -> AlphaZeroNetwork:
    """The network of generation 0, in evaluation mode. Its weights depend on the arguments alone.

    He's normal initialisation, drawn from a NumPy stream: torch's random numbers differ between instruction sets.
    """
    model = _empty_network(network_spec(network, game))
    key = stream_of(seed, 0, INIT_PHASE, 0)[:2]
    stream = np.random.Generator(np.random.Philox(key=key))
    output_gain = NEAR_ZERO_OUTPUT_GAIN if network.near_zero_outputs else OUTPUT_GAIN
    gains = {"output": output_gain, "passing": output_gain, "pool": POOL_GAIN}  # by layer name; others have 1
    is_identity = network.zero_init_residual and network.tower == "residual"  # each block, with its skip
    with torch.no_grad():
        # The order of the modules is the order of the draws: reordering their definitions changes the weights.
        for name, module in model.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                ends_block = name.endswith(".second.norm")
                module.weight.fill_(0.0 if is_identity and ends_block else 1.0)
                module.bias.zero_()
                assert module.running_mean is not None and module.running_var is not None
                module.running_mean.zero_()
                module.running_var.fill_(1.0)
            elif isinstance(module, nn.Conv2d | nn.Linear):
                gain = gains.get(name.rpartition(".")[2], 1.0)
                fan_in = module.weight[0].numel()
                # Drawn in float64 and rounded once; sqrt(2 / fan_in) is He's deviation for layers before a rectifier.
                values = stream.standard_normal(tuple(module.weight.shape)) * (gain * np.sqrt(2.0 / fan_in))
                module.weight.copy_(torch.from_numpy(values))
                if module.bias is not None:
                    module.bias.zero_()
    return model.eval()


def weights_bytes(model: AlphaZeroNetwork) -> bytes:
    """The weight file of a network."""
    return tensors_bytes(arrays_of(model.state_dict()), canonical_line(model.spec).decode().strip())


def load_network(data: bytes) -> AlphaZeroNetwork:
    """The network of a weight file, on the CPU, in evaluation mode.

    Raises:
      StorageError: the bytes are not a weight file, or its tensors do not match its spec.
    """
    spec, tensors = parse_weights(data)
    model = _empty_network(spec)
    # `state_dict` returns the model's own tensors, so copying into them fills the model.
    copy_tensors(tensors, model.state_dict(), WEIGHT_FILE)
    return model.eval()


def arrays_of(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """Tensors as NumPy arrays; contiguous, because the layout in memory must not show in the bytes of a file."""
    return {name: tensor.detach().to("cpu").contiguous().numpy() for name, tensor in tensors.items()}


def copy_tensors(tensors: Tensors, targets: dict[str, Tensor], what: str) -> None:
    """Copies each tensor of a file into the target of the same name; `what` names the file in errors.

    Raises:
      StorageError: names, shapes or types differ, or a number is not finite.
    """
    check_names(tensors, targets.keys(), what)
    with torch.no_grad():
        for name, target in targets.items():
            target.copy_(torch.from_numpy(tensor_of(tensors, name, tuple(target.shape), what)))


def _empty_network(spec: NetworkSpec) -> AlphaZeroNetwork:
    with torch.device("meta"):  # skips torch's own initialisation, which would advance the global generator
        model = AlphaZeroNetwork(spec)
    tensors = model.state_dict()
    for name, tensor in tensors.items():
        tensors[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
    model.load_state_dict(tensors, assign=True)  # like `to_empty`, which imports sympy and takes 0.9 s
    return model
