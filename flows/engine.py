"""Runs Prefect tasks on a Dask cluster: one on this machine, or one that runs elsewhere.

The local cluster has a worker process per core or GPU, exists as long as the flow needs it, and encrypts with temporary
certificates. A cluster elsewhere is given by the address of its scheduler; Dask's own settings name the certificates.
"""

import asyncio
import contextlib
import gc
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import dask
from distributed import Nanny, Scheduler, SpecCluster
from distributed.core import Status, rpc
from distributed.scheduler import KilledWorker
from distributed.security import Security
from prefect import State, Task, get_run_logger
from prefect.client.schemas.objects import TaskRunResult
from prefect.context import SettingsContext, get_settings_context
from prefect_dask import DaskTaskRunner
from prefect_dask.task_runners import PrefectDaskFuture

from flows.workers import PROGRESS_TOPIC
from zero.config.params import ExecutorParams, Params
from zero.errors import ServerError
from zero.network.gpu_lock import visible_gpus
from zero.stages.executor import num_local_processes

PRIORITIES = {"gating": 30, "training": 20, "selfplay": 10, "selfplay-ahead": 0}
"""Priority of a task on Dask; higher runs first."""
CONNECT_SECONDS = 20.0
OUTAGE_SECONDS = 600.0
"""Time that a flow waits for a scheduler that does not answer."""
NO_WORKER_SECONDS = 30.0
"""Interval of the warning that no worker can run the tasks."""
TASKS_PER_WORKER = 3
"""Tasks of a flow that Dask has at a time for each worker: one that runs, and others that can start at once. Games
played ahead do not count.

Dask sends a task that needs resources to a worker immediately, and a task takes about 90 KB of the scheduler's memory.
"""
ALLOWED_FAILURES = 20
"""Deaths of workers that a task survives: Dask's setting `distributed.scheduler.allowed-failures`, 3 by default.

Each task at a worker that dies counts as one that may have killed it, also if it had not begun. But games are played by
a child process of the worker, so a shard hardly ever kills its worker. The files of `infra` set it for other clusters.
"""
START_SECONDS = 300
"""Time that a local worker has to start; on a busy machine its imports take a minute."""
IDLE_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
}
"""Settings of Dask for a worker, which only waits while its child plays: with Dask's own it takes 1.8 % of a core, with
these 0.1 %. The compose files and the manifests of Kubernetes have them too."""
LOCAL_SETTINGS = {"distributed.deploy.lost-worker-timeout": "365 days", **IDLE_SETTINGS}
"""Settings of Dask while there is a local cluster. By default it closes a worker's nanny for good if the worker is not
back 15 seconds after it was killed."""
POLL_SECONDS = 0.2
RETRY_SECONDS = 5.0
LOST = (KilledWorker, OSError)
"""Errors of Dask after which the missing work is submitted again. Its CommClosedError is an OSError. Without a
scheduler all futures of its client are cancelled, which is another error."""

ResultT = TypeVar("ResultT")
Run: TypeAlias = PrefectDaskFuture[Any]
Fetch: TypeAlias = Future[State[Any]]
Report = Callable[[dict[str, tuple[int, int]]], None]
"""Called repeatedly with (done, total) of each part that reported progress: a shard's key, or a `training_part`."""


