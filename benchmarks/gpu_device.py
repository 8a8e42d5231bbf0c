"""The GPU that `python -m benchmarks.gpu` measures: facts from nvidia-smi and PyTorch, and what is missing."""

import os
import subprocess
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple
from xml.etree import ElementTree

from pydantic import Field

from zero.config.params import ProfileParams
from zero.errors import ParamsError
from zero.network.gpu_lock import NVIDIA_SMI_TIMEOUT_SECONDS
from zero.network.profile import set_environment
from zero.storage.manifests import Manifest

MEBIBYTE = 2**20
NEEDED_MIB = 8192
"""Free memory that the measurements need: two processes at once, and a batch of 8,192 positions."""
WITHOUT_GPU = 'to try the command without a GPU: make gpu ARGS="--fake"'
UNKNOWN = "unknown"
FACTS = {
    "SM clock at the start": "clocks/sm_clock",
    "highest SM clock": "max_clocks/sm_clock",
    "highest memory clock": "max_clocks/mem_clock",
    "power limit": "gpu_power_readings/current_power_limit",
    "PCIe generation": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "PCIe width": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "MIG": "mig_mode/current_mig",
}
"""Reported facts and their paths below `gpu` in nvidia-smi's XML."""
PEAK_TFLOPS = {"H200": 989.0, "H100 80GB HBM3": 989.0, "A100-SXM": 312.0}
"""Dense bf16 rates from NVIDIA's data sheets, by a part of the name."""


class TorchFacts(NamedTuple):
    """What PyTorch reports about itself and its first device."""

    version: str
    cuda: str  # version that it was built for; empty for a build without CUDA
    is_available: bool
    reason: str = ""  # its warning if it finds no device
    name: str = ""
    uuid: str = ""
    total_mib: int = 0
    free_mib: int = 0
    facts: str = ""


class Device(Manifest):
    """The measured device."""

    name: str
    total_mib: int = 0
    facts: dict[str, str] = Field(default_factory=dict)

    @property
    def is_slice(self) -> bool:
        """True if it is a part of a GPU (MIG)."""
        return "MIG" in self.name or self.facts.get("MIG") == "Enabled"

    @property
    def peak_tflops(self) -> float | None:
        """Dense bf16 rate by the data sheet; None if unknown, and for a slice."""
        return next((rate for name, rate in PEAK_TFLOPS.items() if name in self.name and not self.is_slice), None)


def find_device() -> Device:
    """The first GPU that this process sees.

    Raises:
      ParamsError: there is none that the measurements can use; with the remedy.
    """
    driver = read_driver()
    # In a child: CUDA would stay in this process and keep memory of the GPU.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return checked_device(driver, pool.submit(read_torch).result())


def read_driver() -> ElementTree.Element:
    """The report of nvidia-smi.

    Raises:
      ParamsError: there is no driver, or it does not answer.
    """
    command, timeout = ["nvidia-smi", "-q", "-x"], NVIDIA_SMI_TIMEOUT_SECONDS
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
        if done.returncode == 0:
            return ElementTree.fromstring(done.stdout)
        reason = (done.stdout + done.stderr).strip().partition("\n")[0] or f"exit status {done.returncode}"
    except FileNotFoundError:
        raise ParamsError(
            f"this machine has no NVIDIA driver: there is no nvidia-smi on the PATH; install it, or {WITHOUT_GPU}"
        ) from None
    except (OSError, subprocess.SubprocessError, ElementTree.ParseError) as error:
        reason = str(error)
    raise ParamsError(f"the NVIDIA driver does not answer: {reason}; load or reinstall it, or {WITHOUT_GPU}")


def read_torch() -> TorchFacts:
    """What PyTorch reports in this process."""
    set_environment(ProfileParams())
    import torch

    with warnings.catch_warnings(record=True) as caught:  # PyTorch warns why it finds no device
        warnings.simplefilter("always")
        is_available = torch.cuda.is_available()
    reason = str(caught[0].message).partition("\n")[0] if caught else "no reason given"
    torch_facts = TorchFacts(torch.__version__, torch.version.cuda or "", is_available, reason)
    if not is_available:
        return torch_facts
    found, (free, total) = torch.cuda.get_device_properties(0), torch.cuda.mem_get_info(0)
    return torch_facts._replace(
        name=found.name,
        uuid=str(getattr(found, "uuid", "")),
        total_mib=total // MEBIBYTE,
        free_mib=free // MEBIBYTE,
        facts=f"compute capability {found.major}.{found.minor}, {found.multi_processor_count} multiprocessors",
    )


def checked_device(driver: ElementTree.Element, torch: TorchFacts) -> Device:
    """The device that both describe.

    Raises:
      ParamsError: PyTorch cannot use it, or its memory is too small.
    """
    version, driver_cuda = (driver.findtext(name, UNKNOWN) for name in ("driver_version", "cuda_version"))
    if not torch.cuda:
        raise ParamsError(
            f"torch {torch.version} is built without CUDA; install the pinned CUDA build: PIP_CONFIG_FILE=/dev/null "
            ".venv/bin/python -m pip install --force-reinstall -i https://pypi.org/simple -c constraints.txt torch"
        )
    if not torch.is_available and 0 < _major(driver_cuda) < _major(torch.cuda):
        raise ParamsError(
            f"the NVIDIA driver {version} supports CUDA {driver_cuda}, but torch {torch.version} needs CUDA "
            f"{torch.cuda}; install a newer driver"
        )
    if not torch.is_available:
        raise ParamsError(
            f"torch {torch.version} finds no CUDA device, with the driver {version} and CUDA_VISIBLE_DEVICES "
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}: {torch.reason}; compare with nvidia-smi"
        )
    if torch.free_mib < NEEDED_MIB:
        raise ParamsError(
            f"{torch.name} has {torch.free_mib} of {torch.total_mib} MiB free, but the measurements need {NEEDED_MIB}; "
            "end other programs on it, or choose another GPU with CUDA_VISIBLE_DEVICES"
        )
    # PyTorch's first device need not be nvidia-smi's first.
    gpus = sorted(driver.findall("gpu"), key=lambda gpu: gpu.findtext("uuid", "") != f"GPU-{torch.uuid}")
    facts = {"driver": f"{version}, up to CUDA {driver_cuda}", "torch": f"{torch.version}, CUDA {torch.cuda}"}
    facts |= {"device": torch.facts, "memory": f"{torch.free_mib:,} of {torch.total_mib:,} MiB free"}
    facts |= {name: gpu.findtext(path, UNKNOWN) for gpu in gpus[:1] for name, path in FACTS.items()}
    return Device(name=torch.name, total_mib=torch.total_mib, facts=facts)


def _major(version: str) -> int:
    major = version.partition(".")[0]
    return int(major) if major.isdecimal() else 0
