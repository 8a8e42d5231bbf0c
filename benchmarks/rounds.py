"""Rounds of measurements: the sides of a comparison work in turn (A B A B ...), and a ratio is taken within a round."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.results import Detail, Sample, Spread, median_details, spread_of
from benchmarks.work import Side
from zero.config.params import ProfileParams

WARM_UP_SECONDS = 0.5
"""Longest time of the round before the first, which is thrown away."""


class Context(NamedTuple):
    """What every row is measured with."""

    seconds: float  # of a measurement
    repeats: int  # rounds
    profile: ProfileParams  # of the networks; one thread
    cores: tuple[int, ...]  # that children may be put on
    tick: Callable[[], None]  # called after each round


class Measured(NamedTuple):
    """The figures of a row."""

    figure: Spread | None
    rival_figure: Spread | None = None
    ratio: Spread | None = None
    details: tuple[Detail, ...] = ()
    note: str = ""


def not_measured(why: str) -> Measured:
    """A row that this machine cannot measure."""
    return Measured(None, note=why)


def in_turn(context: Context, *sides: Side) -> list[tuple[Sample, ...]]:
    """The samples of each round, by side; before them a short round that does not count."""
    for side in sides:
        side(min(context.seconds, WARM_UP_SECONDS))
    rounds = []
    for _ in range(context.repeats):
        rounds.append(tuple(side(context.seconds) for side in sides))
        context.tick()
    return rounds


def alone(context: Context, side: Side) -> Measured:
    """A row without a ratio."""
    samples = [samples[0] for samples in in_turn(context, side)]
    return Measured(spread_of([sample.figure for sample in samples]), details=median_details(samples))


def against(context: Context, ours: Side, rival: Side) -> Measured:
    """A row with a ratio; the rival's details come after ours."""
    return compared(in_turn(context, ours, rival))


def compared(rounds: Sequence[tuple[Sample, ...]]) -> Measured:
    """Figures, and ratio of the first side to the second within each round."""
    ours, rival = [samples[0] for samples in rounds], [samples[1] for samples in rounds]
    return Measured(
        figure=spread_of([sample.figure for sample in ours]),
        rival_figure=spread_of([sample.figure for sample in rival]),
        ratio=spread_of([mine.figure / other.figure for mine, other in zip(ours, rival, strict=True)]),
        details=median_details(ours) + median_details(rival),
    )
