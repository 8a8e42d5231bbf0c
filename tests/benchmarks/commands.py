"""Commands of the benchmarks in the process of the test, and the tables that they print."""

import sys
from collections.abc import Callable

import pytest

from benchmarks.results import run_command


def exit_status(monkeypatch: pytest.MonkeyPatch, main: Callable[..., None], name: str, *words: str) -> int:
    """Runs a command with these words; returns its exit status."""
    monkeypatch.setattr(sys, "argv", [name, *words])
    with pytest.raises(SystemExit) as end:
        run_command(main, name)
    return int(end.value.code or 0)


def cells(text: str) -> list[list[str]]:
    """The cells of the Markdown tables in a text, row by row, titles and rules among them."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
