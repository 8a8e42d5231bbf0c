"""Resolves `auto` in a parameters file to the values of section `profile` that are fastest on a machine.

The functions are pure: the facts about the machine are an argument, which `zero.network.profile.this_machine` reads.
`auto` chooses by speed alone, since bf16 changes the answers of a network little (KL divergence 8e-5, see "AMX" in
RESULTS.md).
"""

from typing import Any, Literal, NamedTuple

import yaml

from zero.config.params import AUTO, ParamsLoader, ProfileParams, section_of
from zero.errors import ParamsError

FASTEST_BACKEND: dict[str, Literal["torch", "openvino"]] = {"cpu": "openvino", "cuda": "torch"}
ZEN_WITH_BF16 = ("znver4", "znver5")
"""AMD cores that compute bf16 faster than fp32, by their names in LLVM; Intel cores do so only with AMX."""
NO_CUDA = (
    "profile.device = 'cuda', but torch finds no CUDA device; use a machine with an NVIDIA GPU and a CUDA build of "
    "PyTorch, or a parameters file with `device: cpu` and `backend: openvino`"
)

Precision = Literal["fp32", "bf16"]


class Machine(NamedTuple):
    """Facts about a machine that decide what `auto` becomes."""

    cpu: str
    """Name of the CPU core in LLVM, such as `znver5`."""
    bf16_unit: Literal["", "AMX", "AVX512-BF16"]
    """Instructions that compute bf16 on the CPU; empty if it has none."""
    has_cuda: bool = False
    """True if PyTorch finds a CUDA device."""
    has_cuda_bf16: bool = False
    """True if that device computes bf16 in hardware."""


def resolve_auto(text: str, machine: Machine) -> str:
    """Replaces each `auto` in a parameters file by the value that is fastest on `machine`; comments are lost.

    A text without `auto`, or that is not a valid parameters file, comes back as it is, for `parse_params` to report.
    """
    profile = section_of(text, "profile")
    if AUTO not in profile.values():
        return text
    tree, chosen = yaml.load(text, ParamsLoader), _choose(profile, machine)
    tree["profile"] = {name: chosen.get(name, value) if value == AUTO else value for name, value in profile.items()}
    return yaml.safe_dump(tree, sort_keys=False)


def device_of(text: str) -> str:
    """`profile.device` of a parameters file as written, also `auto`; the default if the file has none."""
    return str(section_of(text, "profile").get("device", ProfileParams().device))


def check_profile(profile: ProfileParams, machine: Machine, source: str) -> None:
    """Checks that a machine has the device and the arithmetic of a profile.

    Args:
      profile: the profile, resolved.
      machine: facts about the machine.
      source: name of the parameters file in an error.

    Raises:
      ParamsError: the machine lacks the device, or it emulates a precision.
    """
    if profile.device == "cuda" and not machine.has_cuda:
        raise ParamsError(f"{source}: {NO_CUDA}")
    if profile.device == "cuda":
        missing = "" if machine.has_cuda_bf16 else "this GPU does not compute bf16"
    elif profile.isa == "avx2":
        missing = "profile.isa 'avx2' excludes the instructions for it"
    else:
        missing = "" if machine.bf16_unit else f"this CPU ({machine.cpu}) has neither AMX nor AVX512-BF16"
    for name in ("precision", "training_precision"):
        if missing and getattr(profile, name) == "bf16":
            raise ParamsError(f"{source}: profile.{name} = 'bf16', but {missing}; set it to 'fp32' or 'auto'")


def explain(profile: ProfileParams, machine: Machine) -> str:
    """One line about a resolved profile: device, backend, precision, and the reason for the precision."""
    precision: str = profile.precision
    if profile.training_precision != profile.precision:
        precision = f"{profile.precision} in play, {profile.training_precision} in training"
    fastest, reason = _fastest_precision(profile.device, profile.isa, machine)
    why = f" ({reason})" if fastest in (profile.precision, profile.training_precision) else ""
    return f"this machine: {profile.device}, {profile.backend}, {precision}{why}"


def _choose(written: dict[str, Any], machine: Machine) -> dict[str, str]:
    """The value of each field that may be `auto`, given the section as written."""
    device = str(written.get("device", ProfileParams().device))
    if device == AUTO:
        device = "cuda" if machine.has_cuda and written.get("backend") != "openvino" else "cpu"
    precision, _ = _fastest_precision(device, str(written.get("isa", "native")), machine)
    backend = FASTEST_BACKEND.get(device, "torch")
    return {"device": device, "backend": backend, "precision": precision, "training_precision": precision}


def _fastest_precision(device: str, isa: str, machine: Machine) -> tuple[Precision, str]:
    """The precision that a device computes fastest, and the reason. RESULTS.md has the measurements."""
    if device == "cuda":
        if machine.has_cuda_bf16:
            return "bf16", "the GPU computes bf16 faster than fp32"
        return "fp32", "the GPU does not compute bf16"
    if isa == "avx2":
        return "fp32", "isa avx2 excludes instructions for bf16"
    if machine.bf16_unit == "AMX":
        return "bf16", f"AMX on {machine.cpu} computes bf16 4 times as fast as fp32"
    if machine.bf16_unit and machine.cpu in ZEN_WITH_BF16:
        return "bf16", f"{machine.bf16_unit} on {machine.cpu} computes bf16 faster than fp32"
    if machine.bf16_unit:
        return "fp32", f"{machine.bf16_unit} on {machine.cpu} is not known to be faster than fp32"
    return "fp32", f"{machine.cpu} has no instructions for bf16"
