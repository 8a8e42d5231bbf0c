"""`python -m benchmarks.workers`: what a shard costs on a Dask cluster beside its play, with workers that sleep.

The flow, Prefect's server, the scheduler, the tasks, their progress and the store are real. Only the child process of a
worker, which would play, is replaced by a sleep (`benchmarks.sleepers`).

With `--kill-seconds` a process is killed and replaced at that interval. At the end the store must have every shard,
with the bytes that its specification gives.
"""

import contextlib
import itertools
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import psutil
import typer
import yaml
from distributed import Client
from distributed.utils import open_port
from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.settings import PREFECT_API_URL, temporary_settings

from benchmarks.results import Results, Row, Spread, describe_machine, markdown, number, run_command
from benchmarks.setting import changed
from benchmarks.sleepers import SECONDS_VARIABLE, STARTS_FILE, Workers, shard_bytes
from flows import tasks
from flows import workers as flow_workers
from flows.engine import ALLOWED_FAILURES, IDLE_SETTINGS, Engine
from flows.reports import Progress
from infra.local import HOST, QUIET, address
from infra.pools import answers
from infra.processes import log_end
from zero.config.params import Params, load_params, parse_params, preset_text
from zero.errors import ServerError, StorageError
from zero.stages.collect import missing_shards
from zero.stages.spec import ShardReceipt, ShardSpec, plan_shards
from zero.storage.files import sha256_bytes, write_manifest
from zero.storage.store import Store

START_SECONDS = 600.0
WEIGHTS = bytes(100_000)