class Engine:
    """Submits Prefect tasks to Dask; a context manager. Nothing is started before the first task."""

    def __init__(self, params: Params, executor: ExecutorParams, log_dir: Path, warn: Callable[[str], None]) -> None:
        """Takes the settings.

        Args:
          params: of the lineage; they give the number and the device of local workers.
          executor: which cluster.
          log_dir: folder for the temporary files of local workers.
          warn: called with one line about trouble that a person should know of.
        """
        self.is_local = executor.kind == "local"
        self._params, self._executor, self._log_dir, self._warn = params, executor, log_dir, warn
        self._stack = contextlib.ExitStack()
        self._runner: DaskTaskRunner | None = None
        self._local: SpecCluster | None = None
        self._progress: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what runs and ends the local cluster; the next task starts it again."""
        self._runner = None
        with contextlib.suppress(OSError):
            self._stack.close()

    def submit(
        self,
        task: Task[..., ResultT],
        parameters: Sequence[dict[str, Any]],
        priority: int,
        resources: Sequence[dict[str, int]],
        after: State[Any] | None = None,
    ) -> Iterator[Run]:
        """Submits a task when its run is taken; a cluster elsewhere runs it on a worker that has its resources.

        Args:
          task: the task; if `after` is given, it must have a parameter `spec`.
          parameters: of each run.
          priority: on the scheduler.
          resources: that each run needs.
          after: the finished task whose data they read, for Prefect's graph.

        Yields:
          One run per parameters.

        Raises:
          ServerError: the scheduler does not answer.
        """
        # Not `wait_for`: the worker would read the result of that task, which is on the machine of the flow.
        upstream = after.state_details.task_run_id if after else None
        inputs = {"spec": {TaskRunResult(id=upstream)}} if upstream else {}
        for given, needed in zip(parameters, resources, strict=True):
            runner = self._connected()
            # Local workers play with the code of the workspace, so the code that they announce does not matter.
            resources_of_run = {} if self.is_local else {"resources": needed}
            settings = contextlib.nullcontext() if self.is_local else settings_of_worker()
            with dask.annotate(priority=priority, **resources_of_run), settings:
                run = runner.submit(task, given, dependencies=inputs)
            yield run

    def wait(self, runs: Iterable[Run], report: Report = lambda _: None) -> list[State[Any]]:
        """Waits for tasks; returns their states, in the order in which they end.

        After the error of a task it takes no more runs, and waits for those that it has taken.

        Args:
          runs: an iterator over them is advanced when the workers need tasks.
          report: called with the progress.

        Raises:
          LostError: the scheduler or all local workers were lost, or a task's workers died too often.
          Exception: a task raised it.
        """
        source, open_runs = iter(runs), list[tuple[Run, Fetch]]()
        states: list[State[Any]] = []
        error: Exception | None = None
        warned = worked = time.monotonic()
        try:
            while True:
                if error is None:
                    wanted = itertools.islice(source, max(0, self._num_wanted() - len(open_runs)))
                    open_runs += ((run, _fetch(run)) for run in wanted)
                if not open_runs:
                    break
                time.sleep(POLL_SECONDS)  # `distributed.wait` would need a default client
                report(dict(self._progress))
                if self._has_workers():
                    worked = time.monotonic()
                elif self._are_nannies_closed() or time.monotonic() - worked > START_SECONDS:
                    error = error or LostError("the local workers ended, and none started again")
                    break
                outcomes = [_outcome(*each) for each in open_runs]
                states += [each for each in outcomes if isinstance(each, State)]
                error = error or next((each for each in outcomes if isinstance(each, Exception)), None)
                # Dask forgets a task whose run is dropped here.
                open_runs = [each for each, outcome in zip(open_runs, outcomes, strict=True) if outcome is None]
                if not self.is_local and time.monotonic() - warned > NO_WORKER_SECONDS:
                    warned = time.monotonic()
                    self._warn_of_missing_workers([run.wrapped_future for run, _ in open_runs])
        finally:
            self.cancel([run for run, _ in open_runs])
        if error:
            raise error
        return states

    def cancel(self, runs: Sequence[Run]) -> None:
        """Cancels tasks that have not begun; a shard that is being played ends by itself."""
        if self._runner and runs:
            with contextlib.suppress(Exception):
                self._runner.client.cancel([run.wrapped_future for run in runs])

    def _has_workers(self) -> bool:
        """False if a local cluster has none at present."""
        return self._local is None or bool(self._local.scheduler.workers)

    def _are_nannies_closed(self) -> bool:
        """True if no local worker will start again."""
        closed = (Status.closing, Status.closed, Status.failed)
        return self._local is not None and all(nanny.status in closed for nanny in self._local.workers.values())

    def _num_wanted(self) -> int:
        """Number of tasks with which all workers are busy."""
        found = self._connected().client.scheduler_info(n_workers=0)  # empty if the client has just closed
        return TASKS_PER_WORKER * max(1, int(found.get("total_threads", 0)))

    def _connected(self) -> DaskTaskRunner:
        """The connection, which Dask closes for good if the scheduler is away for 30 seconds; then a new one."""
        if self._runner and self._runner.client.status in ("closing", "closed"):
            self.close()
        return self._runner or self._connect()

    def _connect(self) -> DaskTaskRunner:
        # A client that lost its scheduler may not be closed. If Python collected it while another one starts, both
        # would need the same lock of Dask (`LoopRunner._lock`), and the flow would stand still.
        gc.collect()
        if self.is_local:
            runner = DaskTaskRunner(cluster=self._stack.enter_context(self._local_cluster()))
        else:
            runner = DaskTaskRunner(address=self._reachable_scheduler())
        self._runner = self._stack.enter_context(runner)
        get_run_logger().info(f"dashboard of Dask: {runner.client.dashboard_link}")
        # Before the first task, so that no progress is missed.
        runner.client.subscribe_topic(PROGRESS_TOPIC, self._note_progress)
        return runner

    @contextlib.contextmanager
    def _local_cluster(self) -> Iterator[SpecCluster]:
        """A scheduler in this process, and a worker process per core or GPU. It has a thread per child that plays."""
        gpus = visible_gpus() if self._params.profile.device == "cuda" else []
        num_processes = num_local_processes(self._params)
        num_workers = min(num_processes, len(gpus)) if gpus else num_processes
        self._log_dir.mkdir(parents=True, exist_ok=True)
        logging.getLogger("distributed").setLevel(logging.WARNING)  # its lines would fill the log of the flow
        security = Security.temporary()
        options = {
            "preload": ["flows.workers"],
            "local_directory": str(self._log_dir),
            "host": "127.0.0.1",
            "dashboard": False,
            "dashboard_address": "127.0.0.1:0",  # a worker without a dashboard still serves metrics
            "memory_limit": 0,  # the games are in a child, whose memory Dask does not see
            "security": security,
            "death_timeout": START_SECONDS,
        }
        workers: dict[Any, Any] = {}
        for number in range(num_workers):
            # The preload imports Prefect in a running event loop, where plugins fail.
            env = {"DASK_LOGGING__DISTRIBUTED": "warning", "PREFECT_PLUGINS_ENABLED": "false"}
            if gpus:
                env["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
            # As many children of the worker play at once; more than one only if they share its GPU.
            num_threads = num_processes // num_workers + (number < num_processes % num_workers)
            workers[number] = {"cls": Nanny, "options": {**options, "nthreads": num_threads, "env": env}}
        scheduler = {
            "cls": Scheduler,
            "options": {
                "dashboard_address": "127.0.0.1:0",
                "security": security,
                "host": "127.0.0.1",
                "allowed_failures": ALLOWED_FAILURES,
            },
        }
        with (
            dask.config.set(LOCAL_SETTINGS),
            SpecCluster(workers=workers, scheduler=scheduler, security=security) as cluster,
        ):
            self._local = cluster
            try:
                yield cluster
            finally:
                self._local = None

    def _reachable_scheduler(self) -> str:
        """Address of a scheduler that answers; waits for it.

        Raises:
          ServerError: no address is known, or the scheduler does not answer for `OUTAGE_SECONDS`.
        """
        address = self._executor.address or dask.config.get("scheduler-address", "") or ""
        if not address:
            raise ServerError(
                "executor.kind is 'dask', but no scheduler is known; set executor.address in params.yaml, or "
                "DASK_SCHEDULER_ADDRESS for the worker of the flow (docs/cluster.md)"
            )
        end = time.monotonic() + OUTAGE_SECONDS
        while True:
            error = probe(address)
            if error is None:
                return str(address)
            message = f"the Dask scheduler {address} does not answer: {error}"
            if time.monotonic() > end:
                raise ServerError(f"{message}; start it, or correct executor.address (docs/cluster.md)")
            self._warn(f"{message}; trying again for {(end - time.monotonic()) / 60:.0f} min")
            time.sleep(RETRY_SECONDS)

    def _warn_of_missing_workers(self, waiting: Sequence[Any]) -> None:
        """Warns if tasks wait and no worker has the resources that they need."""
        assert self._runner
        try:
            stuck = self._runner.client.run_on_scheduler(_tasks_without_worker)
        except Exception:  # the scheduler's trouble shows in the futures
            return
        if ours := [future.key for future in waiting if future.key in stuck]:
            self._warn(
                f"{len(ours)} tasks wait: no worker of the cluster has this lineage's code and packages (or a free "
                "GPU); start workers from a checkout of it (docs/cluster.md)"
            )

    def _note_progress(self, event: tuple[float, dict[str, Any]]) -> None:
        """Called by Dask's thread with an event of the topic."""
        part, done, total = (event[1][name] for name in ("part", "done", "total"))
        self._progress[str(part)] = (int(done), int(total))


