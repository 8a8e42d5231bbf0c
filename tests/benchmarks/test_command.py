"""The command `python -m benchmarks`, its rows, tables and files."""

import os
import subprocess
import sys
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks.results import (
    PROJECT_DIR,
    Results,
    Row,
    Spread,
    comparison_text,
    read_results,
    results_text,
    rows_named,
)
from benchmarks.setting import ON_CPU, params_of
from tests.benchmarks.commands import cells, exit_status
from zero.storage.files import write_manifest

EARLIER = PROJECT_DIR / "benchmarks/results/two-xeon-cores.json"


def spread(median: float) -> Spread:
    return Spread(median=median, low=0.9 * median, high=1.2 * median)


def row(name: str, figure: float | None, ratio: float | None = None, **fields: Any) -> Row:
    return Row(
        name=name,
        work=f"work of {name}",
        unit="simulations/s",
        figure=None if figure is None else spread(figure),
        rival="" if ratio is None else "the rival",
        rival_figure=None if ratio is None or figure is None else spread(figure / ratio),
        ratio=None if ratio is None else spread(ratio),
        **fields,
    )


def run_of(*rows: Row, cpu: str = "Zen 4", seconds: float = 5.0) -> Results:
    machine: dict[str, Any] = {"cpu": cpu, "cores": 2, "gpu": "", "load": 0.25, "libraries": {"numba": "0.68.1"}}
    settings: dict[str, Any] = {"backend": "openvino", "precision": "fp32", "seconds": seconds, "repeats": 3}
    return Results(machine=machine, settings=settings, rows=rows)


def test_a_short_run_is_printed_written_and_compared(tmp_path):
    out = tmp_path / "folder" / "run.json"
    words = ["--rows", "gpu-10x128,search,memory-9x9", "--seconds", "0.01", "--repeats", "2", "--out", str(out)]
    command = [sys.executable, "-m", "benchmarks", *words, "--compare", str(EARLIER)]
    environment = os.environ | {"ZERO_PROGRESS": "off"}
    done = subprocess.run(command, cwd=PROJECT_DIR, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    results = read_results(out)
    by_name = {row.name: row for row in results.rows}
    assert [*by_name] == ["search", "memory-9x9", "gpu-10x128"], "in the order of the table"
    search, memory = by_name["search"].figure, by_name["memory-9x9"].figure
    assert search is not None and 100 < search.low <= search.median <= search.high < 10_000_000
    assert memory is not None and 0.1 < memory.median < 10
    assert by_name["gpu-10x128"].figure or by_name["gpu-10x128"].note == "no GPU (an NVIDIA driver)"
    assert results.machine["cores"] == len(os.sched_getaffinity(0)) and results.settings["repeats"] == 2
    assert [each[0] for each in cells(done.stdout.split("note:")[0])[2:]] == [f"`{name}`" for name in by_name]
    assert cells(done.stdout.split("note:")[-1])[2][:3] == ["search", "264,724", f"{search.median:,.0f}"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rows", "serach"), "unknown row 'serach'; --rows must be some of search,"),
        (("--compare", "none.json"), "cannot read none.json: No such file or directory; write one with --out"),
        (("--compare", "pyproject.toml"), "pyproject.toml does not contain benchmark results"),
    ],
)
def test_an_error_is_one_line(words, message, monkeypatch, capsys):
    assert exit_status(monkeypatch, program.main, "benchmarks", *words) == 1
    out, err = capsys.readouterr()
    assert err.startswith(f"benchmarks: {message}")
    assert err.count("\n") == 1
    assert out == ""


def test_the_work_and_the_targets_of_the_rows():
    rows = {row.name: row for row in rows_named("")}
    targets = {name: row.target for name, row in rows.items()}
    assert targets["search"] == "figure >= 250000"
    assert targets["selfplay-4x32"] == targets["selfplay-6x64"] == "ratio >= 0.95"
    assert targets["leela-zero"] == targets["pgx-mctx"] == "ratio >= 3.0"
    assert targets["gpu-10x128"] == "figure >= 200000 and ratio >= 0.85"
    for row in rows.values():
        assert row.ours is not None and row.reached() is None
        ours = params_of(row.ours, ON_CPU)
        if row.against is not None:
            assert params_of(row.against, ON_CPU) == ours, "both sides do the same work"
        if row.name == "leela-zero":
            network, selfplay = ours.network, ours.selfplay
            assert (network.num_blocks, network.num_channels, network.value_hidden) == (6, 64, 256)
            assert (ours.game.size, selfplay.num_simulations, selfplay.num_slots) == (19, 200, 32)
        if row.name.startswith("memory"):
            assert ours.selfplay.num_simulations == (200 if row.name == "memory-9x9" else 1600)
        assert (ours.profile.device == "cuda") is row.name.startswith("gpu-")


