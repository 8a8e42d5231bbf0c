"""The table and the comparison."""

from benchmarks.table import comparison, number, table
from tests.benchmarks.runs import FASTEST, MACHINE, SETTINGS, SMALLEST, TWICE, row, run_of

ROWS = (
    row("search", 228_089.4, None, FASTEST),
    row("selfplay", 9_175, 2.5, TWICE),
    row("memory", 0.987, None, SMALLEST),
    row("gpu", None, None, FASTEST, TWICE, note="no GPU"),
    row("noise", 31.25),
)


def test_machine_sources_and_settings_are_above_the_table():
    text = table(run_of(*ROWS))
    for part in ("Zen 4, 2 cores (avx2, avx512f), 24 GiB, no GPU", "commit 0123456789ab;", "numba 0.68.1", "load"):
        assert part in text
    assert "networks with openvino in fp32; medians of 3 rounds of 5 s per side" in text
    dirty = MACHINE.model_copy(update={"dirty": True, "gpu": "NVIDIA H100"})
    assert "commit 0123456789ab with changes;" in table(run_of(*ROWS, machine=dirty))
    assert "24 GiB, NVIDIA H100" in table(run_of(*ROWS, machine=dirty))


def cells(text: str) -> list[list[str]]:
    """The cells of the rows of a Markdown table."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")][2:]


def test_a_row_has_work_figure_rival_ratio_and_target():
    text = table(run_of(*ROWS))
    rows = cells(text)
    assert rows[1] == [
        "`selfplay`", "work of selfplay", "9,175 simulations/s", "the rival: 3,670", "2.50 (2.25, 3.00)", "2.00x", "yes"
    ]  # fmt: skip
    assert rows[3] == ["`gpu`", "work of gpu", "–", "", "", "250,000 and 2.00x", "no GPU"]
    assert [row[5] for row in rows] == ["250,000", "2.00x", "at most 1.00", "250,000 and 2.00x", ""]
    assert "- `search`: beside it 12.5 MiB" in text.splitlines()
    assert not [line for line in text.splitlines() if line.startswith("- `gpu`")]


def test_two_runs_are_compared_row_by_row():
    old = run_of(row("search", 200_000), row("selfplay", 100, 2.0), row("gone", 1), row("gpu", 5))
    new = run_of(row("search", 250_000), row("selfplay", 90, 2.2), row("new", 1), row("gpu", None))
    assert cells(comparison(old, new)) == [
        ["search", "200,000", "250,000", "simulations/s", "1.25", "", ""],
        ["selfplay", "100", "90.0", "simulations/s", "0.90", "2.00", "2.20"],
        ["gpu", "5.00", "–", "simulations/s", "", "", ""],
    ]


def test_a_comparison_of_other_machines_or_settings_has_a_note():
    old = run_of(row("search", 1))
    machine = MACHINE.model_copy(update={"cpu": "Zen 5", "load": 9.0})
    settings = SETTINGS.model_copy(update={"precision": "bf16"})
    assert "note" not in comparison(old, run_of(row("search", 1), machine=MACHINE.model_copy(update={"load": 9.0})))
    text = comparison(old, run_of(row("search", 1), machine=machine))
    assert "note: the cpu differs: it was Zen 4, it is Zen 5" in text
    assert "note: the settings differ" in comparison(old, run_of(row("search", 1), settings=settings))


def test_numbers_have_at_least_three_digits():
    assert [number(value) for value in (0.5, 9.87, 31.25, 312.5, 228_089.4)] == [
        "0.50",
        "9.87",
        "31.2",
        "312",
        "228,089",
    ]