class SettingsOfWorker(SettingsContext):
    """Prefect's settings, which are not sent with a task: the address of its server can differ between machines."""

    def serialize(self, include_secrets: bool = True) -> dict[str, Any]:
        """Nothing: the worker then keeps its own settings."""
        return {}


def settings_of_worker() -> SettingsOfWorker:
    """Prefect's settings of this process; a context in which tasks are submitted without them."""
    here = get_settings_context()
    # Without the validators of Prefect, which would change the settings that all threads share.
    return SettingsOfWorker.model_construct(profile=here.profile, settings=here.settings)


class LostError(Exception):
    """Work on the cluster was lost through no fault of its own; what is missing can be submitted again."""


def probe(address: str) -> str | None:
    """Why a scheduler does not answer; None if it does."""

    async def identity() -> str:
        arguments = Security().get_connection_args("client")
        async with rpc(address, timeout=CONNECT_SECONDS, connection_args=arguments) as server:
            # Twice as long: the connection has its own time limit, whose message is more precise.
            return str((await asyncio.wait_for(server.identity(), 2 * CONNECT_SECONDS))["type"])

    # Not a Dask client: one that could not connect is never closed, see `_connect`.
    try:
        kind = asyncio.run(identity())
    except TimeoutError:
        return f"no answer in {2 * CONNECT_SECONDS:.0f} s"
    except Exception as error:  # OSError, ValueError of an address, RuntimeError of TLS
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None if kind == "Scheduler" else f"it is not a scheduler, but a {kind.lower()}"


