"""Data-parallel training by several processes of one machine, with synchronous averaging of gradients.

Each process computes the gradients on its share of every batch. The process that calls `run_data_parallel` only
supervises them and takes no part in collective operations, so it never blocks on a dead process. If one of them dies,
it kills the others; if the caller dies, they exit.

Batch normalisation uses the statistics of each share, as in PyTorch's DistributedDataParallel. The running statistics
are averaged after each step like the gradients, so all processes have equal weights and statistics after each step. The
result depends on the number of processes (a parameter), not on their timing.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed
from torch.multiprocessing.spawn import ProcessContext, ProcessExitedException, start_processes

from zero.config.params import ProfileParams
from zero.errors import ParamsError, WorkerError, ZeroError
from zero.network.gpu_lock import lock_visible_gpus
from zero.network.profile import prepare_torch

PARENT_DIED_STATUS = 3
"""Exit status of a process whose parent died."""
CAUSE_SECONDS = 1.0
"""How long to wait, after an error, for the death of another process that may have caused it."""
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
        # All arrays go in one transfer, since each transfer takes half a millisecond; it runs during the step before.
        received = [_packed(share) for _ in range(2)]
        widths = [_as_bytes(array).shape[1] for array in share]

        def start(number: int) -> Any:
            """Starts the transfer of a batch, if there is one."""
            if number == num_batches:
                return None
            parts = None if source is None else list(_packed(next(source)).chunk(self.size))
            return distributed.scatter(received[number % 2], parts, async_op=True)

        transfer = start(0)
        for number in range(num_batches):
            transfer.wait()
            parts = torch.split(received[number % 2], widths, dim=1)
            for array, part in zip(share, parts, strict=True):
                _as_bytes(array).copy_(part)
            transfer = start(number + 1)
            yield share

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its mean over the processes. All must call it with tensors of the same shapes."""
        with torch.no_grad():
            # One all-reduce of a flat copy: a collective operation has a fixed cost, whatever its size.
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            distributed.all_reduce(flat)
            # gloo, the backend on CPUs, has no average among its reductions.
            flat /= self.size
            pieces = torch.split(flat, [tensor.numel() for tensor in tensors])
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.copy_(piece.view(tensor.shape))


def run_data_parallel(
    work: Callable[..., Result], arguments: tuple[Any, ...], profile: ProfileParams, progress: Progress | None = None
) -> Result:
    """Calls `work(*arguments, peers, progress)` in `profile.training_processes` new processes.

    `peers` is a `Peers`. On CUDA it first waits for the locks of all visible GPUs.

    Returns:
      The result of process 0.

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
    with lock_visible_gpus(profile) as locks, tempfile.TemporaryDirectory(prefix="zero-training-") as rendezvous:
        # Spawned, not forked: after a fork, CUDA cannot be used, and the threads of OpenMP do not exist.
        reports, writer = multiprocessing.get_context("spawn").Pipe(duplex=False)
        inputs = (work, arguments, profile, Path(rendezvous, "addresses"), writer, locks)
        context: ProcessContext = start_processes(_main, inputs, size, False, daemon=True)  # type: ignore[no-untyped-call]
        writer.close()  # now only the processes can write, so the pipe ends with them
        try:
            result: Result = _receive_result(context, reports, progress)
            return result
        except ProcessExitedException as error:
            name = f"training process {error.error_index} of {size} (pid {error.error_pid})"
            if error.exit_code < 0:
                raise WorkerError(
                    f"{name} was killed by signal {-error.exit_code}; run the stage again, it resumes from its last "
                    "checkpoint"
                ) from None
            raise WorkerError(f"{name} ended with status {error.exit_code}; its own message is above") from None
        finally:
            # SIGKILL, because a process that waits inside a collective operation does not run Python's handlers.
            for process in context.processes:
                process.kill()
                process.join()
            reports.close()


def _receive_result(context: ProcessContext, reports: Connection, progress: Progress | None) -> Any:
    """Passes progress on until process 0 reports the result of `work`, or raises the first error of any process."""
    while True:
        wait([reports, *context.sentinels])
        context.join(timeout=0)  # raises if a process died
        try:
            report = reports.recv() if reports.poll() else None
        except (EOFError, OSError):  # all processes ended, the last one perhaps while it wrote
            report = WorkerError("all training processes ended without a result; run the stage again")
        match report:
            case BaseException():
                context.join(timeout=CAUSE_SECONDS)  # if a process was killed, this error only follows from that
                raise report
            case (int(done), int(total)):
                if progress:
                    progress(done, total)
            case [result]:
                return result


def _main(
    rank: int,
    work: Callable[..., object],
    arguments: tuple[Any, ...],
    profile: ProfileParams,
    rendezvous_file: Path,
    reports: Connection,
    _locks: list[Connection],
) -> None:
    """Entry point of a training process. `_locks` stay open until it ends, and keep the GPUs locked until then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends the others
    # PyTorch's death signal is SIGINT, which is ignored here, and is set too late if the parent dies during the start.
    threading.Thread(target=_exit_when_parent_dies, daemon=True).start()
    try:
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # loopback, since the host name may not resolve
        prepare_torch(profile, profile.training_threads)
        backend = "gloo"
        if profile.device == "cuda":
            torch.cuda.set_device(rank)
            # Batches are scattered as CPU arrays by gloo; gradients on GPUs are summed by NCCL.
            backend = "cpu:gloo,cuda:nccl"
        size = profile.training_processes
        distributed.init_process_group(
            backend,
            init_method=f"file://{rendezvous_file}",  # not `as_uri`: PyTorch takes %20 as it is
            rank=rank,
            world_size=size,
            timeout=COLLECTIVE_TIMEOUT,
        )

        def progress(done: int, total: int) -> None:
            if rank == 0:
                reports.send((done, total))

        result = work(*arguments, Peers(rank, size), progress)
        distributed.barrier()  # no process leaves while another still waits for its data
        if rank == 0:
            reports.send([result])
        distributed.destroy_process_group()
    except Exception as error:
        if not isinstance(error, ZeroError):
            traceback.print_exc()
            name = f"training process {rank} of {profile.training_processes} (pid {os.getpid()})"
            error = WorkerError(f"{name} ended with {type(error).__name__}; its own message is above")
        reports.send(error)
        threading.Event().wait()  # until the parent kills all: leaving first would make the others fail too


def _exit_when_parent_dies() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    # Without cleanup: the main thread may be blocked in a collective operation for ever.
    os._exit(PARENT_DIED_STATUS)


def _packed(arrays: tuple[np.ndarray, ...]) -> Tensor:
    """A copy of the rows of all arrays side by side, as bytes."""
    return torch.cat([_as_bytes(array) for array in arrays], dim=1)


def _as_bytes(array: np.ndarray) -> Tensor:
    """A view of an array as bytes, [B, bytes per row] uint8: gloo does not transfer every NumPy type."""
    return torch.from_numpy(array.reshape(len(array), -1).view(np.uint8))
