"""Runs of other deployments on the workers of the pool `zero-gpu`: asked for, watched, and what their end means.

One thread watches all runs of a flow, with one request for up to 200 of them, however many threads wait. What a server
that is away was asked is asked again for `OUTAGE_SECONDS`.
"""

import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from threading import Condition, Thread
from typing import Any, cast
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    WorkerFilter,
    WorkerFilterStatus,
)
from prefect.client.schemas.objects import FlowRun, State, StateType, WorkQueueStatus
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling, Crashed

from flows.orphans import HOPELESS, REFUSED
from zero.errors import ParamsError, ServerError, WorkerError, ZeroError
from zero.record.signing import public_pem, signing_key
from zero.storage.files import sha256_bytes

POOL = "zero-gpu"
QUEUES = {"gating": "gate", "training": "train", "selfplay": "selfplay"}
"""Queue of the pool for a stage; `gate` is served before `train`, and that before `selfplay` (prefect.yaml)."""
POLL_SECONDS, POLL_SECONDS_A_RUN = 0.5, 0.05
"""Between two looks at the runs that are waited for, and so much more for each: they come with all their shards."""
FILTER_LIMIT = 200
"""Most runs, or workers, that Prefect's server gives in one answer."""
OUTAGE_SECONDS = 600.0
AGAIN_SECONDS = 5.0
"""Between two times that a run is asked for while the server is away."""
PENDING_SECONDS = 90.0
"""A run that a worker has taken and not begun in this time was lost with its worker; a start takes 3 to 20 s."""
POD_SECONDS = 900.0
"""The same where a run is a pod: its node may have to start first (pod_watch_timeout_seconds in infra/kubernetes)."""
REFUSED_SECONDS = 1800.0
"""How long others are asked to do what was refused, while no run of the flow is completed."""
WIDTH_SECONDS = 10.0
"""How old the number of workers may be: some come while a stage is played."""
LONELY_SECONDS = 60.0
"""How long runs wait before a word about workers that are missing."""
LEFT_OVER = (StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING, StateType.PAUSED)
"""States of a run that goes on, or will."""
START_SECONDS = 8.0
"""What a run costs before its first game: scheduling, interpreter, imports, compiled kernels from disk."""
MAX_START_SHARE = 0.01
"""Of a run; that its worker asked for it late costs as much again with 64 workers."""
UNKNOWN_SHARDS = 2
"""Shards of a run before it is known how long they take: those of a small stage begin together."""

log = logging.getLogger(__name__)


class RunEndedError(Exception):
    """What was asked for was given up because the run that asked is over; no reason to try again."""


class RefusedError(ZeroError):
    """No worker of the pool would do it, for so long that none will."""


