"""A search that tells what it finds while it goes on: for as long as nobody interrupts it, or until a move."""

import time
from collections.abc import Callable, Iterator

from zero.games.position import Rules
from zero.interop.gtp.arguments import AnalysisWish
from zero.play.search_result import SearchResult
from zero.players.single_game import Thinker

ROUND_SECONDS = 0.1
"""So often a search looks whether it is to stop: a person does not see the wait."""
LEAST_INTERVAL_SECONDS = 0.05
LEAST_SEARCH_SECONDS = 0.001
"""A search has to have some time; one batch is done in any case."""

Line = Callable[[Rules, SearchResult, Callable[[int], tuple[int, ...]], int | None], str]
"""How a finding is written: `zero.interop.gtp.analysis` has two."""


def analyse(
    mind: Thinker, rules: Rules, line: Line, wish: AnalysisWish, interrupted: Callable[[float], bool]
) -> Iterator[str]:
    """A line each interval until it is interrupted, and one at least. A search whose tree is full waits."""
    told = False
    while True:
        interval_ends = time.perf_counter() + max(wish.interval_seconds, LEAST_INTERVAL_SECONDS)
        stopped, seconds_left = False, interval_ends - time.perf_counter()
        while not stopped and seconds_left > 0:
            result = mind.think(mind.num_simulations, max(LEAST_SEARCH_SECONDS, min(seconds_left, ROUND_SECONDS)))
            seconds_left = interval_ends - time.perf_counter()
            stopped = interrupted(max(0.0, seconds_left) if result.num_simulations == 0 else 0.0)
        if not (stopped and told):
            told = True
            yield line(rules, result, mind.line, wish.max_moves)
        if stopped:
            return


def think_of_move(mind: Thinker, rules: Rules, line: Line, wish: AnalysisWish, seconds: float | None) -> Iterator[str]:
    """A line each interval until the mind has done its simulations or used its or so many seconds; one at the end."""
    started, done, is_first = time.perf_counter(), 0, True
    seconds = min((each for each in (seconds, mind.seconds) if each is not None), default=None)
    interval = max(wish.interval_seconds, LEAST_INTERVAL_SECONDS)
    while True:
        left = interval if seconds is None else min(interval, started + seconds - time.perf_counter())
        result = mind.think(mind.num_simulations - done, max(left, LEAST_SEARCH_SECONDS))
        done += result.num_simulations
        yield line(rules, result, mind.line, wish.max_moves)
        out_of_time = seconds is not None and time.perf_counter() >= started + seconds
        is_full = not (result.num_simulations or is_first)  # the first round may have judged the root alone
        if out_of_time or done >= mind.num_simulations or is_full:
            return
        is_first = False
