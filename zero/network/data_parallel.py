"""Training by several processes of one machine: each has its share of every batch, and they average what they find.

One more process looks after them, the one that calls `run_together`. It takes no part in what they exchange, so that it
never waits for a process that is gone: when one of them ends too early it ends the others, and when it ends, they do.

Batch normalisation normalises each share by its own statistics, as PyTorch's data parallel training does; the running
statistics are averaged after each step like the gradients. So the processes hold equal numbers after each step, and the
result depends on their number (a parameter), not on their timing.
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
from zero.network.gpu_lock import alone_on_gpus
from zero.network.profile import prepare_torch

PARENT_GONE = 3
"""Exit status of a process whose parent died."""
PATIENCE = timedelta(hours=1)
"""How long a process waits for the others: reading a large window takes the first one minutes."""

Result = TypeVar("Result")
Progress = Callable[[int, int], None]
Arrays = TypeVar("Arrays", bound=tuple[np.ndarray, ...])


class Peers:
    """The processes that train together, as one of them sees them."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        """Which one this is; 0 makes the batches and speaks to the parent."""
        self.size = size
        """How many there are."""

    def shares(self, batches: Iterable[Arrays] | None, like: Arrays, num_batches: int) -> Iterator[Arrays]:
        """Sends each process its rows of each batch: those of process i are the i-th part of the batch.

        Args:
          batches: the whole batches, at process 0 alone.
          like: a share, which is overwritten by each that comes.
          num_batches: how many come.
        """
        source = None if batches is None else iter(batches)
        for _ in range(num_batches):
            whole = None if source is None else next(source)
            for index, array in enumerate(like):
                parts = None if whole is None else list(_as_bytes(whole[index]).chunk(self.size))
                distributed.scatter(_as_bytes(array), parts)
            yield like

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replaces each tensor by its mean over the processes; all of them call it with tensors of equal shapes."""
        with torch.no_grad():
            flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
            distributed.all_reduce(flat)
            flat /= self.size
            pieces = torch.split(flat, [tensor.numel() for tensor in tensors])
            for tensor, piece in zip(tensors, pieces, strict=True):
                tensor.copy_(piece.view(tensor.shape))


def run_together(
    work: Callable[..., Result], arguments: tuple[Any, ...], profile: ProfileParams, progress: Progress | None = None
) -> Result:
    """The result of `work(*arguments, peers, progress)` at process 0, done by all of `profile.training_processes`.

    Raises:
      ParamsError: there are fewer GPUs than processes.
      ZeroError: `work` raised it in one of the processes.
      WorkerError: a process died.
    """
    size = profile.training_processes
    if profile.device == "cuda" and size > torch.cuda.device_count():
        raise ParamsError(
            f"profile.training_processes = {size}, but torch finds {torch.cuda.device_count()} CUDA devices; set it to "
            "that number or less, or give the worker that trains more of them (docs/cluster.md)"
        )
    context = multiprocessing.get_context("spawn")
    processes: list[BaseProcess] = []
    connections: list[Connection] = []
    with alone_on_gpus(profile) as locks, tempfile.TemporaryDirectory(prefix="zero-training-") as meeting_place:
        try:
            for rank in range(size):
                ours, theirs = context.Pipe(duplex=False)
                process: BaseProcess = context.Process(
                    target=_main,
                    args=(work, arguments, profile, rank, Path(meeting_place, "addresses"), theirs, locks),
                    daemon=True,
                )
                process.start()
                theirs.close()  # so that its end is seen when the process ends
                processes.append(process)
                connections.append(ours)
            result: Result = _listen(processes, connections, progress)
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
    """Progress of process 0."""

    done: int
    total: int


class _Finished(NamedTuple):
    """What `work` gave."""

    result: Any


def _listen(processes: list[BaseProcess], connections: list[Connection], progress: Progress | None) -> Any:
    """Waits for the result of process 0 and for the end of the others; raises what any of them raised."""
    open_ends = list(connections)
    result: Any = None
    while open_ends:
        for connection in wait(open_ends):
            assert isinstance(connection, Connection)
            try:
                message = connection.recv()
            except (EOFError, OSError):  # at once, or in the middle of a message
                open_ends.remove(connection)
                process = processes[connections.index(connection)]
                process.join()
                if process.exitcode != 0:
                    raise _death(processes) from None
                continue
            if isinstance(message, ZeroError):
                raise message
            if isinstance(message, _Finished):
                result = message.result
            elif progress:
                progress(*message)
    return result


def _death(processes: list[BaseProcess]) -> WorkerError:
    """What to say when a process has ended too early: the one that was killed comes before those that missed it."""
    ended = [(rank, p) for rank, p in enumerate(processes) if p.exitcode]
    rank, process = min(ended, key=lambda entry: entry[1].exitcode or 0)
    status = process.exitcode or 0
    who = f"process {rank} of the {len(processes)} that train (pid {process.pid})"
    if status < 0:
        return WorkerError(
            f"{who} was killed by signal {-status}; run the stage again, it goes on from its last checkpoint"
        )
    return WorkerError(f"{who} ended with status {status}; its own message is above")


def _main(
    work: Callable[..., object],
    arguments: tuple[Any, ...],
    profile: ProfileParams,
    rank: int,
    meeting_file: Path,
    parent: Connection,
    _locks: list[Connection],
) -> None:
    """One of the processes; `_locks` are open as long as it lives, so that the GPUs are not free before its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent sees to the end
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one machine: its name need not resolve
    prepare_torch(profile, profile.training_threads)
    backend = "gloo"
    if profile.device == "cuda":
        torch.cuda.set_device(rank)
        backend = "cpu:gloo,cuda:nccl"
    size = profile.training_processes
    distributed.init_process_group(
        backend, init_method=meeting_file.as_uri(), rank=rank, world_size=size, timeout=PATIENCE
    )

    def progress(done: int, total: int) -> None:
        if rank == 0:
            parent.send(_Done(done, total))

    try:
        result = work(*arguments, Peers(rank, size), progress)
        distributed.barrier()  # nobody leaves while another still needs its answer
        distributed.destroy_process_group()
        if rank == 0:
            parent.send(_Finished(result))
    except ZeroError as error:
        with contextlib.suppress(OSError):
            parent.send(error)
            threading.Event().wait()  # for the parent to end all: if this one went first, the others would seem to fail


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(PARENT_GONE)


def _as_bytes(array: np.ndarray) -> Tensor:
    """The rows of an array as bytes, [B, bytes a row] uint8, in its memory."""
    return torch.from_numpy(array.reshape(len(array), -1).view(np.uint8))