class Runs:
    """Runs that this flow has asked for. A context manager: leaving it cancels those that have not ended."""

    def __init__(self, owner: str, say: Callable[[str], None] = log.warning) -> None:
        """Asks for nothing yet.

        Args:
          owner: tag of the runs, see `owner_of`.
          say: is given the trouble that a person should know of, from any thread.
        """
        self._owner = owner
        self._say = say
        self._waiting: dict[UUID, Future[State[Any]]] = {}
        self._changed = Condition()
        self._over = False
        self._watcher: Thread | None = None
        self._failure: Exception | None = None
        self._pool_type = ""
        self._num_places, self._counted = 0, -math.inf
        self._completed = -math.inf
        self._taken: dict[UUID, float] = {}

    def __enter__(self) -> "Runs":
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()

    def run(self, deployment: str, parameters: dict[str, Any], stage: str, key: str) -> str:
        """Runs a deployment to its end and gives the run's name; blocks; to be called from any thread.

        A run that its worker refuses is asked for again: others can do it, and the one who cannot keeps off meanwhile.

        Args:
          deployment: as `flow/deployment`.
          parameters: of the flow.
          stage: chooses the queue.
          key: names the run for good: asked for twice, it is made once.

        Raises:
          WorkerError: it did not complete, for whatever reason, with the last words; worth another try elsewhere.
          RefusedError: whoever took it could not do it.
          ParamsError: nobody could.
          RunEndedError: it was given up.
          ServerError: Prefect's server is away.
        """
        refused, refusals = math.inf, 0
        while True:
            made = self._ask(deployment, parameters, stage, f"{key}-{refusals}" if refusals else key)
            state = self._end_of(made, deployment)
            if state.is_completed():
                self._completed = time.monotonic()
                return made.name
            words = f"run {made.name} of {deployment} is {state.name}: {state.message or 'it said nothing'}"
            if state.name == HOPELESS:
                raise ParamsError(words)
            if state.name != REFUSED:
                raise WorkerError(words)
            refused, refusals = min(refused, time.monotonic()), refusals + 1
            if time.monotonic() - max(refused, self._completed) > REFUSED_SECONDS:
                raise RefusedError(f"{words}; nobody could do it in {REFUSED_SECONDS / 60:.0f} minutes")
            self._say(f"{words}; another worker is asked")

    def num_places(self) -> int:
        """Runs that the pool does at once now.

        Raises:
          ServerError: there is no such pool.
        """
        if time.monotonic() - self._counted > WIDTH_SECONDS:
            try:
                self._num_places = num_places()
            except httpx.HTTPError as error:
                self._say(f"the workers are not counted: {error}")
            self._counted = time.monotonic()
        return self._num_places

    def give_up(self) -> None:
        """Cancels the runs that have not ended, and frees those who wait for them."""
        with self._changed:
            self._over = True
            left, self._waiting = self._waiting, {}
            self._changed.notify_all()
        _cancel(list(left))
        for end in left.values():
            end.cancel()

    def _ask(self, deployment: str, parameters: dict[str, Any], stage: str, key: str) -> FlowRun:
        begun = time.monotonic()
        while not self._over:
            try:
                made = run_deployment(
                    deployment,
                    parameters=parameters,
                    timeout=0,
                    idempotency_key=key,
                    work_queue_name=QUEUES[stage],
                    tags=[self._owner],
                )
                return cast(FlowRun, made)
            except httpx.HTTPError as error:
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500:
                    raise
                if time.monotonic() - begun > OUTAGE_SECONDS:
                    raise ServerError(f"Prefect's server is away for {OUTAGE_SECONDS:.0f} s: {error}") from error
                self._say(f"Prefect's server does not answer, {deployment} is asked for again: {error}")
            with self._changed:
                self._changed.wait_for(lambda: self._over, AGAIN_SECONDS)
        raise RunEndedError(f"{deployment} is not run, the flow is over")

    def _end_of(self, made: FlowRun, deployment: str) -> State[Any]:
        end: Future[State[Any]] = Future()
        with self._changed:
            late = self._over
            if not late:
                self._waiting[made.id] = end
            if self._watcher is None and not late:
                self._watcher = Thread(target=self._watch, name="watcher of runs", daemon=True)
                self._watcher.start()
            self._changed.notify_all()
        if late:
            _cancel([made.id])
            raise RunEndedError(f"run {made.name} of {deployment} was given up, the flow is over")
        try:
            return end.result()
        except CancelledError:
            raise RunEndedError(
                f"run {made.name} of {deployment} was given up: {self._failure or 'the flow is over'}"
            ) from self._failure

    def _watch(self) -> None:
        answered = time.monotonic()
        lonely = _Loneliness(self._say)
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
                    runs = {run.id: run for run in _read(client, wanted)}
                    for wish in wanted:
                        if end := self._end_seen(client, runs.get(wish)):
                            self._has_ended(wish, end)
                    lonely.look_at(client, list(runs.values()))
                    answered = time.monotonic()
                except Exception as error:  # httpx, Prefect: whatever it is, the runs go on without us
                    if time.monotonic() - answered > OUTAGE_SECONDS:
                        self._failure = error
                        self.give_up()
                        return
                    self._say(f"Prefect's server does not answer: {error}")
                time.sleep(POLL_SECONDS + POLL_SECONDS_A_RUN * len(wanted))

    def _end_seen(self, client: SyncPrefectClient, run: FlowRun | None) -> State[Any] | None:
        """The state that a run has ended with; None while it goes on."""
        if run is None:
            return Crashed(message="somebody deleted it")
        state = run.state
        if state is None or state.is_final():
            return state
        if state.type != StateType.PENDING:
            self._taken.pop(run.id, None)
            return None
        pending = time.monotonic() - self._taken.setdefault(run.id, time.monotonic())  # our clock, not the server's
        if pending <= PENDING_SECONDS:
            return None
        self._pool_type = self._pool_type or client.read_work_pool(POOL).type
        patience = PENDING_SECONDS if self._pool_type in ("process", "zero") else POD_SECONDS
        if pending <= patience:
            return None
        lost: State[None] = Crashed(message=f"taken by a worker and not begun in {patience:.0f} s")
        client.set_flow_run_state(run.id, lost, force=True)
        return lost

    def _has_ended(self, run: UUID, state: State[Any]) -> None:
        with self._changed:
            end = self._waiting.pop(run, None)
        if end:
            end.set_result(state)


