"""Plays shards on this machine in long-lived child processes (their number: `num_local_processes`).

Each call of `play` uses one of them. If it dies, only its shard is lost: the call raises, and the next call that
needs it starts a new one.
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
from typing import Any, Self

from zero.config.params import Params
from zero.errors import WorkerError, ZeroError
from zero.network.gpu_lock import lock_gpus, visible_gpus
from zero.stages.spec import ShardReceipt, ShardSpec

MAX_TRIES = 4
"""Tries of a shard. If its child dies in each of them, the stage fails; a flow then runs the stage again."""
PROCESSES_PER_GPU = 2
"""On an H100, two processes of `go9-gpu` evaluated 241,000 to 261,000 positions/s. One evaluated 156,000 to 159,000,
and 228,000 to 242,000 with as many games and threads as the two (docs/gpu.md)."""
CLOSE_SECONDS = 10.0
LOG_TAIL_BYTES = 2000

Progress = Callable[[int, int], None]
"""Called with (done, total), for example games. Not that of `zero.progress`, which is no source of a stage: a change to
the bars must not change the code digest."""


class ShardFailedError(ZeroError):
    """The worker rejected the shard; the message has its reason."""


def num_local_processes(params: Params) -> int:
    """Processes of the local executor: the parameter, or one per `selfplay_threads` cores, or two per GPU."""
    if params.executor.num_processes:
        return params.executor.num_processes
    if params.profile.device == "cuda":
        return PROCESSES_PER_GPU * max(1, len(visible_gpus()))  # asking PyTorch would take seconds to import it
    return max(1, len(os.sched_getaffinity(0)) // params.profile.selfplay_threads)


class LocalExecutor:
    """A pool of workers that run the code of `folder`; a context manager, whose exit ends them."""

    def __init__(self, folder: Path, num_processes: int, store_url: str, num_gpus: int = 0) -> None:
        """Starts no process; the first shard that needs a worker starts it.

        Args:
          folder: checkout whose code plays.
          num_processes: shards played at once; further calls wait.
          store_url: the store that the shards go to.
          num_gpus: GPUs to use at most, of those that this process sees. Workers get them in turn. This executor
            locks them from the first shard to `close`. 0: it assigns no GPUs.
        """
        self._folder = folder
        self.store_url = store_url
        """The store that the shards go to."""
        self._num_gpus = num_gpus
        self._workers: dict[int, _Worker] = {}
        self._free: queue.LifoQueue[int] = queue.LifoQueue()  # LIFO, so that few shards use few workers, which are warm
        self._lock = Lock()
        self._closed = False
        self._gpus: list[str] = []
        self._gpu_locks: list[Connection] = []
        self._gpu_lock_stack = ExitStack()
        self._gpus_lock = Lock()
        for slot in reversed(range(num_processes)):  # slot 0 first
            self._free.put(slot)

    def play(self, spec: ShardSpec, progress: Progress | None = None) -> ShardReceipt:
        """Plays one shard into the store; blocks until it is done. Thread-safe.

        Raises:
          WorkerError: the process that played the shard died; a retry may succeed.
          ZeroError: the shard cannot be played; a retry would fail too.
        """
        slot = self._free.get()
        try:
            worker = self._workers.get(slot)
            if worker is None or not worker.is_alive():
                worker = self._start(slot)
            try:
                return worker.play(spec, progress)
            except ShardFailedError:
                raise
            except BaseException:  # the worker is dead or in the middle of a shard, so its pipe cannot be used again
                worker.close()
                raise
        finally:
            self._free.put(slot)

    def close(self) -> None:
        """Ends the workers; shards in progress are lost."""
        with self._lock:
            self._closed = True
            workers = list(self._workers.values())
        for worker in workers:  # first all inputs, so that the workers end at the same time
            worker.close_input()
        for worker in workers:
            worker.close()
        # A thread that waits for GPUs has this lock. It gives up at its next attempt, because `_closed` is set now.
        with self._gpus_lock:
            self._gpu_lock_stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, slot: int) -> "_Worker":
        # Outside `_lock`: another program may use the GPUs for hours, and `close` must get the lock meanwhile.
        self._take_gpus()
        gpu = self._gpus[slot % len(self._gpus)] if self._gpus else None
        with self._lock:
            self._check_open()
            if slot in self._workers:  # it died between two shards
                self._workers[slot].close()
            worker = self._workers[slot] = _Worker(self._folder, self.store_url, gpu, self._gpu_locks)
        return worker

    def _take_gpus(self) -> None:
        """Locks the GPUs. One thread waits for them; the other threads wait for that thread."""
        with self._gpus_lock:
            if self._num_gpus and not self._gpus:
                gpus = visible_gpus()[: self._num_gpus]
                self._gpu_locks = self._gpu_lock_stack.enter_context(lock_gpus(gpus, self._check_open))
                # Never empty, so that the next worker does not take the locks again.
                self._gpus = gpus or [""]

    def _check_open(self) -> None:
        if self._closed:
            raise ShardFailedError("the executor was closed; no shard is started")


class _Worker:
    """A child process and its pipes."""

    def __init__(self, folder: Path, store_url: str, gpu: str | None, gpu_locks: Sequence[Connection]) -> None:
        environment = {**os.environ, "ZERO_STORE": store_url, "PYTHONUNBUFFERED": "1"}
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        # A file, not a pipe: a pipe that no one reads blocks the child when it is full.
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "zero", "worker"],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                pass_fds=[lock.fileno() for lock in gpu_locks],  # the GPU locks are held until the child ends
            )
        except OSError as error:  # for example, this user may not have more processes at present
            self._log.close()
            raise WorkerError(
                f"cannot start a worker in {folder}: {error.strerror}; check that the folder exists, or end other "
                "processes"
            ) from None

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def play(self, spec: ShardSpec, progress: Progress | None) -> ShardReceipt:
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.write(json.dumps(spec.model_dump(mode="json")) + "\n")
            self._process.stdin.flush()
            # The end of the output means that the child has ended; the status below tells how.
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
        except BrokenPipeError:
            pass  # it ended before it read the shard
        except (OSError, ValueError) as error:
            raise WorkerError(
                f"the worker (pid {self._process.pid}) gave an invalid reply: {error}{self._log_tail()}"
            ) from None
        status = self._process.wait()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise WorkerError(f"the worker (pid {self._process.pid}) {how} while playing {spec.name}{self._log_tail()}")

    def close_input(self) -> None:
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()

    def close(self) -> None:
        self.close_input()
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
        return f"; end of its log: {lines[-1]}" if lines else ""


def play_all(
    folder: Path, params: Params, specs: Sequence[ShardSpec], store_url: str, progress: Progress | None = None
) -> None:
    """Plays all shards with the code of the checkout `folder`; a shard whose worker dies is played again.

    Raises:
      ZeroError: a shard could not be played; shards in progress are finished first.
    """
    if not specs:
        return
    num_processes = min(num_local_processes(params), len(specs))
    num_gpus = num_processes if params.profile.device == "cuda" else 0
    total = sum(spec.num_games for spec in specs)
    done = dict.fromkeys(range(len(specs)), 0)

    def play(executor: LocalExecutor, index: int) -> None:
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

    with (
        LocalExecutor(folder, num_processes, store_url, num_gpus) as executor,
        ThreadPoolExecutor(num_processes, thread_name_prefix="shard") as threads,
    ):
        # Threads only wait for children here; each has at most one shard in play.
        try:
            futures = [threads.submit(play, executor, index) for index in range(len(specs))]
            finished, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        except BaseException:  # Ctrl-C
            # Before the pool waits for its threads: they would start workers again, and play all the shards.
            executor.close()
            raise
        for future in waiting:
            future.cancel()
        for future in finished:
            future.result()
