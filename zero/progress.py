"""Progress of long work: a bar on a terminal, JSON lines for a program, nothing in a log."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from zero.config.settings import Settings

REPORT_SECONDS = 1.0
"""Minimum time between two JSON lines."""


@contextmanager
def progress_of(stage: str, unit: str, stream: TextIO | None = None) -> Iterator[Callable[[int, int], None]]:
    """A function that reports progress, to be called with (done, total).

    Args:
      stage: name of the stage.
      unit: what is counted, such as `games`.
      stream: where JSON lines go, by default standard output.
    """
    if Settings().progress == "json":
        yield _json_reporter(stage, stream or sys.stdout)
        return
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn(f"{stage:9}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TextColumn(unit),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(stage, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _json_reporter(stage: str, stream: TextIO) -> Callable[[int, int], None]:
    last = -REPORT_SECONDS

    def report(done: int, total: int) -> None:
        nonlocal last
        if done < total and time.monotonic() - last < REPORT_SECONDS:
            return
        last = time.monotonic()
        stream.write(json.dumps({"event": "progress", "stage": stage, "done": done, "total": total}) + "\n")
        stream.flush()

    return report
