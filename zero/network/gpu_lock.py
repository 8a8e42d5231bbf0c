"""Exclusive use of GPUs: a lock per GPU, so that one run of this machine computes on it at a time.

A run is a training, a shard, or an executor with its workers. The lock of a GPU is a file lock (flock), which exists as
long as a process has the file open. A run opens the files of its GPUs, and the child processes that compute for it
inherit them. So they share the GPU, and it becomes free when the last of them has ended, however it ended. See
docs/decisions/0012.

All shells of a machine must use the same folder for the files, whatever their TMPDIR; so must containers that share a
GPU. Imports no torch: the process that starts the others need not know the device.
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
"""Environment variable that names another folder; all runs of the machine must then have it."""
RETRY_SECONDS = 0.5
"""Interval between two attempts; shorter than the start of a worker's next run, so that a waiting run gets its turn."""
NVIDIA_SMI_TIMEOUT_SECONDS = 60.0
"""nvidia-smi takes several seconds if it has to load the driver first."""

log = logging.getLogger(__name__)


def lock_visible_gpus(profile: ProfileParams) -> contextlib.AbstractContextManager[list[Connection]]:
    """Locks all GPUs that this process sees, see `lock_gpus`; does nothing if the profile's device is the CPU."""
    return lock_gpus(visible_gpus() if profile.device == "cuda" else [])


@contextlib.contextmanager
def lock_gpus(gpus: Iterable[str], check: Callable[[], None] = lambda: None) -> Iterator[list[Connection]]:
    """Waits until no other run of this machine uses the GPUs, and locks them for this run. Warns if it has to wait.

    They are locked in the order of their names, so that two runs cannot deadlock. A run that holds locks must not wait
    for another run that needs them.

    Args:
      gpus: names as in `visible_gpus`.
      check: called before each attempt; an exception that it raises ends the wait.

    Yields:
      The locked files, to be inherited by the processes that compute for this run. They are `Connection` objects,
      although nothing is sent over them, because multiprocessing passes those on to child processes.

    Raises:
      StorageError: a file cannot be opened.
    """
    with contextlib.ExitStack() as stack:
        locks = []
        for gpu in sorted(set(gpus)):
            lock = stack.enter_context(_open(gpu))
            _acquire(lock, gpu, check)
            locks.append(lock)
        yield locks


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process sees, in its order: UUIDs if nvidia-smi knows them, else numbers.

    Numbers in CUDA_VISIBLE_DEVICES are taken in the order of nvidia-smi. If the GPUs are of several models, CUDA uses
    that order only with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    # An empty CUDA_VISIBLE_DEVICES hides all GPUs; an absent one hides none.
    visible, installed = os.environ.get("CUDA_VISIBLE_DEVICES"), _installed_gpus()
    if visible is None:
        return installed
    return [_full_name(name.strip(), installed) for name in visible.split(",") if name.strip()]


def _installed_gpus() -> list[str]:
    """UUIDs of the GPUs of this machine or container; without nvidia-smi their numbers, at least one."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
        timeout = NVIDIA_SMI_TIMEOUT_SECONDS
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout).stdout
        if uuids := [line.strip() for line in output.splitlines() if line.startswith("GPU-")]:
            return uuids
    return [str(number) for number in range(max(1, len(list(Path("/dev").glob("nvidia[0-9]*")))))]


def _full_name(name: str, installed: list[str]) -> str:
    """The GPU that an entry of CUDA_VISIBLE_DEVICES means: a number, or a prefix of a UUID."""
    if name.isdecimal():
        return installed[int(name)] if int(name) < len(installed) else name
    return next((gpu for gpu in installed if gpu.startswith(name)), name)


def _open(gpu: str) -> Connection:
    """Opens the lock file of a GPU, which every user of this machine may lock."""
    folder = Path(os.environ.get(LOCKS_VARIABLE) or LOCKS_DIR)
    path = folder / f"{gpu.replace('/', '-')}.lock"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)  # set separately, because mkdir and open apply the umask
        with contextlib.suppress(FileExistsError):
            created = os.open(path, os.O_CREAT | os.O_EXCL)
            os.fchmod(created, 0o666)
            os.close(created)
        # In a sticky folder Linux refuses O_CREAT for another user's file, so this second open is without it.
        # The folder may belong to another user, who could name a file of this one by a link.
        return Connection(os.open(path, os.O_RDWR | os.O_NOFOLLOW))
    except OSError as error:
        raise StorageError(
            f"cannot lock GPU {gpu}: cannot write {path}: {error.strerror}; remove it, or set {LOCKS_VARIABLE} for all "
            "runs of this machine"
        ) from None


def _acquire(lock: Connection, gpu: str, check: Callable[[], None]) -> None:
    """Waits for the lock of a file, and then writes the owner into the file, for the message to other runs."""
    reported = False
    while True:
        # Before each attempt, so that closing an executor ends its wait for a GPU in use.
        check()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if not reported:
                owner = os.pread(lock.fileno(), 200, 0).decode(errors="replace") or "another process"
                log.warning("GPU %s is in use by %s; waiting until it ends", gpu, owner)
                reported = True
        time.sleep(RETRY_SECONDS)
    # The content is only for messages; flock alone decides who has the lock.
    os.ftruncate(lock.fileno(), 0)
    owner = f"process {os.getpid()} of {socket.gethostname()}, or a process that it started"
    os.pwrite(lock.fileno(), owner.encode(), 0)
