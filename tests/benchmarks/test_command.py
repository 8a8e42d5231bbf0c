"""The command `python -m benchmarks`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import run
from benchmarks.harness import Measured, not_measured
from benchmarks.results import read_results
from benchmarks.rows import ROWS, RowSpec, at_least, measure_row, ratio_of
from tests.benchmarks.runs import FASTEST, row, run_of, short_context, spread
from zero.errors import WorkerError
from zero.storage.files import write_manifest

PROJECT = Path(__file__).parents[2]


def benchmarks(*words: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"COLUMNS": "200", "ZERO_PROGRESS": "off"}
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)


def main(monkeypatch, *words):
    """Exit status of the command in this process."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    with pytest.raises(SystemExit) as end:
        run()
    return end.value.code


def test_a_short_run_is_printed_written_and_compared(tmp_path, monkeypatch, capsys):
    earlier, out = tmp_path / "earlier.json", tmp_path / "folder" / "run.json"
    write_manifest(tmp_path, run_of(row("search", 1_000.0, None, FASTEST), row("gpu-10x128", None)), earlier.name)
    rows = ("--rows", "gpu-10x128,search,memory-9x9")
    done = benchmarks(*rows, "--seconds", "0.01", "--repeats", "3", "--out", str(out), "--compare", str(earlier))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    results = read_results(out)
    assert [row.name for row in results.rows] == ["search", "memory-9x9", "gpu-10x128"]
    by_name = {row.name: row for row in results.rows}
    search = by_name["search"].figure
    assert search is not None and 1_000 < search.low <= search.median <= search.high < 10_000_000
    assert {target.value for target in by_name["search"].targets} == {250_000}
    memory = by_name["memory-9x9"]
    assert memory.figure is not None and 0.1 < memory.figure.median < 10
    assert memory.details[0].name == "arrays of a game"
    assert by_name["gpu-10x128"].figure is not None or by_name["gpu-10x128"].note == "no GPU"
    assert results.machine.cores == len(os.sched_getaffinity(0))
    assert results.machine.memory_bytes > 2**28
    assert results.settings.repeats == 3

    table = done.stdout.split("\n\n")[1]
    assert [line.split()[1] for line in table.splitlines()[2:]] == [f"`{row.name}`" for row in results.rows]
    compared = done.stdout.splitlines()[-2].split()
    assert compared[:6] == ["|", "search", "|", "1,000", "|", f"{search.median:,.0f}"]
    assert main(monkeypatch, "--show", str(out)) == 0
    assert capsys.readouterr().out.split("\n\n")[1] == table


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rows", "serach"), "unknown row 'serach'; --rows must be some of search,"),
        (("--compare", "none.json"), "cannot read none.json: No such file or directory; write one with --out"),
        (("--show", "pyproject.toml"), "pyproject.toml does not contain benchmark results"),
    ],
)
def test_an_error_is_one_line(words, message, monkeypatch, capsys):
    assert main(monkeypatch, *words) == 1
    out, err = capsys.readouterr()
    assert err.startswith(f"benchmarks: {message}")
    assert err.count("\n") == 1
    assert out == ""


def test_a_row_that_fails_has_a_note_and_the_others_are_measured():
    def fail(context):
        raise WorkerError("the child died")

    def work(context):
        return Measured(spread(7.0))

    def cannot(context):
        return not_measured("no GPU")

    specs = [RowSpec(name, "", "s", measure) for name, measure in (("a", fail), ("b", work), ("c", cannot))]
    rows = [measure_row(spec, short_context()) for spec in specs]
    assert [(row.name, row.note) for row in rows] == [("a", "failed: the child died"), ("b", ""), ("c", "no GPU")]
    assert rows[1].figure == spread(7.0)


def test_the_table_has_the_targets():
    targets = {row.name: row.targets for row in ROWS if row.targets}
    assert targets["selfplay-4x32"] == targets["selfplay-6x64"] == ratio_of(0.95)
    assert targets["leela-zero"] == targets["pgx-mctx"] == ratio_of(3.0)
    assert targets["gpu-10x128"] == (*at_least(200_000), *ratio_of(0.85))
    assert len({row.name for row in ROWS}) == len(ROWS)
