"""Shows results as aligned Markdown: the table of a run, and the comparison of two runs."""

from collections.abc import Sequence

from benchmarks.results import Machine, Results, Row, Spread, Target

NOTHING = "–"
GIBIBYTE = 2**30


def table(results: Results) -> str:
    """The machine, a row for each benchmark, and the additional figures."""
    head = ("row", "work", "figure", "against", "ratio (lowest, highest)", "target", "reached")
    lines = [
        (
            *(f"`{row.name}`", row.work, _with_unit(row.figure, row.unit), _rival(row), _ratio(row.ratio)),
            *(" and ".join(map(_target, row.targets)), _reached(row)),
        )
        for row in results.rows
    ]
    details = [
        f"- `{row.name}`: "
        + "; ".join(f"{each.name} {number(each.value)} {each.unit}".rstrip() for each in row.details)
        for row in results.rows
        if row.details
    ]
    machine = [f"{line}  " for line in _machine_lines(results)]
    return "\n".join([*machine, "", *_markdown([head, *lines]), *(["", *details] if details else [])])


def comparison(old: Results, new: Results) -> str:
    """The rows that both runs have: figures, their quotient, and the ratios to the rivals."""
    head = ("row", "old", "new", "unit", "new : old", "ratio, old", "ratio, new")
    before = {row.name: row for row in old.rows}
    lines = [_compared(before[row.name], row) for row in new.rows if row.name in before]
    notes = [
        f"note: the {name} differs: it was {was}, it is {now}; compare the ratios only"
        for name, was, now in _differences(old.machine, new.machine)
    ]
    if old.settings != new.settings:
        notes.append(f"note: the settings differ: they were {old.settings}, they are {new.settings}")
    return "\n".join([*notes, *([""] if notes else []), *_markdown([head, *lines])])


def number(value: float) -> str:
    """Three significant digits, or all digits before the point, with commas."""
    size = abs(value)
    digits = 0 if size >= 100 else 1 if size >= 10 else 2
    return f"{value:,.{digits}f}"


def _machine_lines(results: Results) -> list[str]:
    machine, settings = results.machine, results.settings
    state = " with changes" if machine.dirty else ""
    memory = f"{machine.memory_bytes / GIBIBYTE:.0f} GiB"
    libraries = ", ".join(f"{name} {version}" for name, version in machine.libraries.items())
    return [
        f"{machine.cpu}, {machine.cores} cores ({', '.join(machine.isa)}), {memory}, {machine.gpu or 'no GPU'}",
        f"{machine.system}, Python {machine.python}, {libraries}",
        f"commit {machine.commit[:12] or 'unknown'}{state}; load before the run {machine.load:.1f}",
        f"networks with {settings.backend} in {settings.precision}; "
        f"medians of {settings.repeats} rounds of {settings.seconds:g} s per side",
    ]


def _markdown(lines: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table with aligned columns; the first line is its head."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rows = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return [rows[0], "| " + " | ".join("-" * width for width in widths) + " |", *rows[1:]]


def _figure(spread: Spread | None) -> str:
    return NOTHING if spread is None else number(spread.median)


def _with_unit(spread: Spread | None, unit: str) -> str:
    return NOTHING if spread is None else f"{number(spread.median)} {unit}"


def _ratio(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.2f} ({spread.low:.2f}, {spread.high:.2f})"


def _rival(row: Row) -> str:
    return f"{row.rival}: {_figure(row.rival_figure)}" if row.rival and row.rival_figure else row.rival


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
