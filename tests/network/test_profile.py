"""The execution profile describes what the process really computes with."""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.network.networks import CPU
from zero.config.auto import check_profile
from zero.config.params import PARAMS_FILE, preset_text
from zero.errors import ParamsError
from zero.network.profile import execution_profile, flush_denormals, load_project_params, prepare_torch, this_machine

CPU_INFO = Path("/proc/cpuinfo")
CHILD = """
import json
import sys
from tests.parameters import profile_params
from zero.network.profile import execution_profile, prepare_torch
profile = profile_params(isa=sys.argv[1])
answer = {**execution_profile(profile), "imported": "torch" in sys.modules}
prepare_torch(profile, 1)
import torch
print(json.dumps({**answer, "torch_isa": torch.backends.cpu.get_cpu_capability()}))
"""
RESOLVING_CHILD = """
from tests.parameters import profile_params
from zero.network.profile import prepare_torch, this_machine
this_machine("profile: {device: auto}")
import torch
prepare_torch(profile_params(isa="avx2"), 1)
print(torch.backends.cpu.get_cpu_capability())
"""


def has_avx2() -> bool:
    return torch.backends.cpu.get_cpu_capability().startswith("AVX")


def profile_of_a_new_process(isa: str, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-c", CHILD, isa]
    environment = {**os.environ, **environment}
    child = subprocess.run(command, capture_output=True, check=True, timeout=600, env=environment)
    result: dict[str, Any] = json.loads(child.stdout)
    return result


@pytest.mark.skipif(not has_avx2(), reason="the CPU has no AVX2")
def test_avx2_limits_the_instruction_set_of_a_new_process():
    answer = profile_of_a_new_process("avx2")
    assert answer["isa"] == answer["torch_isa"] == "AVX2"


@pytest.mark.parametrize("limit", ["", "default"])  # avx2 is tested above
def test_the_instruction_set_is_that_of_torch_without_importing_torch(limit):
    answer = profile_of_a_new_process("native", **({"ATEN_CPU_CAPABILITY": limit} if limit else {}))
    assert answer["isa"] == answer["torch_isa"]
    assert answer["imported"] is (platform.machine() != "x86_64")


def test_prepared_torch_is_deterministic_and_has_the_requested_threads():
    prepare_torch(CPU, 2)
    assert torch.get_num_threads() == 2
    assert torch.are_deterministic_algorithms_enabled()
    prepare_torch(CPU, 1)
    assert torch.get_num_threads() == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("needs_it", [lambda profile: prepare_torch(profile, 1), execution_profile])
def test_a_missing_gpu_is_reported(needs_it):
    with pytest.raises(ParamsError, match=r"profile\.device = 'cuda', but torch finds no CUDA device; use a machine"):
        needs_it(CPU.model_copy(update={"device": "cuda"}))


def test_the_profile_has_what_bits_depend_on():
    profile = execution_profile(CPU)
    assert profile["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert profile["isa"] == torch.backends.cpu.get_cpu_capability()
    assert profile["precision"] == "fp32"
    assert profile["backend"] == "torch"


@pytest.mark.parametrize(
    "changed",
    [
        *({"precision": "bf16"}, {"training_precision": "bf16"}, {"backend": "openvino"}, {"half_batches": True}),
        *({name: 3} for name in ("selfplay_threads", "search_threads", "training_threads", "training_processes")),
    ],
    ids=str,
)
def test_every_field_that_changes_bits_shows(changed):
    assert execution_profile(CPU.model_copy(update=changed)) != execution_profile(CPU)


def test_openvino_is_named_with_its_version_where_it_computes():
    assert "openvino" not in execution_profile(CPU)
    profile = execution_profile(CPU.model_copy(update={"backend": "openvino"}))
    assert profile["openvino"] == version("openvino")


@pytest.mark.skipif(not CPU_INFO.exists(), reason="not Linux")
def test_bf16_names_the_unit_that_computes_it():
    flags = CPU_INFO.read_text().split()
    unit = "+AMX" if "amx_bf16" in flags else "+BF16" if "avx512_bf16" in flags else ""
    isa = execution_profile(CPU.model_copy(update={"precision": "bf16"}))["isa"]
    assert isa == torch.backends.cpu.get_cpu_capability() + unit


def test_bf16_of_a_gpu_does_not_depend_on_the_unit_of_the_cpu(monkeypatch):
    monkeypatch.setattr("zero.network.profile._bf16_unit", lambda: "amx")
    monkeypatch.setattr("zero.network.profile._gpu_profile", lambda: {})
    isa = execution_profile(CPU.model_copy(update={"device": "cuda", "precision": "bf16"}))["isa"]
    assert "+" not in isa


def test_auto_does_not_choose_bf16_if_onednn_is_limited_to_avx2(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert this_machine("profile: {device: cpu}").bf16_unit == ""


def test_cuda_is_not_looked_for_if_the_file_names_the_cpu():
    program = "import sys; from zero.network.profile import this_machine as m; m('profile: {device: cpu}')"
    program += "; print('torch' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=600, text=True)
    assert child.stdout.strip() == "False"


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_cuda_is_found_if_torch_finds_it(device):
    machine = this_machine(f"profile: {{device: {device}}}")
    assert machine.has_cuda is torch.cuda.is_available()
    assert machine.has_cuda or not machine.has_cuda_bf16


@pytest.mark.skipif(not has_avx2(), reason="the CPU has no AVX2")
def test_avx2_still_limits_torch_after_auto_was_resolved():
    child = subprocess.run(
        [sys.executable, "-c", RESOLVING_CHILD], capture_output=True, check=True, timeout=600, text=True
    )
    assert child.stdout.strip() == "AVX2"


def test_the_project_parameters_are_resolved_for_this_machine(tmp_path):
    (tmp_path / PARAMS_FILE).write_text(preset_text("go9-laptop"))
    profile = load_project_params(tmp_path).profile
    check_profile(profile, this_machine(preset_text("go9-laptop")), "params.yaml")
    assert (profile.device, profile.backend) == ("cpu", "openvino")


def test_denormals_are_flushed_inside_the_context_only():
    smallest = torch.tensor([2.0**-126])
    with flush_denormals():
        assert float(smallest * 0.5) == 0.0
    assert float(smallest * 0.5) == 2.0**-127
