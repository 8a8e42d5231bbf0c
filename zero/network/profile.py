"""The execution profile: everything about a machine and its libraries that the bits of a result may depend on.

Imports torch only inside functions, because torch reads the instruction set from the environment when it is imported.
"""

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from llvmlite.binding import get_host_cpu_features, get_host_cpu_name

from zero.config.auto import FASTEST_BACKEND, NO_CUDA, Machine, Precision, device_of, resolve_auto
from zero.config.params import PARAMS_FILE, Params, ProfileParams, parse_params, read_params_text
from zero.errors import ParamsError

AVX2_ENVIRONMENT = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"}
"""Limits ATen, oneDNN (of PyTorch and of OpenVINO) and MKL, the libraries that compute on a CPU, to AVX2."""
CUDA_ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Makes cuBLAS deterministic."""
THREADS_ENVIRONMENT = {"GOMP_SPINCOUNT": "1000"}
"""Limits how long OpenMP threads spin while they wait. By default they spin for milliseconds; if another process needs
the core, training was measured 4 to 9 times slower. Does not change results."""
CUDA_DRIVER = "libcuda.so.1"
"""Library of NVIDIA's driver, without which torch finds no CUDA device. Loading it takes less than importing torch."""
LIBRARIES = ("torch", "numpy", "numba", "pyarrow")
ISA_SUFFIX = {"": "", "AMX": "+AMX", "AVX512-BF16": "+BF16"}
"""Suffix of the instruction set's name in the execution profile, by the unit that computes bf16."""

Device = Literal["cpu", "cuda"]


def set_environment(profile: ProfileParams) -> None:
    """Sets the environment variables of torch and its libraries. Takes full effect only before torch is imported."""
    if profile.isa == "avx2":
        # Overwrites what the user set: the profile promises the bits of these instructions.
        os.environ.update(AVX2_ENVIRONMENT)
    _set_defaults()


def prepare_inference(profile: ProfileParams) -> None:
    """Prepares this process for `new_evaluator`. Imports torch only if the profile's backend is torch.

    Must run before torch or OpenVINO is imported.

    Raises:
      ParamsError: the machine lacks the device or the instruction set of the profile, or this process has loaded
        OpenVINO with other instructions, so that the bits would not be those of the profile.
    """
    # `prepare_torch` asks PyTorch for its instructions; OpenVINO cannot be asked.
    is_limited = os.environ.items() >= AVX2_ENVIRONMENT.items()
    if profile.isa == "avx2" and "openvino" in sys.modules and not is_limited:
        raise ParamsError(
            "profile.isa = 'avx2', but this process has already loaded OpenVINO with all instructions of the CPU; use "
            "a new process"
        )
    if profile.backend == "openvino":
        set_environment(profile)
        _check_isa(profile, _instruction_set())
    else:
        prepare_torch(profile, profile.selfplay_threads)


def prepare_torch(profile: ProfileParams, num_threads: int) -> None:
    """Makes torch deterministic: instruction set, threads, algorithms. Must run before torch computes anything.

    Raises:
      ParamsError: the machine lacks the device or the instruction set of the profile.
    """
    set_environment(profile)
    import torch

    torch.set_num_threads(num_threads)
    torch.set_deterministic_debug_mode("error")  # `use_deterministic_algorithms` imports the compiler too: 1.7 s
    # Filling costs 17 % of a step, and this memory is written before it is read.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False  # would choose algorithms by timing, differently in each run
    torch.backends.cudnn.allow_tf32 = False  # TF32 would lower the precision of fp32
    if profile.device == "cuda" and not torch.cuda.is_available():
        raise ParamsError(NO_CUDA)
    capability = torch.backends.cpu.get_cpu_capability()
    assert capability == _instruction_set(), "prepare_torch was called after torch had computed something"
    _check_isa(profile, capability)


@contextlib.contextmanager
def flush_denormals() -> Iterator[None]:
    """Flushes denormal numbers (below 1e-38) to 0, in this thread and in the threads that it starts inside.

    Unused weights decay to denormals within thousands of steps, and a step with many of them was measured 13 times
    slower. Must be entered before torch computes anything, because that starts the threads. Has no effect on CPUs
    without the feature.
    """
    import torch

    supported = torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if supported:
            torch.set_flush_denormal(False)


