"""Tests with the mark `gpu`: skipped without a GPU, and run with the settings of a stage, which bits depend on."""

from collections.abc import Iterator

import pytest
import torch

from tests.parameters import profile_params
from zero.network.profile import prepare_torch


@pytest.fixture(autouse=True)
def prepared_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.node.get_closest_marker("gpu") is None:
        yield
        return
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    prepare_torch(profile_params(device="cuda"), torch.get_num_threads())
    yield
    torch.set_deterministic_debug_mode("default")
    torch.backends.cudnn.allow_tf32 = True
