"""Workers of a Dask cluster that sleep instead of playing, for `benchmarks.workers`.

A process can run several workers, each with a thread of its own, so that hundreds fit on a small machine.
"""

import asyncio
import hashlib
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
from distributed import Worker

from flows import workers as flow_workers
from flows.engine import IDLE_SETTINGS
from infra.local import HOST
from zero.stages.spec import ShardReceipt, ShardSpec
from zero.stages.worker import finished_receipt
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.store import Store

SECONDS_VARIABLE = "ZERO_BENCHMARK_SHARD_SECONDS"
LENGTHS = 0.2
"""Shards differ by up to this fraction from their mean length."""
BYTES_PER_GAME = 4096
STARTS_FILE = "starts.txt"
"""Has a line for each time that a worker began a shard."""


class Sleeper:
    """Takes the place of the child processes of the workers in this process."""

    def __init__(self) -> None:
        """Takes the mean length of a shard and the store from the environment."""
        self._seconds, self._store = float(os.environ[SECONDS_VARIABLE]), Store(os.environ["ZERO_STORE"])

    @contextmanager
    def executor(self, *_: object) -> Iterator["Sleeper"]:
        """Itself, for every lineage."""
        yield self

    def play(self, spec: ShardSpec, progress: Callable[[int, int], None]) -> ShardReceipt:
        """Sends the requests of `play_into_store` to the store, but sleeps instead of playing."""
        if receipt := finished_receipt(spec, self._store):
            return receipt
        for digest in spec.weights:
            self._store.get_weights(digest)
        key, begun = spec.key(), time.time()
        with Path(self._store.url).with_name(STARTS_FILE).open("a") as starts:
            starts.write(f"{key}\n")
        length = self._seconds * (1 + LENGTHS * (int(key[:8], 16) / 2**31 - 1))
        for game in range(spec.num_games):
            time.sleep(length / spec.num_games)
            progress(game + 1, spec.num_games)
        data = shard_bytes(spec)
        receipt = ShardReceipt(
            key=key,
            sha256=sha256_bytes(data),
            kind=spec.kind,
            first_game=spec.first_game,
            num_games=spec.num_games,
            num_evaluations=0,
            worker=f"{os.getpid()}-{threading.get_ident()}",
            begun=begun,
            seconds=time.time() - begun,
            cpu_seconds=0.0,
            gpu_seconds=0.0,
            pid=os.getpid(),
        )
        self._store.put_receipt(key, receipt.sha256, receipt.worker, canonical_json(receipt))
        self._store.put_shard(key, data)
        return receipt

    def close(self) -> None:
        """Does nothing: there is no process to end."""


def shard_bytes(spec: ShardSpec) -> bytes:
    """Content of a shard, which depends on its specification alone."""
    return hashlib.shake_128(spec.key().encode()).digest(spec.num_games * BYTES_PER_GAME)


def run_workers(scheduler: str, count: int) -> None:
    """Runs workers in this process until the scheduler ends."""
    flow_workers._children = Sleeper()  # type: ignore[assignment]
    options = {"nthreads": 1, "memory_limit": 0, "preload": ["flows.workers"], "host": HOST, "dashboard": False}
    options |= {"dashboard_address": f"{HOST}:0", "local_directory": str(Path(os.environ["ZERO_STORE"]).parent)}

    dask.config.set(IDLE_SETTINGS)

    async def serve() -> None:
        workers = [Worker(scheduler, **options) for _ in range(count)]
        await asyncio.gather(*workers)
        await asyncio.gather(*(worker.finished() for worker in workers))

    asyncio.run(serve())


class Workers:
    """Processes that run workers; a context manager, whose exit kills them."""

    def __init__(self, scheduler: str, num_workers: int, num_processes: int) -> None:
        """Starts the processes."""
        self._context = multiprocessing.get_context("forkserver")  # it imports once for all of them
        self._context.set_forkserver_preload(["__main__", "benchmarks.sleepers"])
        self._arguments, self.num_killed = (scheduler, num_workers // num_processes), 0
        self.processes = [self._start() for _ in range(num_processes)]

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for index in range(len(self.processes)):
            self._kill(index)

    def replace_every(self, seconds: float, ended: threading.Event) -> None:
        """Kills a process and starts another one at that interval, until the event is set; 0: never."""
        while not ended.wait(seconds or None):
            index = random.randrange(len(self.processes))
            self._kill(index)
            self.processes[index] = self._start()
            self.num_killed += 1

    def _start(self) -> Any:
        process = self._context.Process(target=run_workers, args=self._arguments)
        process.start()
        return process

    def _kill(self, index: int) -> None:
        self.processes[index].kill()
        self.processes[index].join()
