"""Data-parallel training by several processes of one machine, with synchronous averaging of gradients.

Each process computes the gradients on its share of every batch. The process that calls `run_data_parallel` only
supervises them and takes no part in collective operations, so it never blocks on a dead process. If one process dies,
it kills the others; if it dies itself, they exit.

Batch normalisation uses the statistics of each share, as in PyTorch's DistributedDataParallel. The running statistics
are averaged after each step like the gradients, so all processes have equal weights and statistics after each step. The
result depends on the number of processes (a parameter), not on their timing.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed

from zero.config.params import ProfileParams
from zero.errors import ParamsError, WorkerError, ZeroError
from zero.network.gpu_lock import lock_visible_gpus
from zero.network.profile import prepare_torch

PARENT_DIED_STATUS = 3
"""Exit status of a process whose parent died."""
COLLECTIVE_TIMEOUT = timedelta(hours=1)
"""Timeout of a collective operation; the others wait minutes while the first process reads a large window."""

Result = TypeVar("Result")
Progress = Callable[[int, int], None]
Arrays = TypeVar("Arrays", bound=tuple[np.ndarray, ...])


class Peers:
    """The group of training processes, seen from one of them."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        """Index of this process; process 0 makes the batches and reports to the parent."""
        self.size = size
        """Number of processes."""

    def scatter(self, batches: Iterable[Arrays] | None, share: Arrays, num_batches: int) -> Iterator[Arrays]:
        """Distributes the rows of each batch: process i receives the i-th of `size` equal parts.

        Args:
          batches: the complete batches in process 0, None in the others.
          share: buffers for this process's part, overwritten with each batch and yielded.
          num_batches: number of batches.
        """
        source = None if batches is None else iter(batches)
        for _ in range(num_batches):
            batch = None if source is None else next(source)
            for index, array in enumerate(share):
                parts = None if batch is None else list(_as_bytes(batch[index]).chunk(self.size))
                distributed.scatter(_as_bytes(array), parts)
            yield share

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its mean over the processes. All must call it with tensors of the same shapes."""
        with torch.no_grad():
            # One all-reduce of a flat copy: a collective operation has a fixed cost, whatever its size.
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            distributed.all_reduce(flat)
            flat /= self.size
            pieces = torch.split(flat, [tensor.numel() for tensor in tensors])
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.copy_(piece.view(tensor.shape))


def run_data_parallel(
    work: Callable[..., Result], arguments: tuple[Any, ...], profile: ProfileParams, progress: Progress | None = None
) -> Result:
    """Calls `work(*arguments, peers, progress)` in `profile.training_processes` new processes.

    Returns:
      The result in process 0.

    Raises:
      ParamsError: there are fewer GPUs than processes.
      ZeroError: `work` raised it in one of the processes.
      WorkerError: a process died.
    """
    size = profile.training_processes
    if profile.device == "cuda" and size > torch.cuda.device_count():
        raise ParamsError(
            f"profile.training_processes = {size}, but torch finds {torch.cuda.device_count()} CUDA devices; set it to "
            "that number or less, or give the training worker more of them (docs/cluster.md)"
        )
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    connections: list[Connection] = []
    with lock_visible_gpus(profile) as locks, tempfile.TemporaryDirectory(prefix="zero-training-") as rendezvous:
        try:
            for rank in range(size):
                ours, theirs = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_main,
                    args=(work, arguments, profile, rank, Path(rendezvous, "addresses"), theirs, locks),
                    daemon=True,
                )
                process.start()
                theirs.close()  # the child now has the only write end, so its death closes the pipe
                processes.append(process)
                connections.append(ours)
            result: Result = _receive_result(processes, connections, progress)
            for process in processes:
                process.join()
            return result
        finally:
            for process in processes:
                process.kill()
                process.join()
            for connection in connections:
                connection.close()


class _Done(NamedTuple):
    """Message of process 0: its progress."""

    done: int
    total: int


class _Finished(NamedTuple):
    """Message of process 0: the result of `work`."""

    result: Any


def _receive_result(processes: list[BaseProcess], connections: list[Connection], progress: Progress | None) -> Any:
    """Waits until all processes have ended; returns the result of process 0, or raises the first error of any."""
    open_ends = list(connections)
    result: Any = None
    while open_ends:
        for connection in wait(open_ends):
            assert isinstance(connection, Connection)
            try:
                message = connection.recv()
            except (EOFError, OSError):  # the process ended, between two messages or during one
                open_ends.remove(connection)
                process = processes[connections.index(connection)]
                process.join()
                if process.exitcode != 0:
                    raise _worker_error(processes) from None
                continue
            if isinstance(message, ZeroError):
                raise message
            if isinstance(message, _Finished):
                result = message.result
            elif progress:
                progress(*message)
    return result


def _worker_error(processes: list[BaseProcess]) -> WorkerError:
    """The error for a process that ended too early: the killed process rather than those that failed because of it."""
    ended = [(rank, p) for rank, p in enumerate(processes) if p.exitcode]
    # A signal is a negative exit code, so the minimum is a killed process if there is one.
    rank, process = min(ended, key=lambda entry: entry[1].exitcode or 0)
    status = process.exitcode or 0
    name = f"training process {rank} of {len(processes)} (pid {process.pid})"
    if status < 0:
        return WorkerError(
            f"{name} was killed by signal {-status}; run the stage again, it resumes from its last checkpoint"
        )
    return WorkerError(f"{name} ended with status {status}; its own message is above")


def _main(
    work: Callable[..., object],
    arguments: tuple[Any, ...],
    profile: ProfileParams,
    rank: int,
    rendezvous_file: Path,
    parent: Connection,
    _locks: list[Connection],
) -> None:
    """Entry point of a training process. `_locks` stay open until it ends, and keep the GPUs locked until then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends the others
    threading.Thread(target=_exit_when_parent_dies, daemon=True).start()
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # loopback, since the host name may not resolve
    prepare_torch(profile, profile.training_threads)
    backend = "gloo"
    if profile.device == "cuda":
        torch.cuda.set_device(rank)
        backend = "cpu:gloo,cuda:nccl"
    size = profile.training_processes
    distributed.init_process_group(
        backend, init_method=rendezvous_file.as_uri(), rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT
    )

    def progress(done: int, total: int) -> None:
        if rank == 0:
            parent.send(_Done(done, total))

    try:
        result = work(*arguments, Peers(rank, size), progress)
        distributed.barrier()  # no process leaves while another still waits for its data
        distributed.destroy_process_group()
        if rank == 0:
            parent.send(_Finished(result))
    except ZeroError as error:
        with contextlib.suppress(OSError):
            parent.send(error)
            threading.Event().wait()  # until the parent kills all: leaving first would make the others fail too


def _exit_when_parent_dies() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(PARENT_DIED_STATUS)


def _as_bytes(array: np.ndarray) -> Tensor:
    """A view of an array as bytes, [B, bytes per row] uint8: gloo does not transfer every NumPy type."""
    return torch.from_numpy(array.reshape(len(array), -1).view(np.uint8))
