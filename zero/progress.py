"""Progress of long work: a bar on a terminal, lines in a log, both with the time left; JSON lines for a program."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from zero.config.settings import is_quiet, setting

if TYPE_CHECKING:
    from rich.progress import Task

REPORT_SECONDS = 1.0
"""Minimum time between two JSON lines."""
LINE_SECONDS = 30.0
"""Minimum time between two lines in a log."""
ESTIMATE_SECONDS = 3600.0
"""Period whose speed gives the time left: long, because games that are played side by side end together."""


Progress = Callable[[int, int], None]
"""Receives (done, all)."""


@contextmanager
def progress_of(stage: str, unit: str) -> Iterator[Progress]:
    """A function that reports progress, to be called with (done, total).

    Args:
      stage: name of the stage.
      unit: what is counted, such as `games`.
    """
    if setting("ZERO_PROGRESS") == "json":
        yield _json_reporter(stage)
        return
    if is_quiet():
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
    # Without a terminal nothing is drawn, but the time left is still estimated.
    with rich_progress.Progress(
        *columns,
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        redirect_stdout=sys.stdout.isatty(),
        speed_estimate_period=ESTIMATE_SECONDS,
    ) as bar:
        bar.add_task(stage, total=None)
        task = bar.tasks[0]
        write_line = None if sys.stderr.isatty() else _line_writer(task, unit)

        def report(done: int, total: int) -> None:
            bar.update(task.id, completed=done, total=total)
            if write_line:
                write_line()

        yield report


def _line_writer(task: "Task", unit: str) -> Callable[[], None]:
    """A function that writes a line about a task now and then, to be called after each update."""
    last, has_lines = time.monotonic(), False

    def write() -> None:
        nonlocal last, has_lines
        if time.monotonic() - last < LINE_SECONDS and not (has_lines and task.finished):
            return
        last, has_lines = time.monotonic(), not task.finished
        seconds = task.time_remaining
        left = "" if task.finished or seconds is None else f", {timedelta(seconds=round(seconds))} left"
        print(f"{task.description}: {task.completed} of {task.total} {unit}{left}", file=sys.stderr, flush=True)

    return write


def part_of(progress: Progress | None, before: int, total: int) -> Progress:
    """Reports the progress of a part of some work, of which `before` is done already, as that of the `total`."""

    def report(done: int, _: int) -> None:
        if progress:
            progress(before + done, total)

    return report


def _json_reporter(stage: str) -> Progress:
    last = -REPORT_SECONDS

    def report(done: int, total: int) -> None:
        nonlocal last
        if done < total and time.monotonic() - last < REPORT_SECONDS:
            return
        last = time.monotonic()
        print(json.dumps({"event": "progress", "stage": stage, "done": done, "total": total}), flush=True)

    return report
