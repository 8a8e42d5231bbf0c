"""What runs on a Dask worker: Prefect tasks that play a shard or train, and a preload that announces the worker's code.

A worker is a process of Dask (`dask worker ADDRESS --nthreads 1 --preload flows.workers`). It does not play itself: a
child process with the code and the environment of the lineage does (`zero worker`), and stays for the next shard. So a
worker can serve lineages that need other code or another instruction set, and it answers the scheduler while it plays.
On the local cluster, the worker of a GPU has several threads and as many children, which share the GPU.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Timer
from typing import Any

from distributed import Worker, get_worker
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

from flows.commands import run_zero
from zero.config.params import ProfileParams
from zero.errors import StorageError, WorkerError
from zero.stages.executor import LocalExecutor
from zero.stages.spec import ShardReceipt, ShardSpec, code_digest, lock_file_digest
from zero.storage import store

PROJECT_DIR = Path(__file__).resolve().parents[1]
"""The checkout that this worker runs, whose code digest it announces."""
PROGRESS_TOPIC = "zero-progress"
"""Topic of Dask events with the progress of shards and trainings: `{"part": key, "done": 3, "total": 300}`."""
STAGES = ("selfplay", "training", "gating")
"""Stages whose work runs on workers."""
RETRIES = 5
GPU_IDLE_SECONDS = 5.0
"""Time without a shard after which a worker frees its GPU: the stages that train and verify need it too."""


def was_killed(_task: Any, _run: TaskRun, state: State[Any]) -> bool:
    """True if a process was killed, so that another try may help."""
    return isinstance(state.data, WorkerError)


@task(
    task_run_name="{name}",
    cache_policy=NO_CACHE,
    retries=RETRIES,
    retry_delay_seconds=1,
    retry_condition_fn=was_killed,
    persist_result=False,
)
def play_shard(spec: ShardSpec, name: str, folder: Path | None, store_url: str) -> ShardReceipt:
    """Plays one shard into the store, with the code in `folder` (None: of this worker's checkout).

    `name` is the name of the task run in Prefect.

    Raises:
      WorkerError: the process that played was killed.
      StorageError: this worker uses another store than the flow.
      ZeroError: the shard cannot be played here.
    """
    receipt = play_here(spec, folder, store_url)
    get_run_logger().info(
        f"{receipt.num_games} games in {receipt.seconds:.1f} s, {receipt.num_evaluations} evaluations, "
        f"shard {receipt.key[:12]} is {receipt.sha256[:12]}"
    )
    return receipt


@task(
    task_run_name="training-on-worker",
    cache_policy=NO_CACHE,
    retries=RETRIES,
    retry_delay_seconds=1,
    retry_condition_fn=was_killed,
    persist_result=False,
)
def train(spec: str, store_url: str) -> None:
    """Trains from the store into the store; `spec` is a TrainingSpec as JSON.

    Raises:
      WorkerError: the training process was killed.
      LineageError: the training failed.
    """
    train_here(spec, store_url, get_run_logger().info)


# Dask sends the function of a task by value, with copies of the variables of this module that it uses: a task that
# used `_children` would start a process of its own. It sends the functions that a task calls by name.


def play_here(spec: ShardSpec, folder: Path | None, store_url: str) -> ShardReceipt:
    """Plays a shard in the child process of this worker; see `play_shard`."""
    key = spec.key()
    with _children.executor(folder or PROJECT_DIR, _checked_store(folder, store_url), spec.device) as executor:
        return executor.play(spec, lambda done, total: report_progress(key, done, total))


def train_here(spec: str, store_url: str, listen: Callable[[str], None]) -> None:
    """Trains in a process of its own, whose output goes to `listen`; see `train`."""
    _children.close()  # a child that waits for shards would keep its GPU
    settings = {"ZERO_STORE": _checked_store(None, store_url), "ZERO_PROGRESS": "json"}
    part = training_part(spec)

    def report(event: dict[str, Any]) -> None:
        report_progress(part, event["done"], event["total"])

    run_zero(PROJECT_DIR, "train", listen=listen, on_object=report, text=spec, env=settings)


def report_progress(part: str, done: int, total: int) -> None:
    """Sends the progress of this worker's task to the clients that listen to the topic."""
    get_worker().log_event(PROGRESS_TOPIC, {"part": part, "done": done, "total": total})


def training_part(spec: str) -> str:
    """Name of a training in the topic, which all lineages of a cluster share."""
    return hashlib.sha256(spec.encode()).hexdigest()


def code_resource(stage: str, code: str, lock_file: str) -> str:
    """Name of the Dask resource of workers that have this code and these packages."""
    return f"{stage}-{code[:12]}-{lock_file[:12]}"


def dask_setup(worker: Worker) -> None:
    """Dask calls this when a worker with this preload starts: announces the code that the worker can run."""
    # Code and packages are part of a shard's key, so only equal ones can play it.
    lock_file = lock_file_digest()
    names = [code_resource(stage, code_digest(stage), lock_file) for stage in STAGES]
    # Not `worker.set_resources`: the scheduler does not know the worker yet. The worker sends these when it registers.
    worker.state.total_resources.update(dict.fromkeys(names, 1))
    worker.state.available_resources.update(dict.fromkeys(names, 1))


def dask_teardown(worker: Worker) -> None:
    """Dask calls this when the worker ends."""
    _children.close()


class _Children:
    """The processes that play for this worker, one per thread.

    Shards of another folder, store, device or instruction set get new ones: libraries choose their instructions when
    they are loaded.
    """

    def __init__(self) -> None:
        self._executor: LocalExecutor | None = None
        self._key: tuple[Path, str, str, str] | None = None
        self._num_users = 0
        self._idle: Timer | None = None  # ends the processes
        self._lock = Condition()

    @contextmanager
    def executor(self, folder: Path, store_url: str, profile: ProfileParams) -> Iterator[LocalExecutor]:
        """The executor for this folder, store and profile; closes that for others."""
        key, is_gpu = (folder, store_url, profile.device, profile.isa), profile.device == "cuda"
        with self._lock:
            # A worker with several threads may get shards of two lineages.
            self._lock.wait_for(lambda: key == self._key or not self._num_users)
            if self._executor is None or key != self._key:
                self._close()
                num_processes = get_worker().state.nthreads
                self._executor, self._key = LocalExecutor(folder, num_processes, store_url, int(is_gpu)), key
            executor = self._executor
            self._num_users += 1
            self._stop_timer()
        try:
            yield executor
        finally:
            with self._lock:
                self._num_users -= 1
                self._lock.notify_all()
                if is_gpu and not self._num_users:
                    self._idle = Timer(GPU_IDLE_SECONDS, self._end_idle)
                    self._idle.daemon = True
                    self._idle.start()

    def _end_idle(self) -> None:
        with self._lock:
            if self._idle:  # no shard has come meanwhile
                self._close()

    def close(self) -> None:
        """Ends the processes; shards that they play are lost."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._stop_timer()
        if self._executor:
            self._executor.close()
            self._executor = None

    def _stop_timer(self) -> None:
        if self._idle:
            self._idle.cancel()
            self._idle = None


_children = _Children()


def _checked_store(folder: Path | None, store_url: str) -> str:
    """The store of the flow; on another machine this worker must have the same."""
    if folder is None and (ours := store.store_url(PROJECT_DIR)) != store_url:
        raise StorageError(f"this worker's store is {ours}, the flow's is {store_url}; give both the same ZERO_STORE")
    return store_url