class _Loneliness:
    """Says now and then that runs wait in a queue that no worker asks."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said = time.monotonic()

    def look_at(self, client: SyncPrefectClient, runs: Sequence[FlowRun]) -> None:
        if not runs or any(run.state and not run.state.is_scheduled() for run in runs):
            self._said = time.monotonic()
        elif time.monotonic() - self._said > LONELY_SECONDS:
            self._said = time.monotonic()
            for queue in sorted({run.work_queue_name for run in runs if run.work_queue_name}):
                if client.read_work_queue_by_name(queue, POOL).status != WorkQueueStatus.READY:
                    self._say(
                        f"{len(runs)} runs wait and no worker serves the queue {queue} of the pool {POOL}; start one "
                        f"with `prefect worker start --pool {POOL} --limit 1`"
                    )


def owner_of(home: Path, lineage: str) -> str:
    """Tag of the runs for a lineage of this project's folder, on a server that other folders may use as well."""
    return f"{lineage} {sha256_bytes(public_pem(signing_key(home)) + bytes(home.resolve()))[:12]}"


def end_leftovers(owner: str) -> int:
    """Cancels the runs that a flow of this owner has asked for and, killed, has left; how many there were.

    To be called by who holds the lineage's writer lock: nobody waits for them. Where the server does not answer they
    stay: it costs time alone.
    """
    is_open = FlowRunFilterState(type=FlowRunFilterStateType(any_=list(LEFT_OVER)))
    wanted = FlowRunFilter(tags=FlowRunFilterTags(all_=[owner]), state=is_open)
    left = list[UUID]()
    with contextlib.suppress(httpx.HTTPError), get_client(sync_client=True) as client:
        while found := client.read_flow_runs(flow_run_filter=wanted, offset=len(left), limit=FILTER_LIMIT):
            left += [run.id for run in found]
    _cancel(left)
    return len(left)


def _cancel(runs: Sequence[UUID]) -> None:
    until = time.monotonic() + OUTAGE_SECONDS
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        for run in runs:
            with contextlib.suppress(Exception):
                if time.monotonic() < until:
                    client.set_flow_run_state(run, Cancelling(message="the flow that asked for it is over"))


def num_workers(client: SyncPrefectClient | None = None) -> int:
    """Workers of the pool that Prefect's server has heard of lately."""
    online = WorkerFilter(status=WorkerFilterStatus(any_=["ONLINE"]))
    with contextlib.nullcontext(client) if client else get_client(sync_client=True) as asked:
        for first in itertools.count(step=FILTER_LIMIT):
            found = len(asked.read_workers_for_work_pool(POOL, online, first, FILTER_LIMIT))
            if found < FILTER_LIMIT:
                break
    return first + found


def num_places() -> int:
    """Runs that the pool does at once: one a worker, or as many as its limit says, where one worker starts many pods.

    Raises:
      ServerError: there is no such pool.
    """
    with get_client(sync_client=True) as client:
        try:
            limit = client.read_work_pool(POOL).concurrency_limit
        except ObjectNotFound:
            raise ServerError(f"there is no work pool {POOL}; make it with `python -m infra.pools`") from None
        return max(num_workers(client), limit or 0)


def num_at_once(places: int) -> int:
    """Runs to ask for at once: some more than the pool can do, so that none of its workers waits for one."""
    return places + max(1, places // 16)


def shards_a_run(num_left: int, places: int, num_asked: int, seconds: float | None) -> int:
    """How many shards the next run is given: so many that its start costs little, so few that no worker is left idle.

    Args:
      num_left: shards that no run has yet.
      places: runs that the pool does at once.
      num_asked: runs that have been asked for and have not ended.
      seconds: what a shard took so far, on average; None where none has ended: it may be long, so a run is given few.
    """
    if seconds is None:  # the first wave: what is left is shared by those who have nothing
        return max(1, min(math.ceil(num_left / max(1, places - num_asked)), UNKNOWN_SHARDS))
    enough = math.ceil(START_SECONDS / (MAX_START_SHARE * seconds)) if seconds else num_left
    return max(1, min(math.ceil(num_left / max(1, places)), enough))


def _read(client: SyncPrefectClient, runs: list[UUID]) -> Iterator[FlowRun]:
    for first in range(0, len(runs), FILTER_LIMIT):
        some = FlowRunFilterId(any_=runs[first : first + FILTER_LIMIT])
        yield from client.read_flow_runs(flow_run_filter=FlowRunFilter(id=some))
