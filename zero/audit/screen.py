"""The audit for a person: one table, and each finding in a line below it."""

from rich.console import Console
from rich.table import Table

from zero.audit import Audit, Check, Mark

TABLE_WIDTH = 150
STYLES = {Mark.DRIFTED: "bold red", Mark.MISSING: "yellow", Mark.NOT_ASKED: "dim", Mark.NOTHING: "dim"}


def print_audit(found: Audit, seconds: float) -> None:
    """Prints an audit that took so long."""
    console = Console(width=max(TABLE_WIDTH, Console().width))
    table = Table(title="audit", title_justify="left")
    table.add_column("generation", no_wrap=True)
    table.add_column("line", no_wrap=True)
    for check in Check:
        table.add_column(check.value, no_wrap=True)
    for row in found.rows:
        marks = [f"[{STYLES[mark]}]{mark}[/]" if mark in STYLES else str(mark) for mark in row.marks.values()]
        table.add_row(row.tag, row.kind or "none", *marks)
    console.print(table)
    for finding in found.findings:
        console.print(finding.line(), style=STYLES[finding.mark], markup=False, highlight=False, soft_wrap=True)
    console.print(summary(found, seconds), highlight=False, soft_wrap=True)


def summary(found: Audit, seconds: float) -> str:
    """The last line: what it comes to."""
    drifts = sum(finding.mark == Mark.DRIFTED for finding in found.findings)
    missing = sum(finding.mark == Mark.MISSING for finding in found.findings)
    verdict = f"{drifts} drifted" if drifts else "nothing drifted"
    lacking = f", {missing} not here to be looked at" if missing else ""
    server = f"MLflow {found.mlflow}" if found.mlflow else "MLflow not asked"
    return f"{len(found.rows)} generations in {seconds:.1f} s: {verdict}{lacking} ({server})"
