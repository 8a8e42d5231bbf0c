"""The engine on a real Dask cluster and a real Prefect server: results, killed processes, clear errors."""

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, Scheduler, get_worker
from distributed.protocol import pickle
from prefect import flow, task
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import workers
from flows.engine import ALLOWED_FAILURES, IDLE_SETTINGS, TASKS_PER_WORKER, Engine, LostError, _fetch, _outcome, probe
from flows.workers import code_resource, play_shard, report_progress, train
from tests.flows.examples import smoke_params
from tests.infra.servers import Servers, free_port
from tests.parameters import with_sections
from zero.config.params import ExecutorParams, Params
from zero.errors import ServerError
from zero.stages.spec import code_digest, lock_file_digest

NUM_DEATHS = 4
"""More than Dask allows a task by default."""
OURS = code_resource("selfplay", code_digest("selfplay"), lock_file_digest())


@task(persist_result=False)
def work(folder: Path, number: int) -> int:
    """Counts its attempts in a file; dies the first `NUM_DEATHS` times for number 1; tells its progress."""
    report_progress(f"part {number}", 3, 4)
    attempts = folder / f"attempts-{number}"
    with attempts.open("a") as file:
        file.write("x")
    if number == 1 and attempts.stat().st_size <= NUM_DEATHS:
        os.kill(os.getpid(), 9)
    time.sleep(0.5)
    return os.getpid()


@task(persist_result=False)
def listening() -> list[str]:
    """Addresses on which the worker and its nanny accept connections."""
    processes = (psutil.Process(), psutil.Process().parent())
    found = [one for process in processes if process for one in process.net_connections("tcp")]
    return [one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN]


@task(persist_result=False)
def settings_of_a_worker() -> dict[str, Any]:
    """Settings of Dask in the worker's process."""
    return {key: dask.config.get(key) for key in IDLE_SETTINGS}


@task(persist_result=False)
def seen_by_a_worker() -> tuple[str, int]:
    """Its GPU and its number of threads."""
    time.sleep(0.5)
    return os.environ["CUDA_VISIBLE_DEVICES"], get_worker().state.nthreads


@task(persist_result=False)
def address_of_prefect() -> str:
    """Address of Prefect's server in a task."""
    return str(PREFECT_API_URL.value())


@pytest.fixture(autouse=True)
def prefect_server(servers: Servers) -> Iterator[None]:
    with temporary_settings({PREFECT_API_URL: f"{servers.prefect}/api"}):
        yield


@pytest.fixture
def params() -> Params:
    """Two local workers."""
    return with_sections(smoke_params(), executor=ExecutorParams(num_processes=2))


bodies: list[Callable[[], Any]] = []


@flow(persist_result=False)
def in_a_flow() -> Any:
    """Runs the newest body. Workers import the flow of a task, so that it cannot be a function in a test."""
    return bodies.pop()()


def run_in_flow(body: Callable[[], Any]) -> Any:
    bodies.append(body)
    return in_a_flow()


def run_all(engine: Engine, folder: Path, count: int, resource: str = OURS) -> list[int]:
    def submits() -> Any:
        with engine:
            given = [{"folder": folder, "number": number} for number in range(count)]
            runs = engine.submit(work, given, 10, [{resource: 1}] * count)
            return [state.result() for state in engine.wait(runs)]

    pids: list[int] = run_in_flow(submits)
    return pids


def test_killed_workers_are_replaced_and_their_task_runs_again_on_this_machine_only(
    params: Params, tmp_path: Path
) -> None:
    """The new workers too accept connections from this machine only, and cost little while they wait."""
    seen: list[dict[str, tuple[int, int]]] = []
    engine = Engine(params, params.executor, tmp_path / "dask", pytest.fail)

    def submits() -> Any:
        with engine:
            given = [{"folder": tmp_path, "number": number} for number in range(4)]
            runs = engine.submit(work, given, 10, [{OURS: 1}] * 4)
            pids = [state.result() for state in engine.wait(runs, seen.append)]
            (addresses,) = engine.wait(engine.submit(listening, [{}], 10, [{OURS: 1}]))
            (settings,) = engine.wait(engine.submit(settings_of_a_worker, [{}], 10, [{OURS: 1}]))
            return pids, addresses.result(), settings.result()

    # On a slow machine a worker starts in more than Dask's 15 seconds. Its place would be given up.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"}):
        pids, addresses, settings = run_in_flow(submits)
    assert len(pids) == 4 and os.getpid() not in pids
    assert (tmp_path / "attempts-1").stat().st_size == NUM_DEATHS + 1
    assert seen[-1]["part 3"] == (3, 4)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert len(addresses) >= 3 and {*addresses} == {"127.0.0.1"}
    assert settings == IDLE_SETTINGS


