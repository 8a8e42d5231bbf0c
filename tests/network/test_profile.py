"""The execution profile is what the process really computes with."""

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
from zero.errors import ParamsError
from zero.network.profile import execution_profile, faster_here, prepare_torch, zero_for_denormals

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


def has_avx2() -> bool:
    return torch.backends.cpu.get_cpu_capability().startswith("AVX")


def answer_of_a_new_process(isa: str, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-c", CHILD, isa]
    environment = {**os.environ, **environment}
    child = subprocess.run(command, capture_output=True, check=True, timeout=600, env=environment)
    answer: dict[str, Any] = json.loads(child.stdout)
    return answer


@pytest.mark.skipif(not has_avx2(), reason="the CPU has no AVX2")
def test_avx2_limits_the_instruction_set_of_a_new_process():
    answer = answer_of_a_new_process("avx2")
    assert answer["isa"] == answer["torch_isa"] == "AVX2"


@pytest.mark.parametrize("limit", ["", "avx2", "default"])
def test_the_instruction_set_is_known_as_torch_says_it_without_importing_torch(limit):
    answer = answer_of_a_new_process("native", **({"ATEN_CPU_CAPABILITY": limit} if limit else {}))
    assert answer["isa"] == answer["torch_isa"]
    assert answer["imported"] is (platform.machine() != "x86_64")


def test_prepared_torch_is_deterministic_and_has_the_threads_asked_for():
    threads = torch.get_num_threads()
    try:
        prepare_torch(CPU, 2)
        assert torch.get_num_threads() == 2
        assert torch.are_deterministic_algorithms_enabled()
        prepare_torch(CPU, 1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named():
    with pytest.raises(ParamsError, match=r"profile\.device = 'cuda'"):
        prepare_torch(CPU.model_copy(update={"device": "cuda"}), 1)


def test_the_profile_names_what_bits_depend_on():
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
    unit = "+AMX" if "amx_tile" in flags else "+BF16" if "avx512_bf16" in flags else ""
    isa = execution_profile(CPU.model_copy(update={"precision": "bf16"}))["isa"]
    assert isa == torch.backends.cpu.get_cpu_capability() + unit


@pytest.mark.parametrize(
    ("has_tiles", "cpu", "changes", "told"),
    [
        (True, "sapphirerapids", {}, True),
        (False, "sapphirerapids", {}, False),
        (False, "znver5", {}, True),
        (True, "sapphirerapids", {"precision": "bf16"}, False),
        (True, "sapphirerapids", {"isa": "avx2"}, False),
        (True, "sapphirerapids", {"device": "cuda"}, False),
    ],
)
def test_a_maker_is_told_where_bf16_would_be_faster(has_tiles, cpu, changes, told, monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: has_tiles)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    monkeypatch.setattr("zero.network.profile.get_host_cpu_name", lambda: cpu)
    assert ("`precision: bf16`" in faster_here(CPU.model_copy(update=changes))) is told


def test_denormals_are_zero_inside_and_are_back_after():
    smallest = torch.tensor([2.0**-126])
    with zero_for_denormals():
        assert float(smallest * 0.5) == 0.0
    assert float(smallest * 0.5) == 2.0**-127
