"""What a search found as a line of Leela Zero's or KataGo's analysis, which Sabaki, Lizzie and GoGui show.

Every number is for the player to move. A winrate is the value moved to [0, 1]; what these programs add of the score,
our networks do not tell. `lcb` is the lower end of the winrate's 95 % interval (Wilson) from its visits.
"""

from collections.abc import Callable

from zero.games.coordinates import action_to_name
from zero.games.position import Rules
from zero.play.search_result import SearchResult
from zero.statistics import wilson_interval

MAX_LINE_MOVES = 30
"""Of an expected line: nobody looks further."""
UNTRIED = 5
"""Moves that are told of where none has a visit, as without simulations."""
LEELA_ZERO_SCALE = 10_000


def winrate(value: float) -> float:
    """Chance to win, 0 to 1, of a value."""
    return min(1.0, max(0.0, (value + 1.0) / 2.0))


def told_moves(result: SearchResult, max_moves: int | None = None) -> list[int]:
    """The actions that an analysis is about, best first: all with a visit, or the likeliest."""
    ranking = result.ranking()
    visited = [action for action in ranking if result.visit_counts[action]]
    return (visited or ranking[:UNTRIED])[:max_moves]


def leela_zero_line(
    rules: Rules, result: SearchResult, line: Callable[[int], tuple[int, ...]], max_moves: int | None = None
) -> str:
    """As `lz-analyze` has it: shares are whole numbers of ten thousandths."""

    def fields(visits: int, chance: float, prior: float, low: float) -> str:
        shares = (round(LEELA_ZERO_SCALE * share) for share in (chance, prior, low))
        return "visits {} winrate {} prior {} lcb {}".format(visits, *shares)

    return _line(rules, result, line, max_moves, fields)


def kata_line(
    rules: Rules, result: SearchResult, line: Callable[[int], tuple[int, ...]], max_moves: int | None = None
) -> str:
    """As `kata-analyze` has it: shares are fractions, and the value itself is the utility."""

    def fields(visits: int, chance: float, prior: float, low: float) -> str:
        utility = 2.0 * chance - 1.0
        return f"visits {visits} utility {utility:.6f} winrate {chance:.6f} prior {prior:.6f} lcb {low:.6f}"

    return _line(rules, result, line, max_moves, fields)


def _line(
    rules: Rules,
    result: SearchResult,
    line: Callable[[int], tuple[int, ...]],
    max_moves: int | None,
    fields: Callable[[int, float, float, float], str],
) -> str:
    """One `info` after the other, best move first."""
    infos = []
    for order, action in enumerate(told_moves(result, max_moves)):
        visits = int(result.visit_counts[action])
        chance = winrate(float(result.q_values[action]) if visits else result.root_value)
        low = wilson_interval(chance, visits)[0] if visits else 0.0
        names = " ".join(action_to_name(rules, move) for move in line(action)[:MAX_LINE_MOVES])
        numbers = fields(visits, chance, float(result.prior[action]), low)
        infos.append(f"info move {action_to_name(rules, action)} {numbers} order {order} pv {names}")
    return " ".join(infos)
