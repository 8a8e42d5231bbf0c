"""What a shard costs on a Dask cluster beside its play: workers that sleep instead of playing.

    python -m benchmarks.sleeping_workers --workers 64 --shards 2500 --shard-seconds 32

A flow submits every shard at once, as `zero-generation` does, to a Dask scheduler with that many worker processes. All
of it is real (Prefect's server with SQLite, the scheduler, the workers, the tasks, progress) but for the child process
that would play: the worker sleeps instead. A worker is busy while it sleeps. `busy` is the share of its time, from the
first submission to the last result.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from distributed import Client, Worker
from prefect import flow
from prefect.settings import PREFECT_API_URL
from prefect.testing.utilities import prefect_test_harness

from benchmarks.setting import changed
from flows import workers as flow_workers
from flows.engine import PRIORITIES, Engine
from flows.workers import code_resource, play_shard
from zero.config.params import Params, parse_params, preset_text
from zero.stages.spec import ShardReceipt, ShardSpec, plan_shards
from zero.storage.files import canonical_json

GAMES_PER_SHARD = 10
START_SECONDS = 600
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
    flow_workers._children = Sleeper()  # type: ignore[assignment]


def sleeping_params(address: str, num_shards: int) -> Params:
    """Parameters of a lineage with that many shards, on the scheduler at that address."""
    changes = f"selfplay.num_games={num_shards * GAMES_PER_SHARD},selfplay.games_per_shard={GAMES_PER_SHARD}"
    return changed(
        parse_params(preset_text("smoke"), "smoke"), f"{changes},executor.kind=dask,executor.address={address}"
    )


@flow(name="sleeping-workers")
def play_all(address: str, num_shards: int, folder: Path) -> dict[str, float]:
    """Submits all shards and waits for them. Its parameters are small, because each task is sent with them."""
    params = sleeping_params(address, num_shards)
    specs = plan_shards(params, "selfplay", params.selfplay, 1, ("0" * 64,))
    with Engine(params, params.executor, folder, print) as engine:
        began, began_at = time.monotonic(), time.time()
        parameters = [
            {"spec": spec, "name": f"selfplay-{number:04d}", "folder": folder, "store_url": "none"}
            for number, spec in enumerate(specs)
        ]
        resources = [{code_resource(spec.kind, spec.engine, spec.lock_file): 1} for spec in specs]
        runs = engine.submit(play_shard, parameters, PRIORITIES["selfplay"], resources)
        submitted = time.monotonic() - began
        receipts: list[ShardReceipt] = engine.wait(runs)
        wall = time.monotonic() - began
    return {
        "shards_played": len({receipt.key for receipt in receipts}),
        "submit_seconds": round(submitted, 1),
        "wall_seconds": round(wall, 1),
        "slept_seconds": round(sum(receipt.seconds for receipt in receipts), 1),
        "seconds_to_first_shard": round(min(receipt.begun for receipt in receipts) - began_at, 1),
    }


@contextlib.contextmanager
def cluster(folder: Path, num_workers: int) -> Iterator[str]:
    """Address of a scheduler that knows all its workers."""
    found = folder / "scheduler.json"
    options = ["--nthreads=1", f"--nworkers={num_workers}", "--memory-limit=0", "--no-dashboard", "--host=127.0.0.1"]
    options += ["--preload=flows.workers", "--preload=benchmarks.sleeping_workers", f"--local-directory={folder}"]
    with contextlib.ExitStack() as stack:
        for name, words in (("scheduler", ["--port=0", "--host=127.0.0.1", "--no-dashboard"]), ("worker", options)):
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            command = [sys.executable, "-m", f"distributed.cli.dask_{name}", f"--scheduler-file={found}", *words]
            process = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        with Client(scheduler_file=str(found), timeout=START_SECONDS, set_as_default=False) as client:
            client.wait_for_workers(num_workers, timeout=START_SECONDS)
            address = str(client.scheduler_info()["address"])
        yield address


def main(
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 64,
    shards: Annotated[int, typer.Option(min=1, help=f"Shards of {GAMES_PER_SHARD} games.")] = 2500,
    shard_seconds: Annotated[float, typer.Option(min=0.0, help="Sleep per shard.")] = 32.0,
    out: Annotated[Path | None, typer.Option(help="File for the result, in addition to the console.")] = None,
) -> None:
    """Measures what a shard costs on a Dask cluster beside its play; prints JSON."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zero-sleeping-") as name, prefect_test_harness(START_SECONDS):
        # The workers inherit both.
        os.environ |= {SECONDS_VARIABLE: str(shard_seconds), "PREFECT_API_URL": PREFECT_API_URL.value() or ""}
        with cluster(Path(name), workers) as address:
            started = round(time.monotonic() - begun, 1)
            result = play_all(address, shards, Path(name))
    busy = round(result["slept_seconds"] / workers / result["wall_seconds"], 4)
    options = {"workers": workers, "shards": shards, "shard_seconds": shard_seconds, "start_seconds": started}
    text = canonical_json(result | options | {"busy": busy, "games": shards * GAMES_PER_SHARD}).decode()
    typer.echo(text, nl=False)
    if out:
        out.write_text(text)


if __name__ == "__main__":
    typer.run(main)
