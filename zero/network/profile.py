"""The execution profile: what the bits of a result may depend on, set and read off the machine.

Imports torch only inside functions: an instruction set is chosen by the environment, before torch starts.
"""

import contextlib
import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

from zero.config.auto import FASTEST_BACKEND, NO_CUDA, Machine, Precision, device_of, resolve_auto
from zero.config.params import PARAMS_FILE, Params, ProfileParams, parse_params, read_params_text
from zero.errors import ParamsError

AVX2_ENVIRONMENT = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"}
"""What limits ATen, oneDNN (PyTorch's and OpenVINO's) and MKL, all that compute on a CPU."""
CUDA_ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""cuBLAS is deterministic only with this."""
THREADS_ENVIRONMENT = {"GOMP_SPINCOUNT": "1000"}
"""How long a thread that waits for another spins. By default it does for milliseconds, and where another process wants
the core, training was measured 4 to 9 times slower. Changes no bits."""
LIBRARIES = ("torch", "numpy", "numba")
ISA_SUFFIX = {"": "", "AMX": "+AMX", "AVX512-BF16": "+BF16"}
"""Ending of the instruction set's name in a record, by the instructions that compute bf16."""

Device = Literal["cpu", "cuda"]


def set_environment(profile: ProfileParams) -> None:
    """Sets what torch and its libraries read from the environment; before torch is imported, or it has less effect."""
    if profile.isa == "avx2":
        os.environ.update(AVX2_ENVIRONMENT)
    _set_defaults()


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
        raise ParamsError(NO_CUDA)
    capability = torch.backends.cpu.get_cpu_capability()
    assert capability == _instruction_set(), "prepare_torch ran after torch had computed something"
    if profile.isa == "avx2" and capability != "AVX2":
        raise ParamsError(f"profile.isa = 'avx2', but this CPU has {capability}; set it to 'native'")


@contextlib.contextmanager
def zero_for_denormals() -> Iterator[None]:
    """Lets this thread, and those that it starts inside, compute with 0 for numbers below 1e-38.

    A step full of them was measured 13 times slower; weights that nothing needs fall to them in thousands of steps.
    To be entered before anything has computed, since that starts the threads. Where a CPU cannot, they stay.
    """
    import torch

    able = torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if able:
            torch.set_flush_denormal(False)


def profile_here(
    made: ProfileParams, num_threads: int, device: Device | None = None, precision: Precision | None = None
) -> ProfileParams:
    """How this process asks a network, whatever machine it was made on: so networks of several makers play together.

    Of what its maker chose stay the precision, where this machine has it, and the backend, where the device is his.

    Args:
      made: the profile it was made with.
      num_threads: of this network.
      device: by default the GPU, where there is one.
      precision: by default that of `precision_here`.
    """
    device = device or _device_here()
    changes = {
        "device": device,
        "backend": made.backend if made.device == device else FASTEST_BACKEND[device],
        "precision": precision or precision_here(made, device),
        "isa": "native",
        "selfplay_threads": num_threads,
    }
    return made.model_copy(update=changes)


def precision_here(made: ProfileParams, device: Device | None = None) -> Precision:
    """The precision that a network's maker chose; fp32 in place of bf16, where nothing here multiplies such numbers."""
    if made.precision == "fp32":
        return "fp32"
    has_bf16 = _cuda_has_bf16() if (device or _device_here()) == "cuda" else bool(_bf16_unit())
    return "bf16" if has_bf16 else "fp32"


def this_machine(params_text: str) -> Machine:
    """Facts about this machine that resolve `auto` in a parameters file.

    Looks for a CUDA device only if the file does not name the CPU: this imports torch, which takes 1.5 s.
    """
    has_cuda = device_of(params_text) != "cpu" and _device_here() == "cuda"
    return Machine(get_host_cpu_name(), _bf16_unit(), has_cuda, has_cuda and _cuda_has_bf16())


def resolve_here(params_text: str) -> str:
    """A parameters file with each `auto` replaced by the value that is fastest on this machine."""
    return resolve_auto(params_text, this_machine(params_text))


def load_project_params(home: Path) -> Params:
    """Parameters of the project folder, with `auto` resolved for this machine.

    Raises:
      ParamsError: the file is missing, misspelt or out of range.
    """
    return parse_params(resolve_here(read_params_text(home)), str(home / PARAMS_FILE))


def execution_profile(profile: ProfileParams) -> dict[str, str]:
    """The profile of this process by name: device, instruction set, backend, threads, versions; for a record.

    Imports torch only for a GPU: a stage that leaves the computing to others starts in a third of the time.

    Raises:
      ParamsError: the profile is for CUDA, which this machine lacks.
    """
    set_environment(profile)
    libraries = (*LIBRARIES, "openvino") if profile.backend == "openvino" else LIBRARIES
    isa = _instruction_set()
    if "bf16" in (profile.precision, profile.training_precision):
        isa += ISA_SUFFIX[_bf16_unit()]
    return {
        "device": profile.device,
        "device_name": platform.machine(),
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
        **(_gpu_profile() if profile.device == "cuda" else {}),
    }


def _gpu_profile() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        raise ParamsError(NO_CUDA)
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {"device_name": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda), "cudnn": str(cudnn)}


def _instruction_set() -> str:
    """What torch calls the vector instructions it uses on this CPU, as it chooses them (ATen's DispatchStub.cpp)."""
    if platform.machine() != "x86_64":
        import torch

        return torch.backends.cpu.get_cpu_capability()
    if (limit := os.environ.get("ATEN_CPU_CAPABILITY")) in ("avx2", "default"):
        return limit.upper()
    features = get_host_cpu_features()
    if all(features.get(name) for name in ("avx512vl", "avx512bw", "avx512dq", "fma")):
        return "AVX512"
    return "AVX2" if features.get("avx2") and features.get("fma") else "DEFAULT"


def _set_defaults() -> None:
    for name, value in (THREADS_ENVIRONMENT | CUDA_ENVIRONMENT).items():
        os.environ.setdefault(name, value)


def _device_here() -> Device:
    _set_defaults()
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _cuda_has_bf16() -> bool:
    _set_defaults()
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _bf16_unit() -> Literal["", "AMX", "AVX512-BF16"]:
    """The instructions that compute bf16 on this CPU; empty if it has none, or if oneDNN may not use them."""
    limited = os.environ.get("ONEDNN_MAX_CPU_ISA") == AVX2_ENVIRONMENT["ONEDNN_MAX_CPU_ISA"]
    if limited or platform.machine() != "x86_64":
        return ""
    features = get_host_cpu_features()
    if features.get("amx-bf16"):
        return "AMX"
    return "AVX512-BF16" if features.get("avx512bf16") else ""
