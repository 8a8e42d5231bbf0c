"""Where a project stands and what to do next: `zero` without a command, and the end of `make generation`."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from zero.config.params import PARAMS_FILE
from zero.config.settings import servers
from zero.errors import LineageError
from zero.lineage.workspace import writer_of
from zero.record.ledger import find_workspace, generation_tag, lineages_here, read_ledger
from zero.record.texts import decision_word, entry_lines, entry_sentence, score_text
from zero.storage.layout import LEDGER_FILE, workspace_dir

HEADINGS = ("lineage", "generation", "champion", "last decision and score")
SERVER_NAMES = {"web": "page", "prefect": "Prefect", "mlflow": "MLflow"}
CONNECT_SECONDS = 0.2
"""Timeout of a connection to a server of this machine."""


def overview_lines(home: Path) -> list[str]:
    """The lineages, the servers that answer, and the next commands."""
    zero, names = zero_command(), lineages_here(home)
    shipped = (f"{zero} play shipped:go9", "play 9x9 Go now, against a player that is included")
    page, commands = (f"{zero} web", "play and look at games in the browser"), (f"{zero} --help", "all commands")
    if not names and not (home / PARAMS_FILE).exists():
        here = ("cd PROJECT", f"change into the project's folder, which has a {PARAMS_FILE}, or set ZERO_HOME")
        return [f"{home} is not a project: it has no {PARAMS_FILE}", *_steps(here, shipped, commands)]
    if not names:
        first = ("make generation", "start the servers, create the lineage go9, make its first generation")
        return [f"project {home}: no lineage yet", *_steps(first, page, shipped, commands)]
    # `zero advance` replaces the ledger, so its time is that of the lineage's last generation.
    newest = max(names, key=lambda name: (workspace_dir(home, name) / LEDGER_FILE).stat().st_mtime)
    writers = {name: writer for name in names if (writer := writer_of(workspace_dir(home, name)))}
    following = (f"make generation LINEAGE={newest}", "make the next generation")
    if newest in writers:
        following = (f"{zero} stop {newest}", "end its campaign after the current generation")
    addresses = answering_servers(home)
    return [
        f"project {home}",
        "",
        *_table([HEADINGS, *(_row(home, name) for name in names)]),
        *(f"process {writer} is writing {name} now" for name, writer in writers.items()),
        "",
        *(
            _table([(SERVER_NAMES[name], address) for name, address in addresses.items()])
            or ["the servers do not run; `make up` starts them"]
        ),
        *_steps(
            following,
            *([] if "web" in addresses else [page]),
            (f"{zero} play {newest}", "play against it"),
            (f"{zero} status {newest}", "all decisions, costs and warnings"),
            commands,
        ),
    ]


def closing_lines(home: Path, lineage: str) -> list[str]:
    """The last decision of a lineage, where to look at it, and what to do next: five lines.

    Raises:
      LineageError: the lineage is unknown, or its ledger is damaged.
    """
    entry = read_ledger(find_workspace(home, lineage))[-1]
    tag, addresses = generation_tag(lineage, entry.generation), answering_servers(home)
    page, play = addresses.get("web", "").rstrip("/"), f"{zero_command()} play {tag}"
    look = f"{page}/#/lineages/{lineage}/{entry.generation}" if page else addresses.get("mlflow")
    return [
        entry_lines(entry)[0],
        *_table(
            [
                ("look at it:", look or f"{zero_command()} status {lineage}"),
                ("play it:", f"{page}/#/play or {play}" if page else play),
                ("next generation:", f"make generation LINEAGE={lineage}"),
                ("stop:", "make down"),
            ]
        ),
    ]


def zero_command() -> str:
    """How a shell in the current folder starts `zero`: by its path, unless its virtual environment is active."""
    if sys.prefix == sys.base_prefix or os.environ.get("VIRTUAL_ENV") == sys.prefix:
        return "zero"
    path, here = Path(sys.prefix, "bin", "zero"), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def answering_servers(home: Path) -> dict[str, str]:
    """Addresses of the servers of `make up` that accept connections now."""
    found = {}
    for name, address in servers(home).items():
        # The list of addresses outlives servers that were killed, so each one is tried.
        parts = urlsplit(address)
        try:
            socket.create_connection((parts.hostname, parts.port), CONNECT_SECONDS).close()
        except (OSError, ValueError):
            continue
        found[name] = address
    return found


def _row(home: Path, lineage: str) -> tuple[str, str, str, str]:
    try:
        entry = read_ledger(workspace_dir(home, lineage))[-1]
    except LineageError as error:
        return lineage, "?", "?", str(error)
    decision = entry.decision
    last = f"{decision_word(entry)}, {score_text(decision.match)}" if decision else entry_sentence(entry)
    return lineage, str(entry.generation), f"generation {entry.champion_generation}", last


def _steps(*steps: tuple[str, str]) -> list[str]:
    return ["", "next:", *(f"  {line}" for line in _table(steps))]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of left-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
