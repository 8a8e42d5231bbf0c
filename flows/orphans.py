"""A run that a worker has started ends when its worker is gone, and one that cannot be done here is left to others."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from uuid import UUID

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Crashed, Failed
from pydantic import BaseModel, ValidationError

from flows.plugin import WORKER_VARIABLE
from zero.errors import DivergedError, LineageError, WorkerError, ZeroError

ModelT = TypeVar("ModelT", bound=BaseModel)

WATCH_SECONDS = 1.0
STATE_SECONDS = 30.0
"""Between two looks of a run at its own state."""
ORPHANED = 3
"""Exit status of a run whose worker is gone, or that was given up."""
REFUSED, HOPELESS = "Refused", "Hopeless"
"""Names of the states of a run that its worker cannot do, for it has other code, a wrong key, no store, and of one that
nobody can do."""
REFUSAL_SECONDS = 60.0
"""How long a worker that has failed takes nothing; others are asked again within seconds."""


_runs: list[str] = []
"""Runs of this process: of one flow, or of a campaign and its generations."""


def end_with_worker() -> None:
    """From now on this process ends when its worker does, and says so to Prefect: the run is soon done elsewhere.

    Prefect would let the child of a killed worker go on and never know how it ended. Where the worker does not say who
    it is (flows/plugin.py), it is the parent, unless that is the first process of a machine or a container.
    """
    worker, run = int(os.environ.get(WORKER_VARIABLE) or os.getppid()), flow_run.id
    if not run or (worker <= 1 and WORKER_VARIABLE not in os.environ):
        return
    _runs.append(str(run))
    if len(_runs) > 1:  # a generation of a campaign: one watcher is enough
        return

    def watch() -> None:
        while worker in _ancestors():
            time.sleep(WATCH_SECONDS)
        Thread(target=_say_lost, daemon=True).start()
        time.sleep(2 * WATCH_SECONDS)  # a server that does not answer finds it out by the heartbeats that stop
        os._exit(ORPHANED)

    Thread(target=watch, name="watcher of the worker", daemon=True).start()


def end_with_known_worker() -> None:
    """The same where a worker has said who it is: a flow that a person runs as a program has none."""
    if WORKER_VARIABLE in os.environ:
        end_with_worker()


def end_when_given_up() -> None:
    """From now on this process ends soon after somebody else has said that its run is over.

    A server that was away has heard no heartbeat of it meanwhile, and the run is asked for again: what it has stored is
    not played twice, but what it would go on with is.
    """
    if not flow_run.id:
        return

    def watch(run: UUID) -> None:
        while True:
            time.sleep(STATE_SECONDS)
            with contextlib.suppress(Exception), get_client(sync_client=True) as client:
                state = client.read_flow_run(run).state
                if state and (state.is_crashed() or state.is_cancelled()):
                    os._exit(ORPHANED)

    Thread(target=watch, args=(UUID(flow_run.id),), name="watcher of the state", daemon=True).start()


@contextlib.contextmanager
def refusing_slowly() -> Iterator[None]:
    """A run that cannot be done here says so and stays: its worker takes nothing while others are asked to do it."""
    try:
        yield
    except Exception as error:
        words = str(error) if isinstance(error, ZeroError) else repr(error)
        get_run_logger().error(words)
        _say(str(flow_run.id), Failed(name=name_of(error), message=words))  # Prefect's engine sets a like one later
        time.sleep(REFUSAL_SECONDS)
        raise


def name_of(error: Exception) -> str | None:
    """What the state of a run that failed is called; None: as Prefect calls it, and another try may help."""
    if isinstance(error, DivergedError):
        return HOPELESS
    return REFUSED if isinstance(error, ZeroError) and not isinstance(error, WorkerError) else None


def understood(model: type[ModelT], asked: Any) -> ModelT:
    """What a run was asked to do, of which this worker's code may know less or more than the code that asked.

    Raises:
      LineageError: it is not a `model` here.
    """
    try:
        return model.model_validate(asked)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise LineageError(
            f"this worker's code does not know what it is asked ({model.__name__}, {place}: {first['msg']}); "
            "check out the lineage's code here"
        ) from error


def _ancestors() -> Iterator[int]:
    """Numbers of the parent, of its parent and so on; of the parent alone where there is no /proc."""
    process = os.getppid()
    while process > 0:
        yield process
        try:
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def _say_lost() -> None:
    """Says of the runs of this process that have not ended that their worker was killed, of the innermost one first."""
    lost: State[None] = Crashed(message="its worker was killed")
    for run in reversed(_runs):
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(run)).state
            if not (state and state.is_final()):
                client.set_flow_run_state(run, lost, force=True)


def _say(run: str, state: State[None]) -> None:
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        client.set_flow_run_state(run, state)
