"""What a shard costs on a Dask cluster beside its play: workers that sleep instead of playing.

    python -m benchmarks.sleeping_workers --workers 64 --shards 2500 --shard-seconds 32

A flow submits every shard at once, as `zero-generation` does, to a Dask scheduler with that many worker processes. All
of it is real (Prefect's server with SQLite, the scheduler, the workers, the tasks, progress) but for the child process
that would play: the worker sleeps instead. A worker is busy while it sleeps. `busy` is the share of its time, from the
first submission to the last result.
"""

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
from distributed import Client, Worker
from prefect import flow
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows import workers
from flows.engine import PRIORITIES, Engine
from flows.workers import code_resource, play_shard
from zero.config.params import Params, parse_params, preset_text
from zero.stages.spec import ShardReceipt, ShardSpec, plan_shards

HOST = "127.0.0.1"
GAMES_PER_SHARD = 10
START_SECONDS = 600.0
SECONDS_VARIABLE = "ZERO_BENCHMARK_SHARD_SECONDS"
REPORTS_PER_SHARD = 10


class Sleeper:
    """Stands for the child process of a worker."""

    def executor(self, *_: object) -> "Sleeper":
        """Itself, for every lineage."""
        return self

    def play(self, spec: ShardSpec, progress: Callable[[int, int], None]) -> ShardReceipt:
        """Sleeps and reports progress, as a child does."""
        seconds, begun = float(os.environ[SECONDS_VARIABLE]), time.time()
        for part in range(REPORTS_PER_SHARD):
            time.sleep(seconds / REPORTS_PER_SHARD)
            progress(spec.num_games * (part + 1) // REPORTS_PER_SHARD, spec.num_games)
        return ShardReceipt(
            key=spec.key(),
            sha256=spec.key(),
            kind=spec.kind,
            first_game=spec.first_game,
            num_games=spec.num_games,
            num_evaluations=0,
            worker="sleeper",
            begun=begun,
            seconds=time.time() - begun,
            cpu_seconds=0.0,
            gpu_seconds=0.0,
            pid=os.getpid(),
        )

    def close(self) -> None:
        """Nothing to end."""


def dask_setup(_: Worker) -> None:
    """Dask calls this in a worker with this preload."""
    workers._children = Sleeper()  # type: ignore[assignment]


def sleeping_params(address: str, num_shards: int) -> Params:
    """Parameters of a lineage with that many shards, on the scheduler at that address."""
    params = parse_params(preset_text("smoke"), "smoke")
    changes = {"num_games": num_shards * GAMES_PER_SHARD, "games_per_shard": GAMES_PER_SHARD}
    executor = params.executor.model_copy(update={"kind": "dask", "address": address})
    return params.model_copy(update={"selfplay": params.selfplay.model_copy(update=changes), "executor": executor})


@flow(name="sleeping-workers")
def play_all(address: str, num_shards: int, folder: Path) -> dict[str, Any]:
    """Submits all shards and waits for them. Its parameters are small, because each task is sent with them."""
    params = sleeping_params(address, num_shards)
    specs = plan_shards(params, "selfplay", params.selfplay, 1, ("0" * 64,))
    with Engine(params, params.executor, folder, print) as engine:
        began = time.monotonic()
        parameters = [
            {"spec": spec, "name": f"selfplay-{number:04d}", "folder": folder, "store_url": "none"}
            for number, spec in enumerate(specs)
        ]
        resources = [{code_resource(spec.kind, spec.engine, spec.lock_file): 1} for spec in specs]
        runs = engine.submit(play_shard, parameters, PRIORITIES["selfplay"], resources)
        submitted = time.monotonic() - began
        receipts: list[ShardReceipt] = engine.wait(runs)
        wall = time.monotonic() - began
    firsts = sorted(receipt.begun for receipt in receipts)
    return {
        "shards_played": len({receipt.key for receipt in receipts}),
        "submit_seconds": round(submitted, 1),
        "wall_seconds": round(wall, 1),
        "slept_seconds": round(sum(receipt.seconds for receipt in receipts), 1),
        "seconds_to_first_shard": round(firsts[0] - (time.time() - wall), 1),
    }


@contextlib.contextmanager
def servers(folder: Path, num_workers: int, shard_seconds: float) -> Iterator[tuple[str, dict[str, psutil.Process]]]:
    """Address of a scheduler that knows all its workers, and the processes. Sets PREFECT_API_URL."""
    prefect, scheduler = free_port(), free_port()
    os.environ |= {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder}/prefect.db",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "true",
        "PREFECT_API_URL": f"http://{HOST}:{prefect}/api",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        SECONDS_VARIABLE: str(shard_seconds),
    }
    dask = ["--nthreads=1", f"--nworkers={num_workers}", "--memory-limit=0", "--no-dashboard", f"--host={HOST}"]
    dask += ["--preload=flows.workers", "--preload=benchmarks.sleeping_workers", f"--local-directory={folder}"]
    commands = {
        "prefect": ["prefect", "server", "start", f"--host={HOST}", f"--port={prefect}"],
        "scheduler": ["distributed.cli.dask_scheduler", f"--host={HOST}", f"--port={scheduler}", "--no-dashboard"],
        "workers": ["distributed.cli.dask_worker", f"tcp://{HOST}:{scheduler}", *dask],
    }
    with contextlib.ExitStack() as stack:
        found = {}
        for name, words in commands.items():
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen([sys.executable, "-m", *words], stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            found[name] = psutil.Process(process.pid)
        address = f"tcp://{HOST}:{scheduler}"
        wait_for_prefect(os.environ["PREFECT_API_URL"])
        with Client(address, timeout=START_SECONDS, set_as_default=False) as client:
            client.wait_for_workers(num_workers, timeout=START_SECONDS)
        yield address, found


def wait_for_prefect(api: str) -> None:
    """Returns once the server answers."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            httpx.get(f"{api}/health", trust_env=False).raise_for_status()
            return
        except httpx.HTTPError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)


def cpu_seconds(process: psutil.Process) -> float:
    """Processor time of a process and its descendants."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def free_port() -> int:
    """A port that is not in use."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Prints the measurement as JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks.sleeping_workers", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--shards", type=int, default=2500, help=f"of {GAMES_PER_SHARD} games")
    parser.add_argument("--shard-seconds", type=float, default=32.0)
    parser.add_argument("--out", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zero-sleeping-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        address, processes = stack.enter_context(servers(folder, options.workers, options.shard_seconds))
        started = time.monotonic() - began
        before = {part: cpu_seconds(process) for part, process in processes.items()}
        own = psutil.Process().cpu_times().user
        with temporary_settings({PREFECT_API_URL: os.environ["PREFECT_API_URL"]}):  # this process has read its own
            result = play_all(address, options.shards, folder)
        seconds = {part: round(cpu_seconds(process) - before[part], 1) for part, process in processes.items()}
        result |= {
            "workers": options.workers,
            "shards": options.shards,
            "games": options.shards * GAMES_PER_SHARD,
            "shard_seconds": options.shard_seconds,
            "start_seconds": round(started, 1),
            "busy": round(result["slept_seconds"] / options.workers / result["wall_seconds"], 4),
            "cpu_seconds": seconds | {"flow": round(psutil.Process().cpu_times().user - own, 1)},
            "database_bytes": (folder / "prefect.db").stat().st_size,
        }
    text = json.dumps(result, indent=1, sort_keys=True) + "\n"
    print(text, end="")
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
