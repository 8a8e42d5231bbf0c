"""Captures a computation as a CUDA graph, which launches all its kernels at once.

See 'CUDA Graphs' in PyTorch's notes on CUDA semantics.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import torch

WARM_UPS = 3
"""Number of runs before a capture, in which cuDNN and cuBLAS choose their algorithms (PyTorch's documentation)."""
CAPTURING = threading.Lock()
"""Held during a capture: PyTorch allows one at a time in a process, and the web page plays several networks at once."""

Result = TypeVar("Result")


def capture(
    run: Callable[[], Result],
    stream: torch.cuda.Stream,
    pool: Any = None,
    after_warm_up: Callable[[], None] = lambda: None,
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Captures `run` as a CUDA graph. `run` must not synchronise with the device.

    Args:
      run: the computation; its tensors keep their addresses in the graph.
      stream: where it runs.
      pool: memory that several graphs share; None: the graph has its own.
      after_warm_up: called between the warm-up and the capture, on the same stream.

    Returns:
      The graph, and what `run` returned during the capture: tensors that each replay writes.
    """
    with CAPTURING:
        # What `run` reads was written on the current stream.
        stream.wait_stream(torch.cuda.current_stream(stream.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                run()
            after_warm_up()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # By default, CUDA also rejects calls of other threads during a capture, such as allocations.
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            result = run()
        return graph, result
