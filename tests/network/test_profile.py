"""The execution profile is what the process really computes with."""

import json
import subprocess
import sys

import pytest
import torch

from tests.network.networks import CPU
from zero.errors import ParamsError
from zero.network.profile import execution_profile, prepare_torch

AVX2_CHILD = """
import json
from zero.network.profile import execution_profile, prepare_torch
from zero.params import ProfileParams
profile = ProfileParams(device="cpu", precision="fp32", isa="avx2", selfplay_threads=1, training_threads=1)
prepare_torch(profile, 1)
print(json.dumps(execution_profile(profile)))
"""


def has_avx2() -> bool:
    return torch.backends.cpu.get_cpu_capability().startswith("AVX")


@pytest.mark.skipif(not has_avx2(), reason="the CPU has no AVX2")
def test_avx2_limits_the_instruction_set_of_a_new_process():
    answer = subprocess.run([sys.executable, "-c", AVX2_CHILD], capture_output=True, check=True, timeout=120)
    assert json.loads(answer.stdout)["isa"] == "AVX2"


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
    assert execution_profile(CPU.model_copy(update={"precision": "bf16"})) != profile
