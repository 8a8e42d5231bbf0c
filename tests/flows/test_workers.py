"""The processes that play for a Dask worker: how long they keep their GPU. No GPU is needed."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest

from flows import workers
from tests.flows.examples import smoke_params
from zero.errors import StorageError
from zero.network.gpu_lock import LOCKS_VARIABLE, lock_gpus
from zero.network.weights import new_network, weights_bytes
from zero.stages.executor import LocalExecutor
from zero.stages.spec import ShardSpec, plan_shards
from zero.storage.store import Store

PROJECT_DIR = Path(__file__).resolve().parents[2]
CPU = smoke_params().profile
GPU = CPU.model_copy(update={"device": "cuda"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> workers._Children:
    """Those of a worker with two threads that sees one GPU."""
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "locks"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    monkeypatch.setattr(workers, "GPU_IDLE_SECONDS", 0.5)
    monkeypatch.setattr(workers, "get_worker", lambda: SimpleNamespace(state=SimpleNamespace(nthreads=2)))
    return workers._Children()


def specs_of(store: Store) -> list[ShardSpec]:
    params = smoke_params()
    digest = store.put_weights(weights_bytes(new_network(params.network, params.game, params.seed)))
    return plan_shards(params, "selfplay", 1, (digest,))


def is_free() -> bool:
    class BusyError(Exception):
        pass

    attempts = iter([None, BusyError()])

    def check() -> None:
        if error := next(attempts):
            raise error

    try:
        with lock_gpus(["GPU-a"], check):
            return True
    except BusyError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_shards_of_a_worker_share_its_gpu_until_both_are_played(children: workers._Children, store: Store) -> None:
    """The stages that train and verify wait for the GPU, and the flow waits for them."""
    together = Barrier(2, timeout=300.0)

    def play(spec: ShardSpec) -> LocalExecutor:
        with children.executor(PROJECT_DIR, store.url, GPU) as executor:
            executor.play(spec)
            assert not is_free()
            together.wait()
            return executor

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(play, specs_of(store)[:2])
    assert first is second
    wait_for(is_free)


def test_a_shard_that_comes_soon_finds_the_processes_of_the_last_one(
    children: workers._Children, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "GPU_IDLE_SECONDS", 600.0)
    found = []
    for _ in range(2):
        with children.executor(PROJECT_DIR, store.url, GPU) as executor:
            found.append(executor)
    assert found[0] is found[1]
    children.close()


def test_a_worker_without_a_gpu_keeps_its_processes(children: workers._Children, store: Store) -> None:
    with children.executor(PROJECT_DIR, store.url, CPU) as first:
        pass
    time.sleep(1.0)
    with children.executor(PROJECT_DIR, store.url, CPU) as second:
        assert first is second
    children.close()


def test_shards_of_another_instruction_set_get_new_processes(children: workers._Children, store: Store) -> None:
    """OpenVINO and PyTorch choose their instructions when they are loaded."""
    avx2 = CPU.model_copy(update={"isa": "avx2"})
    with children.executor(PROJECT_DIR, store.url, CPU) as first:
        pass
    with children.executor(PROJECT_DIR, store.url, avx2) as second:
        assert first is not second
    children.close()


def test_shards_of_another_lineage_wait_for_those_in_play(children: workers._Children, store: Store) -> None:
    avx2, ended = CPU.model_copy(update={"isa": "avx2"}), []

    def play() -> None:
        with children.executor(PROJECT_DIR, store.url, avx2):
            ended.append("second")

    with ThreadPoolExecutor(1) as threads:
        with children.executor(PROJECT_DIR, store.url, CPU):
            second = threads.submit(play)
            time.sleep(0.5)
            ended.append("first")
        second.result(timeout=300.0)
    assert ended == ["first", "second"]
    children.close()


def test_a_relative_store_is_relative_to_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZERO_STORE", "data/store")
    monkeypatch.delenv("ZERO_HOME", raising=False)
    store = str(workers.PROJECT_DIR / "data" / "store")
    assert workers._checked_store(None, store) == store
    with pytest.raises(StorageError, match=f"this worker's store is {store}, the flow's is s3://zero; give both"):
        workers._checked_store(None, "s3://zero")
