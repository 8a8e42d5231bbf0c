"""The execution profile: what the bits of a result may depend on, set and read off the machine.

Imports torch only inside functions: an instruction set is chosen by the environment, before torch starts.
"""

import os
import platform
from importlib.metadata import version

from zero.errors import ParamsError
from zero.params import ProfileParams

AVX2_ENVIRONMENT = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"}
"""What limits ATen, oneDNN and MKL, the three that compute on a CPU."""
LIBRARIES = ("torch", "numpy", "numba")


def apply_isa(profile: ProfileParams) -> None:
    """Limits the CPU's instruction set where the profile says so; to be called before torch computes anything."""
    if profile.isa == "avx2":
        os.environ.update(AVX2_ENVIRONMENT)


def prepare_torch(profile: ProfileParams, num_threads: int) -> None:
    """Makes torch compute alike each time: instruction set, threads, deterministic algorithms. Once a process, first.

    Raises:
      ParamsError: the machine has not the device or the instruction set of the profile.
    """
    apply_isa(profile)
    if profile.device == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic only with this
    import torch

    torch.set_num_threads(num_threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined] # 17 % of a step; unread
    torch.backends.cudnn.benchmark = False  # it would choose algorithms by their speed of the moment
    torch.backends.cudnn.allow_tf32 = False  # fp32 means fp32
    if profile.device == "cuda" and not torch.cuda.is_available():
        raise ParamsError("profile.device = 'cuda', but torch finds no CUDA device; set it to 'cpu'")
    capability = torch.backends.cpu.get_cpu_capability()
    if profile.isa == "avx2" and capability != "AVX2":
        assert not capability.startswith("AVX512"), "apply_isa ran after torch had computed something"
        raise ParamsError(f"profile.isa = 'avx2', but this CPU has {capability}; set it to 'native'")


def execution_profile(profile: ProfileParams) -> dict[str, str]:
    """The profile of this process by name: device, instruction set, threads, precision, versions; for a record."""
    apply_isa(profile)
    import torch

    on_gpu = profile.device == "cuda"
    cudnn = torch.backends.cudnn.version() if on_gpu else None  # type: ignore[no-untyped-call]
    return {
        "device": profile.device,
        "device_name": torch.cuda.get_device_name() if on_gpu else platform.machine(),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "precision": profile.precision,
        "selfplay_threads": str(profile.selfplay_threads),
        "training_threads": str(profile.training_threads),
        "python": platform.python_version(),
        **{library: version(library) for library in LIBRARIES},
        **({"cuda": str(torch.version.cuda), "cudnn": str(cudnn)} if on_gpu else {}),
    }
