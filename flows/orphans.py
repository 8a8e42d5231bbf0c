"""A run that a worker has started ends when its worker is gone, and has its GPU to itself."""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.states import Crashed

from zero.errors import ZeroError

WATCH_SECONDS = 1.0
ORPHANED = 3
"""Exit status of a run whose worker is gone."""
REFUSAL_SECONDS = 20.0
GPU_SECONDS = 60.0
"""How long a run waits for the GPU of one before it that is about to end."""


def end_with_worker() -> None:
    """From now on this process ends when its parent does, and says so to Prefect: the run is soon done elsewhere.

    Prefect would let the child of a killed worker go on and never know how it ended.
    """
    parent, run = os.getppid(), flow_run.id
    if parent <= 1 or not run:  # the first process of a container has no worker above it
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        Thread(target=_say_crashed, args=(str(run),), daemon=True).start()
        time.sleep(2 * WATCH_SECONDS)  # a server that does not answer finds it out by the heartbeats that stop
        os._exit(ORPHANED)

    Thread(target=watch, name="watcher of the worker", daemon=True).start()


@contextlib.contextmanager
def refusing_slowly() -> Iterator[None]:
    """A run that cannot be done here waits before it fails: meanwhile other workers take what is asked again."""
    try:
        yield
    except ZeroError as error:
        get_run_logger().error(f"{error}")
        time.sleep(REFUSAL_SECONDS)
        raise


@contextlib.contextmanager
def alone_on_gpu() -> Iterator[None]:
    """No other run of this machine has the GPUs of `$CUDA_VISIBLE_DEVICES` meanwhile; unset, nothing is done.

    Raises:
      TimeoutError: another run does not let go of one.
    """
    with contextlib.ExitStack() as locks:
        for gpu in sorted(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))):
            path = Path(tempfile.gettempdir()) / f"zero-gpu-{gpu.strip().replace('/', '-')}-{os.getuid()}.lock"
            lock = locks.enter_context(path.open("w"))
            deadline = time.monotonic() + GPU_SECONDS
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise TimeoutError(
                            f"GPU {gpu} is in use by another run of this machine ({path}); give each worker a GPU of "
                            "its own by CUDA_VISIBLE_DEVICES, and --limit 1"
                        ) from None
                time.sleep(WATCH_SECONDS)
        yield


def _say_crashed(run: str) -> None:
    with contextlib.suppress(Exception), get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Crashed(message="its worker was killed"), force=True)