def _fetch(run: Run) -> Fetch:
    """Waits for a task in Dask's thread, and fetches its result; Dask fetches those of several tasks together.

    If the worker with the result dies, it waits until another worker has run the task again.
    """
    future = run.wrapped_future
    if future.status == "cancelled":  # its client is closed, and perhaps the thread has ended
        lost: Fetch = Future()
        lost.set_exception(CancelledError())
        return lost
    return asyncio.run_coroutine_threadsafe(_result(future), future.client.loop.asyncio_loop)


async def _result(future: Any) -> State[Any]:
    """Result of a task. A broken connection ends the fetch of several results, so it is tried once more."""
    try:
        state: State[Any] = await future.client.gather(future, asynchronous=True)
    except OSError:
        state = await future.client.gather(future, asynchronous=True)
    return state


def _outcome(run: Run, fetch: Fetch) -> State[Any] | Exception | None:
    """State of a task; what it raised, or LostError if Dask gave it up; None if its result is not here."""
    if not fetch.done() and run.wrapped_future.status != "cancelled":
        return None
    try:
        state = fetch.result(timeout=0)
    except (CancelledError, TimeoutError):
        return LostError("the Dask scheduler was lost")
    except LOST as error:
        return LostError(f"Dask lost a task: {error}".partition("\n")[0])
    except Exception as error:
        return error
    try:
        state.result()
    except Exception as error:
        return error
    return state


def _tasks_without_worker(dask_scheduler: Scheduler) -> list[str]:
    """Runs on the scheduler: the keys of tasks that no worker can run."""
    return [str(task.key) for task in dask_scheduler.unrunnable]
