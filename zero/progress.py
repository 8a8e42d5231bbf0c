"""Progress of long work: a bar for a person, JSON lines for a program, nothing for a log."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from zero.settings import Settings

REPORT_SECONDS = 1.0
"""Least time between two JSON lines."""


@contextmanager
def progress_of(stage: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A function to be called with (done, total)."""
    if Settings().progress == "json":
        yield _json_reporter(stage)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (
        TextColumn(f"{stage:9}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(stage, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _json_reporter(stage: str) -> Callable[[int, int], None]:
    last = -REPORT_SECONDS

    def report(done: int, total: int) -> None:
        nonlocal last
        if done < total and time.monotonic() - last < REPORT_SECONDS:
            return
        last = time.monotonic()
        sys.stdout.write(json.dumps({"event": "progress", "stage": stage, "done": done, "total": total}) + "\n")
        sys.stdout.flush()

    return report
