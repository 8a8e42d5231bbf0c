"""Results for people: the table of a run, the page's Markdown, and two runs side by side."""

from collections.abc import Sequence

from benchmarks.machine import Machine
from benchmarks.results import Results, Row, Spread, Target

NOTHING = "–"
GIBIBYTE = 2**30
"""Machines are told in GiB."""


def table(results: Results) -> str:
    """One table of all rows, below the machine."""
    head = ("row", "figure", "unit", "ratio (lowest, highest)", "target", "reached")
    lines = [
        (row.name, _figure(row.figure), row.unit, _ratio(row.ratio), _targets(row), _reached(row))
        for row in results.rows
    ]
    return "\n".join([*machine_lines(results), "", *_columns([head, *lines], right=(1,))])


def markdown(results: Results) -> str:
    """The same for a page, with what was done and what each row is against."""
    head = ("row", "work", "figure", "against", "ratio", "target", "reached")
    lines = [
        (
            *(f"`{row.name}`", row.work, _with_unit(row.figure, row.unit), _rival(row), _ratio(row.ratio)),
            *(_targets(row), _reached(row)),
        )
        for row in results.rows
    ]
    details = [
        f"- `{row.name}`: "
        + "; ".join(f"{each.name} {number(each.value)} {each.unit}".rstrip() for each in row.details)
        for row in results.rows
        if row.details
    ]
    rows = ["| " + " | ".join(cells) + " |" for cells in (head, ("---",) * len(head), *lines)]
    return "\n".join([*(f"{line}  " for line in machine_lines(results)), "", *rows, "", "Beside these:", "", *details])


def comparison(old: Results, new: Results) -> str:
    """Each row that both runs have: figures, what became of them, and the ratios to the rivals."""
    head = ("row", "old", "new", "unit", "new : old", "ratio, old", "ratio, new")
    before = {row.name: row for row in old.rows}
    lines = [_compared(before[row.name], row) for row in new.rows if row.name in before]
    warnings = [
        f"note: the {name} differs: {was} then, {now} now; compare the ratios alone"
        for name, was, now in _differences(old.machine, new.machine)
    ]
    if old.settings != new.settings:
        warnings.append(f"note: the settings differ: {old.settings} then, {new.settings} now")
    return "\n".join([*warnings, *_columns([head, *lines], right=(1, 2, 4, 5, 6))])


def machine_lines(results: Results) -> list[str]:
    """The machine, the sources and what was asked for."""
    machine, settings = results.machine, results.settings
    state = " with changes" if machine.dirty else ""
    memory = f"{machine.memory_bytes / GIBIBYTE:.0f} GiB"
    return [
        f"{machine.cpu}, {machine.cores} cores ({', '.join(machine.isa)}), {memory}, {machine.gpu or 'no GPU'}",
        f"{machine.system}, Python {machine.python}, "
        + ", ".join(f"{name} {version}" for name, version in machine.libraries.items()),
        f"commit {machine.commit[:12] or 'unknown'}{state}; load before the run {machine.load:.1f}",
        f"networks by {settings.backend} in {settings.precision}; "
        f"medians of {settings.repeats} rounds of {settings.seconds:g} s a side",
    ]


def number(value: float) -> str:
    """Three digits or all before the point, with commas."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:,.{digits}f}"


def _figure(spread: Spread | None) -> str:
    return NOTHING if spread is None else number(spread.median)


def _with_unit(spread: Spread | None, unit: str) -> str:
    return NOTHING if spread is None else f"{number(spread.median)} {unit}"


def _ratio(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.2f} ({spread.low:.2f}, {spread.high:.2f})"


def _rival(row: Row) -> str:
    if not row.rival:
        return ""
    return row.rival if row.rival_figure is None else f"{row.rival}: {_figure(row.rival_figure)}"


def _targets(row: Row) -> str:
    return " and ".join(_target(target) for target in row.targets)


def _target(target: Target) -> str:
    value = number(target.value) if target.of == "figure" else f"{target.value:.2f}x"
    return value if target.sense == "at least" else f"at most {value}"


def _reached(row: Row) -> str:
    reached = row.reached()
    if reached is None:
        return row.note
    return "yes" if reached else "no"


def _compared(old: Row, new: Row) -> tuple[str, ...]:
    change = "" if old.figure is None or new.figure is None else f"{new.figure.median / old.figure.median:.2f}"
    ratios = [f"{row.ratio.median:.2f}" if row.ratio else "" for row in (old, new)]
    return (new.name, _figure(old.figure), _figure(new.figure), new.unit, change, *ratios)


def _differences(old: Machine, new: Machine) -> list[tuple[str, str, str]]:
    names = ("cpu", "cores", "isa", "gpu")
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in names]
    return [(name, str(was), str(now)) for name, was, now in pairs if was != now]


def _columns(lines: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Lines with their cells below each other; the first is the head. Columns of `right` end below each other."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    padded = [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    rule = "  ".join("-" * width for width in widths)
    return [padded[0].rstrip(), rule, *(line.rstrip() for line in padded[1:])]
