"""Plays shards on this machine: a warm subprocess a core or GPU, each driven by the thread that calls `play`.

A child that dies takes only its own shard with it: the call raises, a fresh child serves the next call.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, Self

from zero.config.params import Params
from zero.errors import WorkerError, ZeroError
from zero.network.gpu_lock import lock_gpus, visible_gpus
from zero.shards.spec import ShardReceipt, ShardSpec

MAX_TRIES = 4
"""Children that may die over one shard before the stage gives up."""
CLOSE_SECONDS = 10.0
LOG_TAIL_BYTES = 2000

Progress = Callable[[int, int], None]
"""Called with (games done, games in all)."""


class Executor(Protocol):
    """Plays shards into the store."""

    def play(self, spec: ShardSpec, progress: Progress | None = None) -> ShardReceipt:
        """Plays one shard; blocks; may be called from many threads.

        Raises:
          WorkerError: the process that played it died; worth another try.
          ZeroError: the shard cannot be played; another try would fail as well.
        """
        ...


class ShardFailedError(ZeroError):
    """The worker refused the shard, with its reason."""


def num_local_processes(params: Params) -> int:
    """Processes of the local executor: as given, else one a core, or one a GPU."""
    if params.executor.num_processes:
        return params.executor.num_processes
    if params.profile.device == "cuda":
        import torch

        return max(1, torch.cuda.device_count())
    return max(1, len(os.sched_getaffinity(0)) // params.profile.selfplay_threads)


class LocalExecutor:
    """A pool of warm workers that run the code of `folder`. A context manager: leaving it ends them."""

    def __init__(self, folder: Path, num_processes: int, store_url: str, num_gpus: int = 0) -> None:
        """Starts no process yet; each is started by the first shard that needs it.

        Args:
          folder: checkout whose code plays.
          num_processes: shards played at once; further calls wait.
          store_url: the store the shards go to.
          num_gpus: worker i is given GPU i % num_gpus of those this process sees, or one of the first again where they
            are fewer; no other run has them from the first shard to `close`. 0: none is chosen for it.
        """
        self._folder = folder
        self._store_url = store_url
        self._num_gpus = num_gpus
        self._free: queue.LifoQueue[tuple[int, _Worker | None]] = queue.LifoQueue()
        self._workers: set[_Worker] = set()
        self._lock = Lock()
        self._closed = False
        self._gpus: list[str] = []
        self._gpu_locks: list[Connection] = []
        self._gpus_taken = ExitStack()
        self._gpus_lock = Lock()
        for place in reversed(range(num_processes)):
            self._free.put((place, None))

    def play(self, spec: ShardSpec, progress: Progress | None = None) -> ShardReceipt:
        """See `Executor.play`."""
        place, worker = self._free.get()
        try:
            if worker is None or not worker.is_alive():
                worker = self._start(place)
            receipt = worker.play(spec, progress)
        except ShardFailedError:
            raise
        except BaseException:  # dead, or in the middle of a shard: it cannot be asked again
            if worker is not None:
                self._forget(worker)
            worker = None
            raise
        finally:
            self._free.put((place, worker))
        return receipt

    def close(self) -> None:
        """Ends the workers; a shard in hand is given up."""
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, set()
        for worker in workers:
            worker.hang_up()
        for worker in workers:
            worker.close()
        with self._gpus_lock:
            self._gpus_taken.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, place: int) -> "_Worker":
        self._take_gpus()
        gpu = self._gpus[place % len(self._gpus)] if self._gpus else None
        with self._lock:
            self._check_open()
            worker = _Worker(self._folder, self._store_url, gpu, self._gpu_locks)
            self._workers.add(worker)
        return worker

    def _take_gpus(self) -> None:
        """Makes the GPUs this executor's; one thread waits for them, and the others for it."""
        with self._gpus_lock:
            if self._num_gpus and not self._gpus:
                gpus = visible_gpus()[: self._num_gpus]
                self._gpu_locks = self._gpus_taken.enter_context(lock_gpus(gpus, self._check_open))
                self._gpus = gpus or [""]

    def _check_open(self) -> None:
        if self._closed:
            raise ShardFailedError("the executor was closed; no shard is begun")

    def _forget(self, worker: "_Worker") -> None:
        with self._lock:
            self._workers.discard(worker)
        worker.close()


class _Worker:
    """One child process and its two pipes."""

    def __init__(self, folder: Path, store_url: str, gpu: str | None, gpu_locks: Sequence[Connection]) -> None:
        environment = {**os.environ, "ZERO_STORE": store_url, "PYTHONUNBUFFERED": "1"}
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [sys.executable, "-m", "zero", "worker"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            pass_fds=[lock.fileno() for lock in gpu_locks],  # the GPUs are not free before it has ended
        )

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def play(self, spec: ShardSpec, progress: Progress | None) -> ShardReceipt:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(spec.model_dump(mode="json")) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                event: dict[str, Any] = json.loads(line)
                kind = event.pop("event")
                if kind == "progress" and progress:
                    progress(int(event["done"]), spec.num_games)
                elif kind == "receipt":
                    receipt = ShardReceipt.model_validate(event)
                    assert receipt.key == spec.key()
                    return receipt
                elif kind == "error":
                    raise ShardFailedError(event["message"])
        except (OSError, ValueError) as error:
            raise WorkerError(
                f"the worker (pid {self._process.pid}) answers nonsense: {error}{self._log_tail()}"
            ) from None
        status = self._process.wait()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise WorkerError(f"the worker (pid {self._process.pid}) {how} over {_name(spec)}{self._log_tail()}")

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()

    def close(self) -> None:
        self.hang_up()
        try:
            self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._log.close()

    def _log_tail(self) -> str:
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - LOG_TAIL_BYTES))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"; its last words: {lines[-1]}" if lines else ""


def play_all(
    executor: Executor, specs: Sequence[ShardSpec], num_threads: int, progress: Progress | None = None
) -> None:
    """Plays all shards, up to `num_threads` at once; one whose worker dies is played again.

    Raises:
      ZeroError: a shard could not be played; the others that are in hand are finished first.
    """
    total = sum(spec.num_games for spec in specs)
    done = dict.fromkeys(range(len(specs)), 0)

    def play(index: int) -> None:
        def report(games: int, _: int) -> None:
            done[index] = games
            if progress:
                progress(sum(done.values()), total)

        for attempt in range(1, MAX_TRIES + 1):
            try:
                executor.play(specs[index], report)
                return
            except WorkerError:
                if attempt == MAX_TRIES:
                    raise

    with ThreadPoolExecutor(num_threads, thread_name_prefix="shard") as threads:
        futures = [threads.submit(play, index) for index in range(len(specs))]
        finished, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        for future in waiting:
            future.cancel()
        for future in finished:
            future.result()


def _name(spec: ShardSpec) -> str:
    return f"{spec.kind} games {spec.first_game}-{spec.first_game + spec.num_games - 1}"