@contextlib.contextmanager
def started(folder: Path, *command: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python module that runs, with its output in a file."""
    environment = os.environ | QUIET | settings
    with (folder / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


@task(task_run_name="plan-{stage}", cache_policy=NO_CACHE)
def plan(turn: tasks.Turn, stage: str) -> tasks.Specs:
    """Takes the place of the task of this name, which needs a lineage."""
    return tasks.Specs(missing_shards(all_shards(load_params(turn.workspace)), Store(turn.store_url)))


def all_shards(params: Params) -> list[ShardSpec]:
    """The shards to play."""
    return plan_shards(params, "selfplay", 1, (sha256_bytes(WEIGHTS),))


@flow(name="benchmark-workers")
def play_by_prefect(folder: Path) -> None:
    """Plays all shards as `zero-generation` does."""
    tasks.plan = plan
    params, logger = load_params(folder), get_run_logger()
    turn = tasks.Turn(folder, "benchmark", 1, os.environ["ZERO_STORE"])
    engine = Engine(params, params.executor, folder, logger.warning)
    with Progress("benchmark", logger.info) as progress, engine:
        tasks.play_missing_shards(turn, "selfplay", engine, progress, after=())


def play_by_dask(folder: Path) -> None:
    """Plays all shards without Prefect, to compare."""
    params, store_url = load_params(folder), os.environ["ZERO_STORE"]
    with Client(params.executor.address, set_as_default=False) as client:
        futures = []
        for spec in missing_shards(all_shards(params), Store(store_url)):
            resources = {flow_workers.code_resource(spec.kind, spec.engine, spec.lock_file): 1}
            key = f"play-{spec.key()}"
            futures.append(client.submit(flow_workers.play_here, spec, None, store_url, key=key, resources=resources))
        client.gather(futures)


def measured(params: Params, pids: dict[str, int], crew: Workers, play: Callable[[], None], every: float) -> list[Row]:
    """Plays all shards; what runs is running already.

    Raises:
      StorageError: a shard is missing from the store, or has other bytes than its specification gives.
    """
    folder = Path(os.environ["ZERO_STORE"]).parent

    def used() -> dict[str, float]:
        running = {name: [pid] for name, pid in pids.items()} | {"workers": [each.pid for each in crew.processes]}
        times = {name: [psutil.Process(pid).cpu_times() for pid in each] for name, each in running.items()}
        return {name: sum(each.user + each.system for each in all_times) for name, all_times in times.items()}

    ended = threading.Event()
    killer = threading.Thread(target=crew.replace_every, args=(every, ended))
    # Not a monotonic clock: it is compared with the times in receipts, which other processes write.
    before, load_before, began = used(), prefect_load(folder), time.time()
    killer.start()
    try:
        play()
    finally:
        ended.set()
        killer.join()
    wall = time.time() - began
    cpu, load = {name: seconds - before[name] for name, seconds in used().items()}, prefect_load(folder)
    if crew.num_killed:
        del cpu["workers"]  # that of the killed processes is not known
    receipts = [checked_receipt(spec, Store(os.environ["ZERO_STORE"])) for spec in all_shards(params)]
    count, num_workers = len(receipts), params.executor.num_processes
    firsts, gaps = times_of_workers(receipts)
    slept = sum(receipt.seconds for receipt in receipts)
    return [
        new_row("busy", "% of the workers' time", 100 * slept / num_workers / wall),
        new_row("busy from its first shard to its last", "% of a worker's time", 100 * slept / (slept + sum(gaps))),
        new_row("from the start to a worker's first shard", "s", *(first - began for first in firsts)),
        new_row("from a free worker to its next shard", "s", *gaps),
        *(new_row(f"processor time, {name}", "ms a shard", 1000 * cpu[name] / count) for name in cpu),
        new_row("processor time, scheduler", "% of a core", 100 * cpu["scheduler"] / wall),
        *(new_row(name, "a shard", (load[name] - load_before[name]) / count) for name in load),
        new_row("killed processes", "", crew.num_killed),
        new_row("shards begun again", "", len((folder / STARTS_FILE).read_text().split()) - count),
    ]


def checked_receipt(spec: ShardSpec, store: Store) -> ShardReceipt:
    """The receipt of a shard whose bytes are right."""
    shard = store.get_shard(spec.key())
    if shard is None or shard.data != shard_bytes(spec):
        raise StorageError(f"{spec.name}: the shard is {'wrong' if shard else 'missing'} in the store {store.url}")
    return ShardReceipt.model_validate_json(store.get_receipts(spec.key())[0])


def times_of_workers(receipts: Sequence[ShardReceipt]) -> tuple[list[float], list[float]]:
    """When each worker began its first shard, and the seconds from the end of a shard to the next one."""
    firsts, gaps = [], []
    ordered = sorted(receipts, key=lambda receipt: (receipt.worker, receipt.begun))
    for _, group in itertools.groupby(ordered, key=lambda receipt: receipt.worker):
        own = list(group)
        firsts.append(own[0].begun)
        gaps += [later.begun - earlier.begun - earlier.seconds for earlier, later in itertools.pairwise(own)]
    return firsts, gaps


def prefect_load(folder: Path) -> dict[str, int]:
    """Requests that Prefect's server has answered, and the rows of its database if that is SQLite."""
    log, database = folder / "prefect.log", folder / "prefect.db"
    load = {"requests to Prefect's server": log.read_text().count(" HTTP/1.1")} if log.exists() else {}
    if database.exists():
        with contextlib.closing(sqlite3.connect(database)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            counts = [connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in tables]
        load["rows in Prefect's database"] = sum(counts)
    return load


def new_row(name: str, unit: str, *values: float) -> Row:
    """A row with the median of the values, and their 5 % and 95 % quantiles; without values it has no figure."""
    ordered, figure = sorted(values), None
    if ordered:
        median, low, high = (ordered[round(quantile * (len(ordered) - 1))] for quantile in (0.5, 0.05, 0.95))
        figure = Spread(median=median, low=low, high=high)
    return Row(name=name, work="", unit=unit, figure=figure)


def main(
    workers: Annotated[int, typer.Option(min=1, help="Workers.")] = 64,
    processes: Annotated[int, typer.Option(min=1, help="Processes that run them.")] = 16,
    shards: Annotated[int, typer.Option(min=2, help="Shards of the generation.")] = 500,
    games: Annotated[int, typer.Option(min=1, help="Games of a shard; each reports progress.")] = 10,
    seconds: Annotated[float, typer.Option(min=0.0, help="Mean length of a shard.")] = 32.0,
    kill_seconds: Annotated[float, typer.Option(min=0.0, help="Interval of the kills; 0: no kills.")] = 0.0,
    prefect: Annotated[bool, typer.Option(help="Shards are Prefect tasks, or plain Dask tasks.")] = True,
    out: Annotated[Path | None, typer.Option(help="JSON file for the results.")] = None,
) -> None:
    """Plays a generation with workers that sleep, and prints what it cost.

    The environment sets Prefect up, such as PREFECT_SERVER_DATABASE_CONNECTION_URL; by default its database is SQLite.
    """
    if workers % processes:
        typer.echo(f"workers: {workers} workers in {processes} processes; choose a divisor of {workers}", err=True)
        raise typer.Exit(1)
    settings = {name: value for name, value in locals().items() if name != "out"}
    machine = describe_machine()
    with tempfile.TemporaryDirectory(prefix="zero-workers-") as name, contextlib.ExitStack() as stack:
        folder, ports = Path(name), {"scheduler": str(open_port()), "prefect": str(open_port())}
        api, scheduler = f"{address(int(ports['prefect']))}/api", f"tcp://{HOST}:{ports['scheduler']}"
        database = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder}/prefect.db"}
        os.environ |= QUIET | {**database, **os.environ, SECONDS_VARIABLE: str(seconds), "PREFECT_API_URL": api}
        os.environ |= {"ZERO_STORE": f"{folder}/store", "PREFECT_HOME": name, "PREFECT_PLUGINS_ENABLED": "false"}
        os.environ["DASK_LOGGING__DISTRIBUTED"] = "warning"
        changes = f"selfplay.num_games={shards * games},selfplay.games_per_shard={games},executor.kind=dask"
        changes += f",executor.address={scheduler},executor.num_processes={workers}"
        params = changed(parse_params(preset_text("smoke"), "smoke"), changes)
        (folder / "params.yaml").write_text(yaml.safe_dump(params.model_dump(mode="json")))
        Store(os.environ["ZERO_STORE"]).put_weights(WEIGHTS)
        place = ("--host", HOST, "--port")
        pids = {"flow": os.getpid()}
        command = ("distributed.cli.dask_scheduler", *place, ports["scheduler"], "--dashboard-address=:0")
        of_scheduler = {"distributed.scheduler.allowed-failures": ALLOWED_FAILURES, **IDLE_SETTINGS}
        dask_settings = {
            "DASK_" + key.upper().replace(".", "__").replace("-", "_"): str(value)
            for key, value in of_scheduler.items()
        }
        pids["scheduler"] = stack.enter_context(started(folder, *command, **dask_settings)).pid
        if prefect:
            logged = {"PREFECT_SERVER_LOGGING_LEVEL": "INFO", "COLUMNS": "1000"}
            words = ("prefect", "server", "start", *place, ports["prefect"])
            server = stack.enter_context(started(folder, *words, **logged))
            pids["Prefect's server"] = server.pid
            while not answers(f"{api}/health"):
                if server.poll() is not None:
                    raise ServerError(f"Prefect's server ended while it started; {log_end(folder / 'prefect.log')}")
                time.sleep(0.5)
            stack.enter_context(temporary_settings({PREFECT_API_URL: api}))
        crew = stack.enter_context(Workers(scheduler, workers, processes))
        with Client(scheduler, timeout=START_SECONDS, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=START_SECONDS)
        play = play_by_prefect if prefect else play_by_dask
        rows = measured(params, pids, crew, lambda: play(folder), kill_seconds)
    results = Results(machine=machine, settings=settings, rows=tuple(rows))
    if out:
        write_manifest(out.parent, results, out.name)
    lines = [
        (row.name, number(row.figure), f"{row.figure.low:.4g}", f"{row.figure.high:.4g}", row.unit)
        for row in rows
        if row.figure
    ]
    typer.echo(
        f"{settings}, load {machine['load']} before\n\n" + markdown(("", "median", "5 %", "95 %", "unit"), lines)
    )


if __name__ == "__main__":
    from benchmarks.workers import main as imported  # Dask and Prefect send functions by the name of their module

    run_command(imported, "workers")
