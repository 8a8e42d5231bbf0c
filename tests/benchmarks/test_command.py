"""The command `python -m benchmarks`, as a person types it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results import read_results, write_results
from benchmarks.rounds import Measured, not_measured
from benchmarks.rows import ROWS, RowSpec, at_least, measure_rows, ratio_of
from tests.benchmarks.runs import FASTEST, row, run_of, short_context, spread
from zero.errors import WorkerError

PROJECT = Path(__file__).parents[2]


def benchmarks(*words: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"COLUMNS": "200", "ZERO_PROGRESS": ""}
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


def test_a_short_run_is_printed_written_and_compared(tmp_path):
    earlier, out = tmp_path / "earlier.json", tmp_path / "folder" / "run.json"
    write_results(earlier, run_of(row("search", 1_000.0, None, FASTEST), row("gpu-10x128", None)))
    rows = ("--rows", "gpu-10x128,search,memory-9x9,startup-search")
    done = benchmarks(*rows, "--seconds", "0.01", "--repeats", "3", "--out", str(out), "--compare", str(earlier))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    results = read_results(out)
    assert [row.name for row in results.rows] == ["search", "memory-9x9", "startup-search", "gpu-10x128"]
    by_name = {row.name: row for row in results.rows}
    search = by_name["search"].figure
    assert search is not None and 1_000 < search.low <= search.median <= search.high < 10_000_000
    assert {target.value for target in by_name["search"].targets} == {250_000}
    memory = by_name["memory-9x9"]
    assert memory.figure is not None and 0.1 < memory.figure.median < 10
    assert memory.details[0].name == "arrays of a game"
    assert by_name["startup-search"].figure is not None
    assert by_name["gpu-10x128"].figure is not None or by_name["gpu-10x128"].note == "no GPU here"
    assert results.machine.cores == len(os.sched_getaffinity(0))
    assert results.machine.memory_bytes > 2**28
    assert results.settings.repeats == 3

    table, compared = done.stdout.split("\n\n")[1:]
    assert [line.split()[0] for line in table.splitlines()[2:]] == [row.name for row in results.rows]
    assert compared.splitlines()[-2].split()[:3] == ["search", "1,000", f"{search.median:,.0f}"]

    shown = benchmarks("--show", str(out))
    assert shown.stdout.split("\n\n")[1] == table + "\n"
    page = benchmarks("--show", str(out), "--markdown")
    assert [line for line in page.stdout.splitlines() if line.startswith("| `search` | search alone, 9x9")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rows", "serach"), "there is no benchmark 'serach'; --rows takes some of search,"),
        (("--compare", "none.json"), "cannot read none.json: No such file or directory; write one with --out"),
        (("--show", "pyproject.toml"), "pyproject.toml holds no benchmark results"),
    ],
)
def test_a_slip_is_one_line(words, said):
    done = benchmarks(*words)
    assert done.returncode == 1
    assert done.stderr.startswith(f"benchmarks: {said}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_row_that_fails_says_so_and_the_others_are_measured():
    def fail(context):
        context.tick()
        raise WorkerError("the child died")

    def work(context):
        for _ in range(context.repeats):
            context.tick()
        return Measured(spread(7.0))

    def cannot(context):
        return not_measured("no GPU here")

    specs = [RowSpec(name, "", "s", "", (), measure) for name, measure in (("a", fail), ("b", work), ("c", cannot))]
    done: list[int] = []
    rows = measure_rows(specs, short_context(3), done.append)
    assert [(row.name, row.note) for row in rows] == [("a", "failed: the child died"), ("b", ""), ("c", "no GPU here")]
    assert rows[1].figure == spread(7.0)
    assert done == [1, 3, 4, 5, 6, 6, 9]  # rounds that are over


def test_the_table_has_the_targets():
    targets = {row.name: row.targets for row in ROWS if row.targets}
    assert targets["selfplay-4x32"] == targets["selfplay-6x64"] == ratio_of(0.95)
    assert targets["leela-zero"] == targets["pgx-mctx"] == ratio_of(3.0)
    assert targets["gpu-10x128"] == (*at_least(200_000), *ratio_of(0.85))
    assert len({row.name for row in ROWS}) == len(ROWS)
