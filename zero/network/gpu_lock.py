"""Who computes on a GPU: one run of this machine at a time: a training, shards, or an executor with its workers.

A GPU has a lock, which is a file that is locked (flock) for as long as a process has it open. A run opens the files of
its GPUs, and the processes that it starts to compute there inherit them: so they share a GPU among themselves, and
nobody else has it before the last of them has ended, however it did. See docs/decisions/0012.

The folder of the files is one for all shells of this machine, whatever TMPDIR they have; containers that see the same
GPU have to share it.
Imports no torch: who starts the processes need not know the device.
"""

import contextlib
import fcntl
import logging
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from zero.config.params import ProfileParams
from zero.errors import StorageError

LOCKS_DIR = "/tmp/zero-gpus"
LOCKS_VARIABLE = "ZERO_GPU_LOCKS"
"""Names another folder, which all runs of the machine must then be given."""
WAIT_SECONDS = 0.5
"""Between two tries; less than the start of the next run of a worker takes, so that one which waits has its turn."""
ASK_SECONDS = 60.0
"""For nvidia-smi, which takes seconds where the driver has to be loaded first."""

log = logging.getLogger(__name__)


@contextlib.contextmanager
def alone_on_gpus(profile: ProfileParams, say: Callable[[str], None] = log.warning) -> Iterator[list[Connection]]:
    """No other run of this machine computes meanwhile on the GPUs that this process sees; on a CPU nothing is done."""
    with alone_on(visible_gpus() if profile.device == "cuda" else [], say=say) as locks:
        yield locks


@contextlib.contextmanager
def alone_on(
    gpus: Iterable[str], look: Callable[[], None] = lambda: None, say: Callable[[str], None] = log.warning
) -> Iterator[list[Connection]]:
    """Waits until no other run of this machine has one of the GPUs, and keeps them to this run.

    They are taken in the order of their names, so that two runs never wait for each other. A run that has them must not
    wait for another one that wants them.

    Args:
      gpus: as `visible_gpus` names them.
      look: called before each try; what it raises ends the waiting.
      say: given one line where there is something to wait for.

    Yields:
      The files that are locked, for the processes that compute for this run. They are connections, though nobody speaks
      by them, because multiprocessing hands such to a process that it starts.

    Raises:
      StorageError: a file cannot be opened.
    """
    with contextlib.ExitStack() as held:
        locks = []
        for gpu in sorted(set(gpus)):
            lock = held.enter_context(_open(gpu))
            _take(lock, gpu, look, say)
            locks.append(lock)
        yield locks


def visible_gpus() -> list[str]:
    """The GPUs that this process sees, in its order; by UUID where nvidia-smi tells it: one name, whoever looks at it.

    A number counts as nvidia-smi counts. Among GPUs of several models CUDA does with CUDA_DEVICE_ORDER=PCI_BUS_ID only.
    """
    seen, here = os.environ.get("CUDA_VISIBLE_DEVICES"), _gpus_here()
    if seen is None:
        return here
    return [_whole_name(name.strip(), here) for name in seen.split(",") if name.strip()]


def _gpus_here() -> list[str]:
    """UUIDs of this machine's, or this container's, GPUs; their numbers where nobody tells, at least that of one."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
        told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=ASK_SECONDS).stdout
        if uuids := [line.strip() for line in told.splitlines() if line.startswith("GPU-")]:
            return uuids
    return [str(number) for number in range(max(1, len(list(Path("/dev").glob("nvidia[0-9]*")))))]


def _whole_name(name: str, here: list[str]) -> str:
    """The GPU that CUDA_VISIBLE_DEVICES names by its number, or by the beginning of its UUID."""
    if name.isdecimal():
        return here[int(name)] if int(name) < len(here) else name
    return next((gpu for gpu in here if gpu.startswith(name)), name)


def _open(gpu: str) -> Connection:
    """The file of a GPU's lock, which any user of this machine can lock."""
    folder = Path(os.environ.get(LOCKS_VARIABLE) or LOCKS_DIR)
    path = folder / f"{gpu.replace('/', '-')}.lock"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)
        with contextlib.suppress(FileExistsError):
            made = os.open(path, os.O_CREAT | os.O_EXCL)
            os.fchmod(made, 0o666)
            os.close(made)
        return Connection(os.open(path, os.O_RDWR))  # O_CREAT is refused here for the file of another user
    except OSError as error:
        raise StorageError(
            f"cannot lock GPU {gpu}: cannot write {path}: {error.strerror}; remove it, or set {LOCKS_VARIABLE} for all "
            "runs of this machine"
        ) from None


def _take(lock: Connection, gpu: str, look: Callable[[], None], say: Callable[[str], None]) -> None:
    """Locks a file once nobody else has, and writes into it who did."""
    told = False
    while True:
        look()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if not told:
                holder = os.pread(lock.fileno(), 200, 0).decode(errors="replace") or "another process"
                say(f"GPU {gpu} is in use by {holder}; this one waits for its end")
                told = True
        time.sleep(WAIT_SECONDS)
    os.ftruncate(lock.fileno(), 0)
    os.pwrite(lock.fileno(), f"process {os.getpid()} of {socket.gethostname()}, or by what it started".encode(), 0)