def test_unchanged_fields_are_those_of_the_preset():
    side = rows_named("selfplay-6x64")[0].ours
    assert side is not None
    params, preset = params_of(side, ON_CPU), params_of(side.model_copy(update={"changes": {}}), ON_CPU)
    assert (params.network.num_blocks, params.network.num_channels) == (6, 64)
    assert params.model_copy(update={"network": preset.network}) == preset


@pytest.mark.parametrize(
    ("made", "reached"),
    [
        (row("a", 250_000, target="figure >= 250000"), True),
        (row("a", 249_999, target="figure >= 250000"), False),
        (row("a", 1.0, target="figure <= 1.0"), True),
        (row("a", 1.1, target="figure <= 1.0"), False),
        (row("a", 1, 1.99, target="ratio >= 2"), False),
        (row("a", 3, 1.0, target="figure >= 2 and ratio >= 2"), False),
        (row("a", 3, 3.0, target="figure >= 2 and ratio >= 2"), True),
        (row("a", 3), None),
        (row("a", None, target="figure >= 2", note="no GPU"), None),
    ],
)
def test_a_row_is_reached_if_all_its_targets_are(made, reached):
    assert made.reached() is reached


def test_a_row_has_work_figure_rival_ratio_and_target():
    rows = (row("selfplay", 9_175, 2.5, target="ratio >= 2.0"), row("gpu", None, target="ratio >= 1", note="no GPU"))
    text = results_text(run_of(*rows, row("memory", 0.987), row("startup", 31.25)))
    assert text.startswith("cpu Zen 4, cores 2, load 0.25, ") and "numba 0.68.1" in text and "seconds 5.0" in text
    selfplay, gpu, memory, startup = cells(text)[2:]
    assert selfplay == [
        "`selfplay`", "work of selfplay", "9,175 simulations/s", "the rival: 3,670", "2.50 (2.25, 3.00)",
        "ratio >= 2.0", "yes",
    ]  # fmt: skip
    assert gpu == ["`gpu`", "work of gpu", "–", "", "", "ratio >= 1", "no GPU"]
    assert (memory[2], startup[2], startup[6]) == ("0.99 simulations/s", "31.2 simulations/s", "")


def test_two_runs_are_compared_row_by_row():
    old = run_of(row("search", 200_000), row("selfplay", 100, 2.0), row("gone", 1), row("gpu", 5))
    new = run_of(row("search", 250_000), row("selfplay", 90, 2.2), row("new", 1), row("gpu", None))
    assert "note" not in comparison_text(old, new)
    assert cells(comparison_text(old, new))[2:] == [
        ["search", "200,000", "250,000", "simulations/s", "1.25", "", ""],
        ["selfplay", "100", "90.0", "simulations/s", "0.90", "2.00", "2.20"],
        ["gpu", "5.00", "–", "simulations/s", "", "", ""],
    ]
    assert "note: cpu was Zen 4, it is Zen 5" in comparison_text(old, run_of(row("search", 1), cpu="Zen 5"))
    assert "note: seconds was 5.0, it is 1.0" in comparison_text(old, run_of(row("search", 1), seconds=1.0))
    other = old.model_copy(update={"settings": {}})  # as of `benchmarks.workers`
    assert "note: repeats was None, it is 3" in comparison_text(other, new)


def test_a_run_is_read_as_it_was_written(tmp_path):
    results = run_of(row("a", 1.5, 2.0, target="ratio >= 2"), row("b", None, note="no GPU"))
    write_manifest(tmp_path / "new", results, "run.json")
    assert read_results(tmp_path / "new" / "run.json") == results
