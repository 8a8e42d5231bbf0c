"""`python -m benchmarks`: measures the table, prints it, writes it as JSON, compares it with an earlier one."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmarks.machine import describe_machine
from benchmarks.results import Results, Settings, read_results, write_results
from benchmarks.rounds import Context
from benchmarks.rows import FAILED, ROWS, measure_rows, rows_named
from benchmarks.setting import GO9, params_of
from benchmarks.table import comparison, markdown, table
from zero.errors import ZeroError
from zero.progress import progress_of

NAMES = ", ".join(row.name for row in ROWS)


def main(
    rows: Annotated[str, typer.Option(help=f"Rows to measure, with commas between; all when not given: {NAMES}.")] = "",
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds of one measurement of one side.")] = 5.0,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; medians are shown.")] = 5,
    out: Annotated[Path | None, typer.Option(help="JSON file to write the results into.")] = None,
    compare: Annotated[
        Path | None, typer.Option(help="JSON file of an earlier run to show these results beside.")
    ] = None,
    show: Annotated[Path | None, typer.Option(help="JSON file of an earlier run to take instead of measuring.")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    backend: Annotated[
        Literal["torch", "openvino"], typer.Option(help="What runs the networks on the CPU.")
    ] = "openvino",
    precision: Annotated[Literal["fp32", "bf16"], typer.Option(help="Arithmetic of the networks on the CPU.")] = "fp32",
) -> None:
    """Measures how fast the project is, each row beside what it has to be measured by."""
    earlier = read_results(compare) if compare else None
    if show:
        results = read_results(show)
    else:
        specs = rows_named(rows)
        profile = params_of(GO9, None).profile.model_copy(
            update={"backend": backend, "precision": precision, "isa": "native", "selfplay_threads": 1}
        )
        settings = Settings(seconds=seconds, repeats=repeats, backend=backend, precision=precision)
        machine = describe_machine()
        cores = tuple(sorted(os.sched_getaffinity(0)))
        with progress_of("bench", "rounds") as progress:
            total = len(specs) * repeats
            progress(0, total)
            context = Context(seconds, repeats, profile, cores, tick=lambda: None)
            measured = measure_rows(specs, context, lambda done: progress(done, total))
        results = Results(machine=machine, settings=settings, rows=tuple(measured))
        if out:
            write_results(out, results)
    typer.echo(markdown(results) if as_markdown else table(results))
    if earlier:
        typer.echo("\n" + comparison(earlier, results))
    if any(row.note.startswith(FAILED) for row in results.rows):
        raise typer.Exit(1)


def run() -> None:
    """Runs the command; an error that a user can cause is one line and exit status 1."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        typer.run(main)
    except ZeroError as error:
        typer.echo(f"benchmarks: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    run()
