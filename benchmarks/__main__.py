"""`python -m benchmarks`: measures the rows, prints the table, writes it as JSON, compares it with an earlier run."""

import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmarks.harness import Context
from benchmarks.results import Results, Settings, describe_machine, read_results
from benchmarks.rows import FAILED, ROWS, measure_row, rows_named
from benchmarks.setting import GO9, params_of
from benchmarks.table import comparison, table
from zero.errors import ZeroError
from zero.progress import progress_of
from zero.storage.files import write_manifest

NAMES = ", ".join(row.name for row in ROWS)


def main(
    rows: Annotated[str, typer.Option(help=f"Rows to measure, separated by commas; by default all: {NAMES}.")] = "",
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds per measurement of one side.")] = 5.0,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; medians are shown.")] = 5,
    out: Annotated[Path | None, typer.Option(help="JSON file to write the results into.")] = None,
    compare: Annotated[Path | None, typer.Option(help="JSON file of an earlier run to compare with.")] = None,
    show: Annotated[Path | None, typer.Option(help="JSON file of an earlier run to show instead of measuring.")] = None,
    backend: Annotated[
        Literal["torch", "openvino"], typer.Option(help="Library that runs the networks on the CPU.")
    ] = "openvino",
    precision: Annotated[Literal["fp32", "bf16"], typer.Option(help="Precision of the networks on the CPU.")] = "fp32",
) -> None:
    """Measures the speed of the project and prints a Markdown table. Exit status 1 if a row fails."""
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
        measured = []
        with progress_of("bench", "rows") as progress:
            progress(0, len(specs))
            for spec in specs:
                measured.append(measure_row(spec, Context(seconds, repeats, profile, cores)))
                progress(len(measured), len(specs))
        results = Results(machine=machine, settings=settings, rows=tuple(measured))
        if out:
            write_manifest(out.parent, results, out.name)
    typer.echo(table(results))
    if earlier:
        typer.echo("\n" + comparison(earlier, results))
    if any(row.note.startswith(FAILED) for row in results.rows):
        raise typer.Exit(1)


def run() -> None:
    """Runs the command. An error that a user can cause is one line and exit status 1."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        typer.run(main)
    except ZeroError as error:
        typer.echo(f"benchmarks: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    run()
