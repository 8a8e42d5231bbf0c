"""The status of lineages for the terminal and for programs."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zero.config.settings import servers
from zero.record.generation import Generation
from zero.record.ledger import find_workspace
from zero.record.lineages import workspace_generations
from zero.record.texts import decision_word, entry_sentence, match_interval

LAST_DECISIONS = 10
HASH_DIGITS = 12
TEXT_WIDTHS = {"tag": 16, "decision": 8}
"""Least widths of the columns of text; longer texts wrap in a terminal of 80 columns."""


def pages_of(home: Path, lineage: str) -> dict[str, str]:
    """Pages about a lineage at the servers that run: its networks in MLflow, and the runs in Prefect."""
    pages = {"mlflow": f"/#/models/zero-{lineage}", "prefect": "/runs"}
    addresses = servers(home)
    return {name: addresses[name].rstrip("/") + page for name, page in pages.items() if name in addresses}


def warning_lines(generation: Generation) -> list[str]:
    """Warnings about a generation: the health of its training, and a champion that is still the random network."""
    entry, health = generation.entry, generation.health
    lines = [] if health is None else health.lines()
    if entry is not None and entry.decision is not None and entry.champion_generation == 0:
        lines.append(
            "the champion is still generation 0, the random network: no challenger has beaten it. Make the next "
            f"generation: `make generation LINEAGE={entry.lineage}`"
        )
    return lines


def print_status(home: Path, lineage: str) -> None:
    """Prints the champion, the last decisions and their costs, the health, and the warnings of a lineage."""
    workspace = find_workspace(home, lineage)
    console = Console()
    table = _table(f"lineage {lineage}", ("tag", "decision"), ("score", "interval", "unique"))
    table.add_column("champion (generation)", overflow="fold", min_width=HASH_DIGITS)
    with workspace_generations(workspace) as generations:
        shown, last = generations[-LAST_DECISIONS:], generations[-1]
        for generation in shown:
            table.add_row(*_row(generation))
        console.print(table)
        decided = [each for each in shown if each.entry and each.entry.decision]
        if any(each.costs for each in decided):
            console.print(_costs_table(decided))
        assert last.entry is not None
        console.print(
            f"champion {last.entry.champion[:12]} of generation {last.entry.champion_generation}; next is generation "
            f"{last.number + 1}\nworkspace {escape(str(workspace))}",
            soft_wrap=True,
        )
        if last.health is not None:
            console.print(f"training: {last.health.sentence()}", soft_wrap=True)
        for line in warning_lines(last):
            console.print(f"[yellow]warning:[/yellow] {escape(line)}", soft_wrap=True)


def status_json(home: Path, lineages: list[str]) -> dict[str, Any]:
    """The status of lineages for a program."""
    rows = {}
    for name in lineages:
        workspace = find_workspace(home, name)
        with workspace_generations(workspace) as generations:
            last = generations[-1]
            assert last.entry is not None
            rows[name] = {
                "workspace": str(workspace),
                "next_generation": last.number + 1,
                "tag": last.tag,
                "last": last.entry.model_dump(mode="json"),
                "warnings": warning_lines(last),
                "costs": {
                    each.tag: each.costs.model_dump(mode="json")
                    for each in generations
                    if each.entry and each.entry.decision and each.costs
                },
            }
    return {"home": str(home), "lineages": rows, "servers": servers(home)}


def _costs_table(generations: Iterable[Generation]) -> Table:
    """One row per generation; `?` for unknown costs."""
    table = _table("costs", ("tag",), ("wall", "CPU h", "GPU h", "games", "evaluations"))
    for generation in generations:
        if generation.costs is None:
            table.add_row(generation.tag, *("?" for _ in range(5)))
            continue
        total = generation.costs.total()
        evaluations = f"{total.evaluations:,}" + (" + ?" if total.shards_without_receipt else "")
        table.add_row(
            *(generation.tag, str(timedelta(seconds=round(total.seconds))), f"{total.cpu_seconds / 3600:.3f}"),
            *(f"{total.gpu_seconds / 3600:.3f}", f"{total.games:,}", evaluations),
        )
    return table


def _table(title: str, texts: Iterable[str], numbers: Iterable[str]) -> Table:
    """A table with columns of text on the left and of numbers on the right."""
    table = Table(title=title, title_justify="left")
    for column in texts:
        table.add_column(column, overflow="fold", min_width=TEXT_WIDTHS[column])
    for column in numbers:
        # A long heading wraps, so that the table fits a terminal of 80 columns; the numbers below a short one do not.
        table.add_column(column, justify="right", no_wrap=" " not in column)
    return table


def _row(generation: Generation) -> tuple[str, ...]:
    entry = generation.entry
    assert entry is not None
    champion = f"{entry.champion[:HASH_DIGITS]} ({entry.champion_generation})"
    if entry.decision is None:
        text = entry_sentence(entry) if entry.source else entry.kind
        return (generation.tag, text, "", "", "", champion)
    match = entry.decision.match
    low, high = match_interval(match)
    interval = f"{low:.0%} to {high:.0%}"
    return (generation.tag, decision_word(entry), f"{match.score:.1%}", interval, str(match.unique_games), champion)
