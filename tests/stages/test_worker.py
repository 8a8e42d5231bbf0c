"""The worker around its games; test_executor.py and test_collect.py test it with real shards."""

import os
from pathlib import Path

import pytest

from tests.stages.played import put_network, smoke_params
from zero.stages import worker
from zero.stages.spec import plan_shards
from zero.storage.store import Store


class MeasuredError(Exception):
    """Raised in place of the games."""


@pytest.mark.parametrize("name", ["CUBLAS_WORKSPACE_CONFIG", "GOMP_SPINCOUNT"])
def test_the_environment_is_set_before_the_meter_imports_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    params, store, seen = smoke_params(), Store(str(tmp_path)), []
    spec = plan_shards(params, "selfplay", params.selfplay, 1, (put_network(store, params),))[0]
    device = params.profile.model_copy(update={"device": "cuda", "backend": "torch"})
    monkeypatch.setenv(name, "")
    monkeypatch.delenv(name)  # restored at the end also where it was not set

    def meter(device: str, since_start: bool) -> None:
        seen.append((device, name in os.environ))
        raise MeasuredError

    monkeypatch.setattr(worker, "Meter", meter)
    with pytest.raises(MeasuredError):
        worker.play_into_store(spec.model_copy(update={"device": device}), store)
    assert seen == [("cuda", True)]
