"""64 workers that sleep instead of playing: what Prefect, its database and the store do, and how busy workers are.

    python -m infra.cluster up --workers 1
    python -m infra.cluster stop worker-1          it would play in earnest
    python -m infra.cluster exec --as worker-1 python -m benchmarks.scaling --out benchmarks/results/scaling.json

Real are Prefect's server on PostgreSQL, the S3 store, the code of `flows` that asks for runs and reads the store, and
the pool's worker: its questions, states and heartbeats. What is not: a worker's process sleeps for the time that its
start and its shards would take, then stores a shard and a receipt of the usual size. With `--faster` all that takes
less time, and so do the pauses between polls and between heartbeats: the servers have so much more to do. A worker is
busy while it plays; its starts and its waiting are what is lost.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import asyncpg  # type: ignore[import-untyped]
import httpx
from prefect import flow, get_client
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.events import emit_event
from prefect.settings import PREFECT_WORKER_QUERY_SECONDS, temporary_settings
from prefect.states import Completed, Running
from prefect.workers.process import ProcessJobConfiguration, ProcessWorkerResult
from s3fs import S3FileSystem  # type: ignore[import-untyped]

from benchmarks.setting import GO19, params_of
from flows import pool
from flows.players import Interruption
from flows.tasks import play_in_pool
from flows.worker import PlayerWorker
from infra.api import HOST
from infra.cluster_parts import Cluster, query_seconds, read_cluster
from infra.services import Home, LocalError
from zero.config.params import match_play
from zero.shards.spec import ShardReceipt, ShardSpec
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.manifests import GenerationId
from zero.storage.store import Store, open_store

HEARTBEAT_SECONDS = 30.0
SPREAD = 0.2
"""Shards take from 1 - so much to 1 + so much of the mean."""


class Load:
    """What all of it has cost so far: seconds asleep as a player, and requests by kind."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.played = 0.0
        self.starts = 0
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()

    def shard_seconds(self, spec: ShardSpec) -> float:
        """How long a shard takes: the same each time."""
        part = random.Random(spec.first_game).uniform(1.0 - SPREAD, 1.0 + SPREAD)
        return float(self.arguments.shard_seconds * part)

    def count(self, kind: str) -> None:
        """One request more."""
        with self.lock:
            self.requests[kind] += 1


class SleepingWorker(PlayerWorker):
    """The pool's worker, with a sleep in the place of the process."""

    load: Load
    store: Store
    forks = False

    async def run(
        self,
        flow_run: FlowRun,
        configuration: ProcessJobConfiguration,
        task_status: anyio.abc.TaskStatus[int] | None = None,
    ) -> ProcessWorkerResult:
        """Does what `python -m prefect.engine` asks of the server, and sleeps where it would work."""
        load, faster = self.load, self.load.arguments.faster
        if task_status:
            task_status.started(1)
        await anyio.sleep(pool.START_SECONDS)
        async with get_client() as client:
            await client.read_flow_run(flow_run.id)
            await client.read_flow(flow_run.flow_id)
            if flow_run.deployment_id:
                await client.read_deployment(flow_run.deployment_id)
            await client.set_flow_run_state(flow_run.id, Running())
            load.starts += 1
            async with anyio.create_task_group() as group:
                group.start_soon(beat, client, flow_run, HEARTBEAT_SECONDS / faster, load)
                for tree in flow_run.parameters["specs"]:
                    spec = ShardSpec.model_validate(tree)
                    seconds = load.shard_seconds(spec) / faster
                    await anyio.sleep(seconds)
                    load.played += seconds
                    await anyio.to_thread.run_sync(put, spec, self.store, seconds, self.name)
                group.cancel_scope.cancel()
            await client.set_flow_run_state(flow_run.id, Completed())
        return ProcessWorkerResult(status_code=0, identifier="asleep")


async def beat(client: PrefectClient, flow_run: FlowRun, pause: float, load: Load) -> None:
    """The heartbeats of a run, as Prefect's engine sends them, and its looks at its own state (flows/orphans.py)."""
    resource = {"prefect.resource.id": f"prefect.flow-run.{flow_run.id}", "prefect.resource.name": flow_run.name}
    flow = {"prefect.resource.id": f"prefect.flow.{flow_run.flow_id}", "prefect.resource.role": "flow"}
    while True:
        emit_event("prefect.flow-run.heartbeat", resource, related=[flow | {"prefect.resource.name": "zero-shard"}])
        load.count("Prefect heartbeat")
        await anyio.sleep(pause)
        await client.read_flow_run(flow_run.id)


def put(spec: ShardSpec, store: Store, seconds: float, worker: str) -> None:
    """Stores what a shard would have been, 4 KB a game, and its receipt."""
    if store.has_shard(spec.key()):
        return
    data = random.Random(spec.first_game).randbytes(4096 * spec.num_games)
    receipt = ShardReceipt(
        key=spec.key(),
        sha256=sha256_bytes(data),
        kind=spec.kind,
        first_game=spec.first_game,
        num_games=spec.num_games,
        num_evaluations=0,
        worker=worker,
        begun=time.time() - seconds,
        seconds=seconds,
        cpu_seconds=0.0,
        gpu_seconds=0.0,
        pid=1,
    )
    store.put_receipt(receipt.key, receipt.sha256, worker, canonical_json(receipt))
    store.put_shard(receipt.key, data)


