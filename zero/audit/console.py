"""Prints an audit: one table, and a line for each finding below it."""

from rich.console import Console
from rich.table import Table

from zero.audit.findings import Audit, Check, Mark

TABLE_WIDTH = 172
"""Width with a mismatch in every column, so that no cell is cut off."""
STYLES = {Mark.MISMATCH: "bold red", Mark.MISSING: "yellow", Mark.NOT_CHECKED: "dim", Mark.NOT_APPLICABLE: "dim"}


def print_audit(found: Audit, seconds: float) -> None:
    """Prints an audit and the seconds that it took."""
    console = Console(width=max(TABLE_WIDTH, Console().width))
    table = Table(title="audit", title_justify="left")
    table.add_column("generation", no_wrap=True)
    table.add_column("kind", no_wrap=True)
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
    """The last line: number of generations, of mismatches, and of missing objects."""
    number = sum(finding.mark == Mark.MISMATCH for finding in found.findings)
    missing = sum(finding.mark == Mark.MISSING for finding in found.findings)
    verdict = f"{number or 'no'} mismatch{'' if number == 1 else 'es'}"
    incomplete = f", {missing} missing and not checked" if missing else ""
    server = f"MLflow {found.mlflow}" if found.mlflow else "MLflow not checked"
    return f"{len(found.rows)} generations in {seconds:.1f} s: {verdict}{incomplete} ({server})"
