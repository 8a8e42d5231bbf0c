"""`python -m benchmarks`: measures the rows, prints the table, writes it as JSON, compares it with an earlier run."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmarks.harness import ONE_THREAD, measure
from benchmarks.results import (
    FAILED,
    Results,
    comparison_text,
    describe_machine,
    read_results,
    results_text,
    rows_named,
    run_command,
)
from zero.progress import progress_of
from zero.storage.files import write_manifest


def main(
    rows: Annotated[str, typer.Option(help="Rows to measure, separated by commas; by default all.")] = "",
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds per measurement of one side.")] = 5.0,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; medians are shown.")] = 5,
    out: Annotated[Path | None, typer.Option(help="JSON file to write the results into.")] = None,
    compare: Annotated[Path | None, typer.Option(help="JSON file of an earlier run to compare with.")] = None,
    backend: Annotated[
        Literal["torch", "openvino"], typer.Option(help="Library that runs the networks on the CPU.")
    ] = "openvino",
    precision: Annotated[Literal["fp32", "bf16"], typer.Option(help="Precision of the networks on the CPU.")] = "fp32",
) -> None:
    """Measures the speed of the project and prints a Markdown table. Exit status 1 if a row fails."""
    earlier = read_results(compare) if compare else None
    chosen = rows_named(rows)
    profile = {"device": "cpu", "backend": backend, "precision": precision, "isa": "native", "selfplay_threads": 1}
    settings = {"backend": backend, "precision": precision, "seconds": seconds, "repeats": repeats}
    machine = describe_machine()
    os.environ.update(ONE_THREAD)  # for the children; this process has no work
    measured = []
    with progress_of("bench", "rows") as progress:
        progress(0, len(chosen))
        for row in chosen:
            measured.append(measure(row, profile, seconds, repeats))
            progress(len(measured), len(chosen))
    results = Results(machine=machine, settings=settings, rows=tuple(measured))
    if out:
        write_manifest(out.parent, results, out.name)
    typer.echo(results_text(results))
    if earlier:
        typer.echo("\n" + comparison_text(earlier, results))
    if any(row.note.startswith(FAILED) for row in results.rows):
        raise typer.Exit(1)


if __name__ == "__main__":
    run_command(main, "benchmarks")
