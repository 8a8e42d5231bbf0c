"""The table, the page and the comparison."""

from benchmarks.table import comparison, markdown, number, table
from tests.benchmarks.runs import FASTEST, MACHINE, SETTINGS, SMALLEST, TWICE, row, run_of

ROWS = (
    row("search", 228_089.4, None, FASTEST),
    row("selfplay", 9_175, 2.5, TWICE),
    row("memory", 0.987, None, SMALLEST),
    row("gpu", None, None, FASTEST, TWICE, note="no GPU here"),
    row("noise", 31.25),
)


def test_the_table_says_all_of_a_row_on_a_line():
    assert table(run_of(*ROWS)).splitlines()[-7:] == [
        "row        figure  unit           ratio (lowest, highest)  target             reached",
        "--------  -------  -------------  -----------------------  -----------------  -----------",
        "search    228,089  simulations/s                           250,000            no",
        "selfplay    9,175  simulations/s  2.50 (2.25, 3.00)        2.00x              yes",
        "memory       0.99  simulations/s                           at most 1.00       yes",
        "gpu             –  simulations/s                           250,000 and 2.00x  no GPU here",
        "noise        31.2  simulations/s",
    ]


def test_above_it_are_machine_sources_and_settings():
    text = table(run_of(*ROWS))
    for part in ("Zen 4, 2 cores (avx2, avx512f), 24 GiB, no GPU", "commit 0123456789ab;", "numba 0.68.1", "load"):
        assert part in text
    assert "networks by openvino in fp32; medians of 3 rounds of 5 s a side" in text
    dirty = MACHINE.model_copy(update={"dirty": True, "gpu": "NVIDIA H100"})
    assert "commit 0123456789ab with changes;" in table(run_of(*ROWS, machine=dirty))
    assert "24 GiB, NVIDIA H100" in table(run_of(*ROWS, machine=dirty))


def test_the_page_has_the_work_and_the_rival_too():
    lines = markdown(run_of(*ROWS)).splitlines()
    assert (
        "| `selfplay` | work of selfplay | 9,175 simulations/s | the rival: 3,670 | 2.50 (2.25, 3.00) | 2.00x | yes |"
        in lines
    )
    assert "| `gpu` | work of gpu | – |  |  | 250,000 and 2.00x | no GPU here |" in lines
    assert "- `search`: beside it 12.5 MiB" in lines
    assert not [line for line in lines if line.startswith("- `gpu`")]


def test_two_runs_are_compared_row_by_row():
    old = run_of(row("search", 200_000), row("selfplay", 100, 2.0), row("gone", 1), row("gpu", 5))
    new = run_of(row("search", 250_000), row("selfplay", 90, 2.2), row("new", 1), row("gpu", None))
    assert [line.split() for line in comparison(old, new).splitlines()[2:]] == [
        ["search", "200,000", "250,000", "simulations/s", "1.25"],
        ["selfplay", "100", "90.0", "simulations/s", "0.90", "2.00", "2.20"],
        ["gpu", "5.00", "–", "simulations/s"],
    ]


def test_a_comparison_across_machines_or_settings_says_so():
    old = run_of(row("search", 1))
    machine = MACHINE.model_copy(update={"cpu": "Zen 5", "load": 9.0})
    settings = SETTINGS.model_copy(update={"precision": "bf16"})
    assert "note" not in comparison(old, run_of(row("search", 1), machine=MACHINE.model_copy(update={"load": 9.0})))
    assert "note: the cpu differs: Zen 4 then, Zen 5 now" in comparison(old, run_of(row("search", 1), machine=machine))
    assert "note: the settings differ" in comparison(old, run_of(row("search", 1), settings=settings))


def test_numbers_have_three_digits_or_more():
    assert [number(value) for value in (0.5, 9.87, 31.25, 312.5, 228_089.4)] == [
        "0.50",
        "9.87",
        "31.2",
        "312",
        "228,089",
    ]
