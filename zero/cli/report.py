"""The command that writes the report of a generation."""

from pathlib import Path
from typing import Annotated

import typer

from zero.cli.app import LINEAGES, Json, app
from zero.config.settings import home_dir

REPORT_FILE = "report.html"


@app.command(rich_help_panel=LINEAGES)
def report(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TAG | LINEAGE", help="A generation, such as go9/gen-0012, or a lineage, for its newest generation."
        ),
    ] = "go9",
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path(REPORT_FILE),
    as_json: Json = False,
) -> None:
    """Writes the report of a generation as one HTML file, which a browser opens without a server or a network.

    It shows the decision, the games, the training, its health, resignation, openings, costs and digests.
    """
    from zero.storage.files import write_atomic
    from zero.web.report import report_html, report_of

    found = report_of(home_dir(), target)
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    write_atomic(out, report_html(found))
    typer.echo(f"{out}: the report of {found.tag}")


def report_file(home: Path, tag: str) -> dict[str, bytes]:
    """The report of a generation as a file of its run in MLflow. An error is only a warning: no data is lost."""
    from zero.web.report import report_html, report_of

    try:
        return {REPORT_FILE: report_html(report_of(home, tag))}
    except Exception as error:
        typer.echo(f"warning: {tag} has no report: {error}; write it with `zero report {tag}`", err=True)
        return {}