def local_profile(
    made: ProfileParams, num_threads: int, device: Device | None = None, precision: Precision | None = None
) -> ProfileParams:
    """A profile with which this machine can evaluate a network that was trained on any machine.

    It keeps the original precision if this machine supports it, and the original backend if the device is the same.

    Args:
      made: the profile that the network was trained with.
      num_threads: number of inference threads.
      device: default: the GPU if there is one, else the CPU.
      precision: default: `local_precision`.
    """
    device = device or _device_here()
    changes = {
        "device": device,
        "backend": made.backend if made.device == device else FASTEST_BACKEND[device],
        "precision": precision or local_precision(made, device),
        "isa": "native",
        "selfplay_threads": num_threads,
    }
    return made.model_copy(update=changes)


def local_precision(made: ProfileParams, device: Device | None = None) -> Precision:
    """The precision of a profile, but fp32 instead of bf16 if this machine has no unit for bf16."""
    if made.precision == "fp32":
        return "fp32"
    has_bf16 = _cuda_has_bf16() if (device or _device_here()) == "cuda" else bool(_bf16_unit())
    return "bf16" if has_bf16 else "fp32"


def this_machine(params_text: str) -> Machine:
    """Properties of this machine that resolve `auto` in a parameters file.

    Looks for a CUDA device only if the file does not name the CPU. With NVIDIA's driver that imports torch, in 1.5 s.
    """
    has_cuda = device_of(params_text) != "cpu" and _device_here() == "cuda"
    return Machine(get_host_cpu_name(), _bf16_unit(), has_cuda, has_cuda and _cuda_has_bf16())


def resolve_here(params_text: str) -> str:
    """A parameters file in which each `auto` is replaced by the value that is fastest on this machine."""
    return resolve_auto(params_text, this_machine(params_text))


def load_project_params(home: Path) -> Params:
    """Parameters of the project folder, with `auto` resolved for this machine.

    Raises:
      ParamsError: the file is missing or not valid.
    """
    return parse_params(resolve_here(read_params_text(home)), str(home / PARAMS_FILE))


def execution_profile(profile: ProfileParams) -> dict[str, str]:
    """The execution profile of this process as it is recorded: device, instruction set, backend, threads, versions.

    First sets the environment of torch (`set_environment`). Imports torch only for a GPU. Without it, a stage whose
    games are played by other processes starts in a third of the time.

    Raises:
      ParamsError: the profile's device is CUDA, and this machine has none.
    """
    set_environment(profile)
    libraries = (*LIBRARIES, "openvino") if profile.backend == "openvino" else LIBRARIES
    isa = _instruction_set()
    if profile.device == "cpu" and "bf16" in (profile.precision, profile.training_precision):
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
        # Last, so that the name of the GPU replaces that of the CPU's architecture.
        **(_gpu_profile() if profile.device == "cuda" else {}),
    }


def _gpu_profile() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        raise ParamsError(NO_CUDA)
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return {"device_name": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda), "cudnn": str(cudnn)}


def _instruction_set() -> str:
    """Torch's name of the vector instructions that it uses on this CPU, chosen as in ATen's DispatchStub.cpp."""
    if platform.machine() != "x86_64":
        import torch

        return torch.backends.cpu.get_cpu_capability()
    if (limit := os.environ.get("ATEN_CPU_CAPABILITY")) in ("avx2", "default"):
        return limit.upper()
    features = get_host_cpu_features()
    if all(features.get(name) for name in ("avx512vl", "avx512bw", "avx512dq", "fma")):
        return "AVX512"
    return "AVX2" if features.get("avx2") and features.get("fma") else "DEFAULT"


def _check_isa(profile: ProfileParams, capability: str) -> None:
    if profile.isa == "avx2" and capability != "AVX2":
        raise ParamsError(f"profile.isa = 'avx2', but this CPU has {capability}; set it to 'native'")


def _set_defaults() -> None:
    for name, value in (THREADS_ENVIRONMENT | CUDA_ENVIRONMENT).items():
        # Values that the user set take precedence.
        os.environ.setdefault(name, value)


def _device_here() -> Device:
    _set_defaults()
    try:
        ctypes.CDLL(CUDA_DRIVER)
    except OSError:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _cuda_has_bf16() -> bool:
    _set_defaults()
    import torch

    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _bf16_unit() -> Literal["", "AMX", "AVX512-BF16"]:
    """The unit that computes bf16 on this CPU; empty if there is none, or if oneDNN may not use it."""
    limited = os.environ.get("ONEDNN_MAX_CPU_ISA") == AVX2_ENVIRONMENT["ONEDNN_MAX_CPU_ISA"]
    if limited or platform.machine() != "x86_64":
        return ""
    features = get_host_cpu_features()
    if features.get("amx-bf16"):
        return "AMX"
    return "AVX512-BF16" if features.get("avx512bf16") else ""
