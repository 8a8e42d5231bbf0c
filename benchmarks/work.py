"""What a module of the table offers to a child: pieces of work that can be done for a while, and counted."""

import time
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.results import Sample

Side = Callable[[float], Sample]
"""Works for about so many seconds and says what it counted."""


class Measure(NamedTuple):
    """A piece of work, prepared and warm."""

    name: str
    run: Side


def rate(step: Callable[[], int], seconds: float) -> float:
    """What `step` counts a second, over calls of it for some seconds (one call at least)."""
    count = 0
    started = time.perf_counter()
    while True:
        count += step()
        if (elapsed := time.perf_counter() - started) >= seconds:
            return count / elapsed
