"""Inference: makes the evaluator of the profile's backend from a weight file. Each backend has a module.

| device, backend | module | use |
|---|---|---|
| cpu, torch | `torch_backend` | everywhere; the reference |
| cpu, openvino | `openvino_backend` | fastest on a CPU |
| cuda, torch | `cuda_backend` | NVIDIA GPUs |

They agree within 1e-4 in fp32 and 0.1 in bf16. Within an execution profile, each gives the same bits every time.
"""

from typing import Protocol

from zero.config.params import ProfileParams
from zero.network.model import NetworkSpec
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
    if profile.device == "cuda":
        from zero.network.cuda_backend import CudaEvaluator

        return CudaEvaluator(data, profile)
    if profile.backend == "openvino":  # imported only here, which takes a third of a second
        from zero.network.openvino_backend import OpenVinoEvaluator

        return OpenVinoEvaluator(data, profile)
    from zero.network.torch_backend import TorchEvaluator

    return TorchEvaluator(data, profile)
