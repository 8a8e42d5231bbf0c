"""The execution profile: what the bits of a result may depend on, set and read off the machine.

Imports torch only inside functions: an instruction set is chosen by the environment, before torch starts.
"""

import os
import platform
from importlib.metadata import version

from zero.errors import ParamsError
from zero.params import ProfileParams

AVX2_ENVIRONMENT = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"}
"""What limits ATen, oneDNN (PyTorch's and OpenVINO's) and MKL, all that compute on a CPU."""
CUDA_ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""cuBLAS is deterministic only with this."""
THREADS_ENVIRONMENT = {"GOMP_SPINCOUNT": "1000"}
"""How long a thread that waits for another spins. By default it does for milliseconds, and where another process wants
the core, training was measured 4 to 9 times slower. Changes no bits."""
LIBRARIES = ("torch", "numpy", "numba")


def set_environment(profile: ProfileParams) -> None:
    """Sets what torch and its libraries read from the environment; before torch is imported, or it has less effect."""
    if profile.isa == "avx2":
        os.environ.update(AVX2_ENVIRONMENT)
    for name, value in (THREADS_ENVIRONMENT | CUDA_ENVIRONMENT).items():
        os.environ.setdefault(name, value)


def prepare_torch(profile: ProfileParams, num_threads: int) -> None:
    """Makes torch compute alike each time: instruction set, threads, deterministic algorithms. Before importing torch.

    Raises:
      ParamsError: the machine has not the device or the instruction set of the profile.
    """
    set_environment(profile)
    import torch

    torch.set_num_threads(num_threads)
    torch.set_deterministic_debug_mode("error")  # `use_deterministic_algorithms` also imports the compiler: 1.7 s
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined] # 17 % of a step; unread
    torch.backends.cudnn.benchmark = False  # it would choose algorithms by their speed of the moment
    torch.backends.cudnn.allow_tf32 = False  # fp32 means fp32
    if profile.device == "cuda" and not torch.cuda.is_available():
        raise ParamsError("profile.device = 'cuda', but torch finds no CUDA device; set it to 'cpu'")
    capability = torch.backends.cpu.get_cpu_capability()
    if profile.isa == "avx2" and capability != "AVX2":
        assert not capability.startswith("AVX512"), "prepare_torch ran after torch had computed something"
        raise ParamsError(f"profile.isa = 'avx2', but this CPU has {capability}; set it to 'native'")


def execution_profile(profile: ProfileParams) -> dict[str, str]:
    """The profile of this process by name: device, instruction set, backend, threads, versions; for a record."""
    set_environment(profile)
    import torch

    on_gpu = profile.device == "cuda"
    libraries = (*LIBRARIES, "openvino") if profile.backend == "openvino" else LIBRARIES
    isa = torch.backends.cpu.get_cpu_capability()
    if "bf16" in (profile.precision, profile.training_precision):
        isa += _bf16_unit()
    cudnn = torch.backends.cudnn.version() if on_gpu else None  # type: ignore[no-untyped-call]
    return {
        "device": profile.device,
        "device_name": torch.cuda.get_device_name() if on_gpu else platform.machine(),
        "isa": isa,
        "backend": profile.backend,
        "precision": profile.precision,
        "selfplay_threads": str(profile.selfplay_threads),
        "search_threads": str(profile.search_threads),
        "half_batches": str(profile.half_batches).lower(),
        "training_precision": profile.training_precision,
        "training_threads": str(profile.training_threads),
        "training_processes": str(profile.training_processes),
        "python": platform.python_version(),
        **{library: version(library) for library in libraries},
        **({"cuda": str(torch.version.cuda), "cudnn": str(cudnn)} if on_gpu else {}),
    }


def _bf16_unit() -> str:
    """What multiplies bf16 numbers on this CPU, as an ending of the instruction set's name; empty where it is fp32."""
    import torch

    if os.environ.get("ONEDNN_MAX_CPU_ISA") == AVX2_ENVIRONMENT["ONEDNN_MAX_CPU_ISA"]:
        return ""
    if torch.cpu._is_amx_tile_supported():
        return "+AMX"
    return "+BF16" if torch.cpu._is_avx512_bf16_supported() else ""
