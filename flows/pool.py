"""Runs of other deployments on the workers of the pool `zero-gpu`: asked for, watched, and what their end means.

One thread watches all runs of a flow, with one request for up to 200 of them, however many threads wait. Prefect's
client asks a server that does not answer again for a minute; the watcher goes on asking for `OUTAGE_SECONDS`.
"""

import contextlib
import logging
import math
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from threading import Condition, Thread
from typing import Any, cast
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Cancelling, Crashed

from zero.errors import ServerError, WorkerError

POOL = "zero-gpu"
QUEUES = {"gating": "gate", "training": "train", "selfplay": "selfplay"}
"""Queue of the pool for a stage; `gate` is served before `train`, and that before `selfplay` (prefect.yaml)."""
POLL_SECONDS = 2.0
FILTER_LIMIT = 200
"""Most runs that Prefect's server gives in one answer."""
OUTAGE_SECONDS = 600.0
PENDING_SECONDS = 180.0
"""A run that a worker has taken and not begun in this time was lost with its worker; a start takes 3 to 20 s."""
LONELY_SECONDS = 60.0
"""How long runs wait before a word about workers that are missing."""
START_SECONDS = 8.0
"""What a run costs before its first game: scheduling, interpreter, imports, compiled kernels from disk."""
MAX_START_SHARE = 0.05

log = logging.getLogger(__name__)


class RunEndedError(Exception):
    """What was asked for was given up because the run that asked is over; no reason to try again."""


class Runs:
    """Runs that this flow has asked for. A context manager: leaving it cancels those that have not ended."""

    def __init__(self) -> None:
        """Asks for nothing yet."""
        self._waiting: dict[UUID, Future[State[Any]]] = {}
        self._changed = Condition()
        self._over = False
        self._watcher: Thread | None = None
        self._failure: Exception | None = None

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()

    def run(self, deployment: str, parameters: dict[str, Any], stage: str, key: str) -> str:
        """Runs a deployment to its end and gives the run's name; blocks; to be called from any thread.

        Args:
          deployment: as `flow/deployment`.
          parameters: of the flow.
          stage: chooses the queue.
          key: names the run for good: asked for twice, it is made once.

        Raises:
          WorkerError: it did not complete, for whatever reason, with the last words; worth another try elsewhere.
          RunEndedError: it was given up.
        """
        if self.is_over():
            raise RunEndedError(f"{deployment} is not run, the flow is over")
        made = cast(
            FlowRun,
            run_deployment(
                deployment, parameters=parameters, timeout=0, idempotency_key=key, work_queue_name=QUEUES[stage]
            ),
        )
        end: Future[State[Any]] = Future()
        with self._changed:
            if self._over:
                self._cancel([made.id])
                raise RunEndedError(f"run {made.name} of {deployment} was given up, the flow is over")
            self._waiting[made.id] = end
            if self._watcher is None:
                self._watcher = Thread(target=self._watch, name="watcher of runs", daemon=True)
                self._watcher.start()
            self._changed.notify_all()
        try:
            state = end.result()
        except CancelledError:
            raise RunEndedError(
                f"run {made.name} of {deployment} was given up: {self._failure or 'the flow is over'}"
            ) from self._failure
        if not state.is_completed():
            raise WorkerError(f"run {made.name} of {deployment} is {state.name}: {state.message or 'it said nothing'}")
        return made.name

    def is_over(self) -> bool:
        """True where nothing more is run."""
        return self._over

    def give_up(self) -> None:
        """Cancels the runs that have not ended, and frees those who wait for them."""
        with self._changed:
            self._over = True
            left, self._waiting = self._waiting, {}
            self._changed.notify_all()
        if left:
            self._cancel(list(left))
        for end in left.values():
            end.cancel()

    def _watch(self) -> None:
        answered = time.monotonic()
        lonely = _Loneliness()
        with get_client(sync_client=True) as client:
            while True:
                with self._changed:
                    while not self._waiting and not self._over:
                        self._changed.wait()
                        answered = time.monotonic()
                    if self._over:
                        return
                    wanted = list(self._waiting)
                try:
                    runs = list(_read(client, wanted))
                    for run in runs:
                        self._look_at(client, run)
                    lonely.look_at(client, runs)
                    answered = time.monotonic()
                except Exception as error:  # httpx, Prefect: whatever it is, the runs go on without us
                    if time.monotonic() - answered > OUTAGE_SECONDS:
                        self._failure = error
                        self.give_up()
                        return
                    log.warning("Prefect's server does not answer: %s", error)
                time.sleep(POLL_SECONDS)

    def _look_at(self, client: SyncPrefectClient, run: FlowRun) -> None:
        state = run.state
        if state is None:
            return
        if state.type == StateType.PENDING and _age(state) > PENDING_SECONDS:
            state = Crashed(message=f"taken by a worker and not begun in {PENDING_SECONDS:.0f} s")
            client.set_flow_run_state(run.id, state, force=True)
        if state.is_final():
            with self._changed:
                end = self._waiting.pop(run.id, None)
            if end:
                end.set_result(state)

    @staticmethod
    def _cancel(runs: list[UUID]) -> None:
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:
            for run in runs:
                client.set_flow_run_state(run, Cancelling(message="the flow that asked for it is over"))


class _Loneliness:
    """Says now and then that runs wait and no worker is there."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def look_at(self, client: SyncPrefectClient, runs: list[FlowRun]) -> None:
        if any(run.state and not run.state.is_scheduled() for run in runs):
            self._said = time.monotonic()
        elif runs and time.monotonic() - self._said > LONELY_SECONDS and not num_workers(client):
            self._said = time.monotonic()
            log.warning(
                "%d runs wait and the pool %s has no worker; start one with `prefect worker start --pool %s --limit 1`",
                len(runs),
                POOL,
                POOL,
            )


def num_workers(client: SyncPrefectClient | None = None) -> int:
    """Workers of the pool that Prefect's server has heard of lately.

    Raises:
      ServerError: there is no such pool.
    """
    with contextlib.ExitStack() as stack:
        asked = client or stack.enter_context(get_client(sync_client=True))
        try:
            found = asked.request(
                "POST", "/work_pools/{work_pool_name}/workers/filter", path_params={"work_pool_name": POOL}, json={}
            ).json()
        except PrefectHTTPStatusError as error:
            if error.response.status_code != 404:
                raise
            raise ServerError(f"there is no work pool {POOL}; make it with `python -m infra.pools`") from None
    return sum(worker["status"] == "ONLINE" for worker in found)


def shards_a_run(num_left: int, num_at_once: int, seconds: float | None) -> int:
    """How many shards the next run is given: so many that its start costs little, so few that no worker is left idle.

    Args:
      num_left: shards that no run has yet.
      num_at_once: runs at once.
      seconds: what a shard took so far, on average; None where none has ended.
    """
    fair = math.ceil(num_left / num_at_once)
    enough = math.ceil(START_SECONDS / (MAX_START_SHARE * seconds)) if seconds else math.ceil(fair / 2)
    return max(1, min(fair, enough))


def _read(client: SyncPrefectClient, runs: list[UUID]) -> Iterator[FlowRun]:
    for first in range(0, len(runs), FILTER_LIMIT):
        some = FlowRunFilterId(any_=runs[first : first + FILTER_LIMIT])
        yield from client.read_flow_runs(flow_run_filter=FlowRunFilter(id=some))


def _age(state: State[Any]) -> float:
    return time.time() - state.timestamp.timestamp()
