"""The worker around its games; test_executor.py and test_collect.py test it with real shards."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest

from tests.stages.played import put_network, smoke_params
from zero.errors import ParamsError
from zero.network.profile import AVX2_ENVIRONMENT
from zero.stages import worker
from zero.stages.collect import CheckedShard, missing_shards, take_shard
from zero.stages.spec import plan_shards
from zero.storage.store import Store

T = TypeVar("T")


STANDS_STILL = """
import sys, time
from zero.stages import worker
from zero.storage.store import Store

def play(spec, store, progress, is_first):
    for done in range(1, 9):
        time.sleep(0.5)
        progress(done)
    time.sleep(600)

worker.play_into_store, worker.STALL_SECONDS = play, 3.0
worker.main(Store(sys.argv[1]))
"""


IMPORTS_TORCH = """
import os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("CUBLAS_WORKSPACE_CONFIG"), os.environ.get("GOMP_SPINCOUNT"))

sys.meta_path.insert(0, Finder())
from zero.stages import worker
from zero.stages.spec import ShardSpec
from zero.storage.store import Store

spec = ShardSpec.model_validate_json(sys.argv[1])
try:
    worker.play_into_store(spec, Store(sys.argv[2]))
except Exception as error:
    print(type(error).__name__)
"""


class CountingStore(Store):
    """A store in memory, which gets the requests that an object store would get."""

    num_requests = 0

    def _retry(self, request: Callable[[], T]) -> T:
        self.num_requests += 1
        return super()._retry(request)


def test_the_environment_is_set_before_torch_is_imported(tmp_path: Path) -> None:
    params, store = smoke_params(), Store(str(tmp_path))
    spec = plan_shards(params, "selfplay", 1, (put_network(store, params),))[0]
    device = params.profile.model_copy(update={"device": "cuda", "backend": "torch"})
    text = spec.model_copy(update={"device": device}).model_dump_json()
    env = {
        name: value for name, value in os.environ.items() if name not in ("CUBLAS_WORKSPACE_CONFIG", "GOMP_SPINCOUNT")
    }
    command = [sys.executable, "-c", IMPORTS_TORCH, text, store.url]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    # Without a GPU the error is that there is none, with one that the specification is of another profile.
    assert done.stdout.split("\n")[:2] in ([":4096:8 1000", "ParamsError"], [":4096:8 1000", "LineageError"]), (
        done.stderr
    )


def test_a_process_that_computes_with_all_instructions_plays_no_shard_of_avx2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, store = smoke_params(), Store(str(tmp_path))
    spec = plan_shards(params, "selfplay", 1, (put_network(store, params),))[0]
    for name in AVX2_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "openvino", ModuleType("openvino"))
    avx2 = spec.model_copy(update={"device": spec.device.model_copy(update={"isa": "avx2"})})
    with pytest.raises(ParamsError, match="already loaded OpenVINO with all instructions"):
        worker.play_into_store(avx2, store)
    assert not AVX2_ENVIRONMENT.keys() & os.environ.keys()


def test_a_shard_costs_few_requests_to_an_object_store(tmp_path: Path) -> None:
    """docs/cluster.md has the numbers."""
    params, store = smoke_params(selfplay={"num_games": 1}), CountingStore(f"memory://{tmp_path}")
    spec = plan_shards(params, "selfplay", 1, (put_network(store, params),))[0]
    counts = [store.num_requests]
    assert missing_shards([spec], store) == [spec]
    counts.append(store.num_requests)
    worker.play_into_store(spec, store)
    counts.append(store.num_requests)
    assert missing_shards([spec], store) == [] and isinstance(take_shard(spec, store), CheckedShard)
    counts.append(store.num_requests)
    assert [after - before for before, after in pairwise(counts)] == [1, 6, 4]


def test_a_worker_that_stands_still_ends_itself_and_one_that_waits_or_plays_does_not(tmp_path: Path) -> None:
    params, store = smoke_params(), Store(str(tmp_path))
    spec = plan_shards(params, "selfplay", 1, (put_network(store, params),))[0]
    command = [sys.executable, "-c", STANDS_STILL, store.url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write("{}\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["event"] == "error"  # the worker has started
        time.sleep(4.0)
        assert process.poll() is None
        process.stdin.write(spec.model_dump_json() + "\n")
        process.stdin.flush()
        events = [json.loads(process.stdout.readline()) for _ in range(8)]  # in 4 seconds
        assert events == [{"event": "progress", "done": done} for done in range(1, 9)]
        assert process.wait(60) == worker.EXIT_STALLED
        assert "no batch for 3 s" in process.stderr.read()
