"""The results of a run of the benchmarks."""

import pytest

from benchmarks.results import Detail, Sample, median_details, read_results, spread_of
from tests.benchmarks.runs import FASTEST, SMALLEST, TWICE, row, run_of
from zero.errors import StorageError
from zero.storage.files import write_manifest


def test_a_spread_is_the_median_and_the_range():
    spread = spread_of([3.0, 1.0, 2.0, 10.0, 2.5])
    assert (spread.low, spread.median, spread.high) == (1.0, 2.5, 10.0)


def test_details_are_medians_over_the_rounds():
    samples = [Sample(figure=0, details=(Detail(name="a", value=v, unit="s"),)) for v in (5.0, 1.0, 2.0)]
    assert median_details(samples) == (Detail(name="a", value=2.0, unit="s"),)


@pytest.mark.parametrize(
    ("made", "reached"),
    [
        (row("a", 250_000, None, FASTEST), True),
        (row("a", 249_999, None, FASTEST), False),
        (row("a", 1.0, None, SMALLEST), True),
        (row("a", 1.1, None, SMALLEST), False),
        (row("a", 1, 2.0, TWICE), True),
        (row("a", 1, 1.99, TWICE), False),
        (row("a", 300_000, 1.0, FASTEST, TWICE), False),
        (row("a", 1, 3.0, FASTEST, TWICE), False),
        (row("a", 300_000, 3.0, FASTEST, TWICE), True),
        (row("a", 300_000), None),
        (row("a", None, None, FASTEST, note="no GPU"), None),
    ],
)
def test_a_row_is_reached_if_all_its_targets_are(made, reached):
    assert made.reached() is reached


def test_a_run_is_read_as_it_was_written(tmp_path):
    results = run_of(row("a", 1.5, 2.0, TWICE), row("b", None, note="no GPU"))
    write_manifest(tmp_path / "new", results, "run.json")
    assert read_results(tmp_path / "new" / "run.json") == results
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run.json"]


def test_a_missing_file_is_an_error_with_a_remedy(tmp_path):
    with pytest.raises(StorageError, match=r"cannot read .*none\.json: No such file .*; write one with --out"):
        read_results(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["", "{", '{"version": 2}', "[]"])
def test_a_file_of_another_format_is_an_error(tmp_path, text):
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(StorageError, match=r"odd\.json does not contain benchmark results"):
        read_results(tmp_path / "odd.json")
