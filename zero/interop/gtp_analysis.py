"""Analysis: searches that report while they run, in the format of Leela Zero, which Sabaki and Lizzie read.

All numbers are for the player to move, in units of 1/10,000. A winrate is the value scaled to [0, 1]. `lcb` is the
lower bound of its 95 % interval (Wilson) for its visits. There is no score: the search does not estimate one.
"""

import time
from collections.abc import Callable, Iterator

from zero.games.coordinates import action_to_name
from zero.games.position import Rules
from zero.interop.gtp_protocol import AnalysisRequest
from zero.play.search_result import SearchResult
from zero.players.session import NetworkSession
from zero.statistics import wilson_interval

MAX_VARIATION_MOVES = 30
MAX_UNVISITED_MOVES = 5
"""Number of reported moves if no move has a visit, as without simulations."""
LEELA_ZERO_SCALE = 10_000
POLL_SECONDS = 0.1
"""Interval between two checks whether the next command has come."""
MIN_INTERVAL_SECONDS = 0.05
MIN_SEARCH_SECONDS = 0.001
"""A search needs a positive time limit; it evaluates at least one batch."""

Variation = Callable[[int], tuple[int, ...]]
"""Returns the principal variation that begins with an action."""


def analyse(
    session: NetworkSession, rules: Rules, request: AnalysisRequest, interrupted: Callable[[float], bool]
) -> Iterator[str]:
    """Searches until it is interrupted; yields a line each interval, and at least one.

    `interrupted` waits up to a number of seconds and returns True if the next command has come. Once the tree is full,
    the loop waits instead of searching.
    """
    has_reported = False
    while True:
        interval_end = time.perf_counter() + max(request.interval_seconds, MIN_INTERVAL_SECONDS)
        # short searches, so that the next command is answered at once
        stopped, seconds_left = False, interval_end - time.perf_counter()
        while not stopped and seconds_left > 0:
            seconds = max(MIN_SEARCH_SECONDS, min(seconds_left, POLL_SECONDS))
            result = session.search(session.num_simulations, seconds)
            seconds_left = interval_end - time.perf_counter()
            stopped = interrupted(max(0.0, seconds_left) if result.num_simulations == 0 else 0.0)
        if not (stopped and has_reported):
            has_reported = True
            yield analysis_line(rules, result, session.principal_variation, request.max_moves)
        if stopped:
            return


def analyse_move(
    session: NetworkSession, rules: Rules, request: AnalysisRequest, seconds: float | None
) -> Iterator[str]:
    """Searches for a move until its simulations or time are used up; yields a line each interval and at the end."""
    started, done, is_first = time.perf_counter(), 0, True
    # the clock and the player's own limit; both are measured from here, over all rounds
    seconds = session.limit(seconds)
    interval = max(request.interval_seconds, MIN_INTERVAL_SECONDS)
    while True:
        left = interval if seconds is None else min(interval, started + seconds - time.perf_counter())
        result = session.search(session.num_simulations - done, max(left, MIN_SEARCH_SECONDS))
        done += result.num_simulations
        yield analysis_line(rules, result, session.principal_variation, request.max_moves)
        out_of_time = seconds is not None and time.perf_counter() >= started + seconds
        is_full = not (result.num_simulations or is_first)  # the first round may evaluate only the root
        if out_of_time or done >= session.num_simulations or is_full:
            return
        is_first = False


def winrate(value: float) -> float:
    """Chance to win, in [0, 1], of a value in [-1, 1]."""
    return min(1.0, max(0.0, (value + 1.0) / 2.0))


def reported_moves(result: SearchResult, max_moves: int | None = None) -> list[int]:
    """Actions that an analysis reports, best first: all with a visit, otherwise those with the highest priors."""
    ranking = result.ranking()
    visited = [action for action in ranking if result.visit_counts[action]]
    return (visited or ranking[:MAX_UNVISITED_MOVES])[:max_moves]


def analysis_line(rules: Rules, result: SearchResult, variation: Variation, max_moves: int | None = None) -> str:
    """The line of `lz-analyze`: one `info` for each reported move, best move first."""
    infos = []
    for order, action in enumerate(reported_moves(result, max_moves)):
        visits = int(result.visit_counts[action])
        chance = winrate(float(result.q_values[action]) if visits else result.root_value)
        low = wilson_interval(chance, visits)[0] if visits else 0.0
        names = " ".join(action_to_name(rules, move) for move in variation(action)[:MAX_VARIATION_MOVES])
        scaled = (round(LEELA_ZERO_SCALE * probability) for probability in (chance, float(result.prior[action]), low))
        numbers = "visits {} winrate {} prior {} lcb {}".format(visits, *scaled)
        # `pv` comes last: Sabaki and Lizzie read everything after it as moves
        infos.append(f"info move {action_to_name(rules, action)} {numbers} order {order} pv {names}")
    return " ".join(infos)