def specs_of(arguments: argparse.Namespace) -> list[ShardSpec]:
    """The shards of a generation of so many games; of a lineage that nobody has played."""
    params = params_of(GO19, None)
    seed = int.from_bytes(uuid4().bytes[:6])
    return [
        ShardSpec(
            kind="selfplay",
            game=params.game,
            search=params.search,
            play=match_play(1, params.selfplay.num_simulations),
            weights=("a" * 64,),
            seed=seed,
            generation=1,
            first_game=first,
            num_games=min(arguments.games_a_shard, arguments.games - first),
            resign_threshold=-1.0,
            device=params.profile,
            engine="e" * 64,
            lock_file="f" * 64,
            profile={},
        )
        for first in range(0, arguments.games, arguments.games_a_shard)
    ]


@contextlib.contextmanager
def counted(load: Load) -> Iterator[None]:
    """Counts requests to Prefect's server and to the store meanwhile."""
    send, send_async, call = httpx.Client.send, httpx.AsyncClient.send, S3FileSystem._call_s3

    def counting(self: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        load.count(f"Prefect {path_of(request)}")
        return send(self, request, **options)

    async def counting_async(self: httpx.AsyncClient, request: httpx.Request, **options: Any) -> httpx.Response:
        load.count(f"Prefect {path_of(request)}")
        return await send_async(self, request, **options)

    async def counting_s3(self: S3FileSystem, method: str, *words: Any, **options: Any) -> Any:
        load.count(f"S3 {method}")
        return await call(self, method, *words, **options)

    httpx.Client.send, httpx.AsyncClient.send, S3FileSystem._call_s3 = counting, counting_async, counting_s3  # type: ignore[method-assign]
    try:
        yield
    finally:
        httpx.Client.send, httpx.AsyncClient.send, S3FileSystem._call_s3 = send, send_async, call  # type: ignore[method-assign]


async def database_of(cluster: Cluster) -> dict[str, int]:
    """How much the database of Prefect's server has done and holds."""
    password = cluster.secret("prefect-database-password")
    at = {"host": HOST, "port": cluster.ports["postgres"], "user": "prefect", "database": "prefect"}
    connection = await asyncpg.connect(**at, password=password)
    try:
        row = await connection.fetchrow(
            "SELECT xact_commit, tup_inserted, tup_updated, pg_database_size(datname) AS bytes"
            " FROM pg_stat_database WHERE datname = 'prefect'"
        )
    finally:
        await connection.close()
    return dict(row)


def path_of(request: httpx.Request) -> str:
    """A request without what differs from run to run."""
    parts = [part for part in request.url.path.split("/") if part not in ("", "api")]
    return f"{request.method} /" + "/".join("*" if len(part) == 36 else part for part in parts)


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Plays a generation by sleeping workers; what was seen."""
    cluster = read_cluster(Home(Path(os.environ["ZERO_HOME"]) / ".zero/cluster"))
    if cluster is None:
        raise LocalError("no cluster; start it as this module's first lines say")
    load = Load(arguments)
    pool.START_SECONDS = arguments.start_seconds / arguments.faster
    specs = specs_of(arguments)
    with open_store(Path.cwd()) as store:
        SleepingWorker.load, SleepingWorker.store = load, store

        @flow(name="scaling")
        def parent() -> int:
            return len(
                play_in_pool(
                    specs,
                    GenerationId(lineage="scaling", number=1, resign_threshold=-1.0),
                    "selfplay",
                    store,
                    Interruption(),
                    "scaling",
                )
            )

        workers = [
            SleepingWorker(work_pool_name=pool.POOL, name=f"asleep-{i}", limit=1) for i in range(arguments.workers)
        ]
        polls = {PREFECT_WORKER_QUERY_SECONDS: query_seconds(arguments.workers) / arguments.faster}
        async with anyio.create_task_group() as group:
            with temporary_settings(polls):  # what is started here keeps them
                for worker in workers:
                    group.start_soon(worker.start)
            while await anyio.to_thread.run_sync(pool.num_workers) < arguments.workers:
                await anyio.sleep(1.0)
            load.requests.clear()
            before = await database_of(cluster)
            begun = time.monotonic()
            with counted(load):
                played = await anyio.to_thread.run_sync(parent)
            wall = time.monotonic() - begun
            await anyio.sleep(5.0)  # PostgreSQL's counters are a little late
            after = await database_of(cluster)
            group.cancel_scope.cancel()
    return {
        "workers": arguments.workers,
        "games": arguments.games,
        "shards": len(specs),
        "shards_played": played,
        "runs": load.starts,
        "shard_seconds": arguments.shard_seconds,
        "start_seconds": arguments.start_seconds,
        "faster": arguments.faster,
        "wall_seconds": round(wall, 1),
        "busy": round(load.played / (arguments.workers * wall), 4),
        "database": {name: after[name] - before[name] for name in after},
        "requests": dict(load.requests.most_common()),
        "requests_a_second": round(sum(load.requests.values()) / wall, 1),
    }


def main(words: list[str]) -> int:
    """Measures and prints JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks.scaling", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--games", type=int, default=25_000)
    parser.add_argument("--games-a-shard", type=int, default=10)
    parser.add_argument("--shard-seconds", type=float, default=64.0, help="what a shard would take, on average")
    parser.add_argument("--start-seconds", type=float, default=8.0, help="what the start of a run would take")
    parser.add_argument("--faster", type=float, default=1.0, help="sleeps are so many times shorter")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(words)
    seen = json.dumps(asyncio.run(measure(arguments)), indent=1)
    if arguments.out:
        arguments.out.write_text(seen + "\n")
    print(seen)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
