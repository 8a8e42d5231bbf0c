"""How the sides of a comparison take turns."""

import pytest

from benchmarks.results import Detail, Sample
from benchmarks.rounds import Context, against, alone
from tests.benchmarks.runs import short_context


class Turns:
    """Sides that say what they are told, and the order in which they were asked."""

    def __init__(self) -> None:
        self.order: list[tuple[str, float]] = []

    def side(self, name: str, *figures: float):
        coming = iter(figures)

        def run(seconds: float) -> Sample:
            self.order.append((name, seconds))
            figure = next(coming)
            return Sample(figure=figure, details=(Detail(name=name, value=2 * figure, unit="s"),))

        return run


@pytest.fixture
def turns():
    return Turns()


def context(repeats: int, ticks: list[int]) -> Context:
    return short_context(repeats)._replace(seconds=4.0, tick=lambda: ticks.append(1))


def test_sides_take_turns_after_a_short_round(turns):
    ticks: list[int] = []
    against(context(2, ticks), turns.side("ours", 9, 1, 1), turns.side("rival", 9, 1, 1))
    assert turns.order == [
        *(("ours", 0.5), ("rival", 0.5)),
        *(("ours", 4.0), ("rival", 4.0), ("ours", 4.0), ("rival", 4.0)),
    ]
    assert len(ticks) == 2


def test_a_ratio_is_taken_within_a_round_and_the_short_round_does_not_count(turns):
    measured = against(context(3, []), turns.side("ours", 1000, 10, 60, 90), turns.side("rival", 1, 10, 20, 90))
    assert measured.ratio is not None and measured.figure is not None and measured.rival_figure is not None
    assert (measured.ratio.low, measured.ratio.median, measured.ratio.high) == (1.0, 1.0, 3.0)
    assert measured.figure.median / measured.rival_figure.median == 3.0  # what the ratio would be of medians
    assert [(detail.name, detail.value) for detail in measured.details] == [("ours", 120), ("rival", 40)]


def test_a_row_without_a_rival_has_no_ratio(turns):
    measured = alone(context(3, []), turns.side("ours", 1000, 10, 60, 90))
    assert measured.figure is not None
    assert (measured.figure.low, measured.figure.median, measured.figure.high) == (10, 60, 90)
    assert measured.ratio is None and measured.rival_figure is None
