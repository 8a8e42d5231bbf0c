"""The network in play: weights to the evaluator that the profile asks for. One module a backend.

| device, backend | module | for |
|---|---|---|
| cpu, torch | `torch_backend` | everywhere; the reference |
| cpu, openvino | `openvino_backend` | the fastest on a CPU |
| cuda, torch | `cuda_backend` | NVIDIA GPUs |

They agree within 1e-4 in fp32, 0.1 in bf16, and each gives the same bits each time within its execution profile.
"""

from typing import Protocol

from zero.config.params import ProfileParams
from zero.network.model import NetworkSpec
from zero.search.evaluator import Evaluator


class NetworkEvaluator(Evaluator, Protocol):
    """An evaluator with a network in it."""

    spec: NetworkSpec


def new_evaluator(data: bytes, profile: ProfileParams) -> NetworkEvaluator:
    """The network of a weight file, ready to judge positions.

    Raises:
      StorageError: the bytes are no weight file, or an altered one.
      ParamsError: this machine cannot compute as the profile says.
    """
    if profile.device == "cuda":
        from zero.network.cuda_backend import CudaEvaluator

        return CudaEvaluator(data, profile)
    if profile.backend == "openvino":  # its import takes a third of a second
        from zero.network.openvino_backend import OpenVinoEvaluator

        return OpenVinoEvaluator(data, profile)
    from zero.network.torch_backend import TorchEvaluator

    return TorchEvaluator(data, profile)
