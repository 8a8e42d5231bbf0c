"""Inference: makes the evaluator of the profile's backend from a weight file.

| device, backend | evaluator | use |
|---|---|---|
| cpu, torch | in `torch_backend` | everywhere; the reference |
| cpu, openvino | in `openvino_backend` | fastest on a CPU |
| cuda, torch | in `cuda_backend` | NVIDIA GPUs |

They agree within 1e-4 in fp32 and 0.1 in bf16. Within an execution profile, each gives the same bits every time. Only
the backends with torch import PyTorch, which takes 195 MiB of memory and seconds.
"""

from typing import Protocol

from zero.config.params import ProfileParams
from zero.network.spec import NetworkSpec
from zero.search.evaluator import Evaluator


class NetworkEvaluator(Evaluator, Protocol):
    """An evaluator that uses a network."""

    spec: NetworkSpec


def new_evaluator(data: bytes, profile: ProfileParams) -> NetworkEvaluator:
    """The evaluator of a weight file, on the profile's device, backend and precision.

    Raises:
      StorageError: the bytes are not a weight file, or are corrupt.
      ParamsError: this machine does not have the device or the precision.
    """
    # Backends are imported where they are used: a machine needs the libraries of its own backend only.
    if profile.device == "cuda":
        from zero.network.cuda_backend import CudaEvaluator

        return CudaEvaluator(data, profile)
    if profile.backend == "openvino":
        from zero.network.openvino_backend import OpenVinoEvaluator

        return OpenVinoEvaluator(data, profile)
    from zero.network.torch_backend import TorchEvaluator

    return TorchEvaluator(data, profile)