def test_local_workers_that_cannot_start_again_are_reported(params: Params, tmp_path: Path) -> None:
    engine = Engine(params, params.executor, tmp_path / "dask", pytest.fail)

    def close_all(_: object) -> None:
        assert engine._local
        for nanny in engine._local.workers.values():
            asyncio.run_coroutine_threadsafe(nanny.close(), nanny.loop.asyncio_loop)

    def submits() -> Any:
        given = [{"folder": tmp_path, "number": number} for number in (0, 2)]
        with engine:
            with pytest.raises(LostError, match="the local workers ended"):
                engine.wait(engine.submit(work, given * 4, 10, [{}] * 8), close_all)
            engine.close()
            return engine.wait(engine.submit(work, given, 10, [{}] * 2))

    assert len(run_in_flow(submits)) == 2


def test_the_processes_of_a_gpu_share_its_worker(
    params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes on two GPUs, which need not be there to start the workers."""
    monkeypatch.setattr("flows.engine.visible_gpus", lambda: ["GPU-a", "GPU-b"])
    params = with_sections(params, profile={"device": "cuda"}, executor=ExecutorParams(num_processes=3))

    def asks() -> Any:
        with Engine(params, params.executor, tmp_path / "dask", pytest.fail) as engine:
            return [state.result() for state in engine.wait(engine.submit(seen_by_a_worker, [{}] * 9, 10, [{}] * 9))]

    assert {*run_in_flow(asks)} == {("GPU-a", 2), ("GPU-b", 1)}


class Cluster:
    """A scheduler and a worker as a person starts them (docs/cluster.md), without TLS."""

    def __init__(self, folder: Path, prefect: str) -> None:
        self.folder, self.prefect, self.address = folder, prefect, f"tcp://127.0.0.1:{free_port()}"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = self.start_scheduler()
        self.worker = self.start_worker()

    def start_scheduler(self) -> "subprocess.Popen[bytes]":
        port = self.address.rpartition(":")[2]
        return self._start("dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")

    def start_worker(self) -> "subprocess.Popen[bytes]":
        options = ["--nthreads", "1", "--preload", "flows.workers", "--no-dashboard"]
        return self._start("dask_worker", self.address, *options, "--local-directory", str(self.folder / "dask"))

    def _start(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", f"distributed.cli.{program}", *arguments]
        environment = os.environ | {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(ALLOWED_FAILURES)}
        environment["PREFECT_API_URL"] = self.prefect
        with (self.folder / f"{program}.log").open("ab") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
        return self.processes[-1]


@contextmanager
def running(folder: Path, prefect: str) -> Iterator[Cluster]:
    made = Cluster(folder, prefect)
    try:
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Iterator[Cluster]:
    """A cluster for the tests that leave it as it is. Its worker reaches Prefect at another address than the flow."""
    own = f"{servers.prefect}/api".replace("127.0.0.1", "localhost")
    with running(tmp_path_factory.mktemp("cluster"), own) as made:
        yield made


@pytest.fixture
def own_cluster(tmp_path: Path, servers: Servers) -> Iterator[Cluster]:
    """A cluster whose processes a test may kill."""
    with running(tmp_path, f"{servers.prefect}/api") as made:
        yield made


def test_tasks_run_on_a_cluster_that_is_there(params: Params, tmp_path: Path, cluster: Cluster) -> None:
    executor = ExecutorParams(kind="dask", address=cluster.address)
    warnings: list[str] = []
    pids = run_all(Engine(params, executor, tmp_path, warnings.append), tmp_path, 3)
    assert len(pids) == 3
    with Client(cluster.address, set_as_default=False) as client:  # a flow that ends leaves the cluster alone
        client.wait_for_workers(1, timeout=300)


def test_a_worker_elsewhere_uses_its_own_address_of_prefect(params: Params, tmp_path: Path, cluster: Cluster) -> None:
    """On Kubernetes the workers reach another address than the flow."""
    engine = Engine(params, ExecutorParams(kind="dask", address=cluster.address), tmp_path, lambda line: None)

    def asks() -> Any:
        with engine:
            (state,) = engine.wait(engine.submit(address_of_prefect, [{}], 10, [{OURS: 1}]))
            return state.result()

    assert run_in_flow(asks) == cluster.prefect != PREFECT_API_URL.value()


def test_the_scheduler_has_few_tasks_at_a_time(params: Params, tmp_path: Path, cluster: Cluster) -> None:
    """Dask sends them to workers at once, and counts the deaths of a worker against all that wait there."""
    executor = ExecutorParams(kind="dask", address=cluster.address)
    engine = Engine(params, executor, tmp_path, lambda line: None)
    counts: list[int] = []

    def count(_: object) -> None:
        assert engine._runner
        counts.append(engine._runner.client.run_on_scheduler(num_tasks))

    def submits() -> Any:
        with engine:
            given = [{"folder": tmp_path, "number": number} for number in (0, *range(2, 11))]
            return engine.wait(engine.submit(work, given, 10, [{OURS: 1}] * 10), count)

    assert len(run_in_flow(submits)) == 10
    assert 2 <= max(counts) <= TASKS_PER_WORKER


def test_a_result_that_dies_with_its_worker_is_computed_again(
    params: Params, tmp_path: Path, own_cluster: Cluster
) -> None:
    """The scheduler is there: the task is not an outcome yet, and nothing is submitted again."""
    engine = Engine(params, ExecutorParams(kind="dask", address=own_cluster.address), tmp_path, lambda line: None)

    def submits() -> Any:
        with engine:
            runs = list(engine.submit(work, [{"folder": tmp_path, "number": 0}], 10, [{OURS: 1}]))
            wait_for(lambda: runs[0].wrapped_future.status == "finished")
            own_cluster.worker.kill()
            wait_for(lambda: runs[0].wrapped_future.status == "lost")
            fetch = _fetch(runs[0])
            time.sleep(1)
            assert _outcome(runs[0], fetch) is None
            own_cluster.worker.wait()
            own_cluster.worker = own_cluster.start_worker()
            return [state.result() for state in engine.wait(runs)]

    assert len(run_in_flow(submits)) == 1


def test_a_result_at_a_worker_that_stands_still_does_not_stop_the_flow(
    params: Params, tmp_path: Path, cluster: Cluster
) -> None:
    """The flow goes on looking at its tasks, and has the result when the worker goes on."""
    engine = Engine(params, ExecutorParams(kind="dask", address=cluster.address), tmp_path, lambda line: None)
    looks: list[float] = []

    def submits() -> Any:
        with engine:
            runs = list(engine.submit(work, [{"folder": tmp_path, "number": 0}], 10, [{OURS: 1}]))
            wait_for(lambda: runs[0].wrapped_future.status == "finished")
            children = psutil.Process(cluster.worker.pid).children()
            (worker,) = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
            worker.suspend()
            late = threading.Timer(60, worker.resume)  # a flow that waits for the worker has looked once by then
            late.start()

            def look(_: object) -> None:
                looks.append(time.monotonic())
                if len(looks) == 3:
                    worker.resume()
                    late.cancel()

            try:
                return [state.result() for state in engine.wait(runs, look)]
            finally:
                late.cancel()
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.resume()

    assert len(run_in_flow(submits)) == 1
    assert len(looks) >= 3 and looks[2] - looks[0] < 60
    assert (tmp_path / "attempts-0").read_text() == "x"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


def num_tasks(dask_scheduler: Scheduler) -> int:
    """Runs on the scheduler: the number of its tasks."""
    return len(dask_scheduler.tasks)


def test_tasks_use_the_module_of_their_worker() -> None:
    """Dask sends a task's function by value; a copy of the module's state would start a process for each shard."""
    for sent, name in ((play_shard, "play_here"), (train, "train_here")):
        received = pickle.loads(pickle.dumps(sent)).fn
        assert received is not sent.fn
        assert received.__globals__[name] is getattr(workers, name)
        assert "_children" not in received.__globals__


def test_workers_with_other_code_get_no_task(
    params: Params, tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.engine.NO_WORKER_SECONDS", 1.0)
    warnings: list[str] = []

    class StopError(Exception):
        pass

    def warn(line: str) -> None:
        warnings.append(line)
        raise StopError

    executor = ExecutorParams(kind="dask", address=cluster.address)
    with pytest.raises(StopError):
        run_all(Engine(params, executor, tmp_path, warn), tmp_path, 1, resource="selfplay-of-other-code")
    assert "no worker of the cluster has this lineage's code" in warnings[0]
    assert not (tmp_path / "attempts-0").exists()


def test_a_lost_scheduler_is_said_and_one_that_was_away_between_two_steps_is_reached_again(
    params: Params, tmp_path: Path, own_cluster: Cluster
) -> None:
    executor = ExecutorParams(kind="dask", address=own_cluster.address)
    engine = Engine(params, executor, tmp_path, lambda line: None)
    kills = [own_cluster.scheduler.kill]

    def kill_once(_: object) -> None:
        if kills:
            kills.pop()()

    def start_again() -> None:
        own_cluster.scheduler.wait()
        own_cluster.scheduler = own_cluster.start_scheduler()
        own_cluster.start_worker()

    def run(*numbers: int) -> Any:
        given = [{"folder": tmp_path, "number": number} for number in numbers]
        return engine.wait(engine.submit(work, given, 10, [{OURS: 1}] * len(given)), kill_once)

    def submits() -> Any:
        with engine:
            with pytest.raises(LostError, match="lost"):
                run(0, 2, 3, 4, 5, 6)
            engine.close()
            start_again()
            with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
                assert len(run(0)) == 1
                assert engine._runner
                client = engine._runner.client
                own_cluster.scheduler.kill()
                wait_for(lambda: client.status == "closed")  # Dask's client closes itself
                start_again()
                return run(2)

    assert len(run_in_flow(submits)) == 1


def test_a_scheduler_that_does_not_answer_is_named(params: Params, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("flows.engine.CONNECT_SECONDS", 1.0)
    monkeypatch.setattr("flows.engine.OUTAGE_SECONDS", 3.0)
    monkeypatch.setattr("flows.engine.RETRY_SECONDS", 0.1)
    address = f"tcp://127.0.0.1:{free_port()}"
    warnings: list[str] = []
    executor = ExecutorParams(kind="dask", address=address)
    with pytest.raises(ServerError, match=f"the Dask scheduler {address} does not answer: .*; start it, or correct"):
        run_all(Engine(params, executor, tmp_path, warnings.append), tmp_path, 1)
    assert "trying again" in warnings[0]


def test_an_address_must_be_known(params: Params, tmp_path: Path) -> None:
    with pytest.raises(ServerError, match=r"no scheduler is known; set executor\.address in params\.yaml"):
        run_all(Engine(params, ExecutorParams(kind="dask"), tmp_path, pytest.fail), tmp_path, 1)


def clients() -> set[int]:
    """Ids of Dask's clients in this process."""
    # Not `isinstance`, which asks each object for its class; objects of torch then warn.
    return {id(each) for each in gc.get_objects() if issubclass(type(each), Client)}


def test_a_scheduler_that_does_not_answer_leaves_no_client_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would collect it at any time, and the thread that starts another client then waits for itself."""
    monkeypatch.setattr("flows.engine.CONNECT_SECONDS", 1.0)
    gc.collect()
    gc.disable()
    try:
        before = clients()
        assert (probe(f"tcp://127.0.0.1:{free_port()}") or "").startswith("OSError")
        assert clients() <= before
    finally:
        gc.enable()


def test_a_worker_is_not_a_scheduler(cluster: Cluster) -> None:
    with Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=300)
        (worker,) = client.scheduler_info()["workers"]
    assert probe(cluster.address) is None
    assert probe(worker) == "it is not a scheduler, but a worker"


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:x", "nonsense://127.0.0.1:1"])
def test_a_wrong_address_is_an_error_in_words(address: str) -> None:
    assert (probe(address) or "").startswith(("ValueError", "OSError", "TypeError"))


def test_a_tls_scheduler_refuses_a_client_without_certificates(cluster: Cluster) -> None:
    assert "TLS" in (probe(cluster.address.replace("tcp", "tls")) or "")
