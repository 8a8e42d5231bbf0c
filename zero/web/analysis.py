"""A search as the page shows it: chances to win, the best moves, and maps of visits and priors."""

from collections.abc import Callable
from typing import Any

from zero.games.coordinates import action_to_name
from zero.games.position import Rules
from zero.interop.gtp_analysis import winrate
from zero.play.search_result import SearchResult
from zero.players.board import colour_to_play

MAX_REPORTED_MOVES = 8
MAX_VARIATION_MOVES = 16


def analysis_of(
    rules: Rules, num_moves: int, result: SearchResult, variation: Callable[[int], tuple[int, ...]]
) -> dict[str, Any]:
    """A search for the page: chances to win are Black's, in [0, 1]; visits and priors are fractions by point.

    Args:
      rules: the game.
      num_moves: moves before the position.
      result: the search.
      variation: returns the principal variation that begins with an action.
    """
    visits, colour = result.visit_counts, colour_to_play(num_moves)
    most = max(1, int(visits.max()))
    moves = []
    for action in [action for action in result.ranking() if visits[action]][:MAX_REPORTED_MOVES]:
        line = variation(action)[:MAX_VARIATION_MOVES]
        moves.append(
            {
                "action": action,
                "name": action_to_name(rules, action),
                "visits": int(visits[action]),
                "chance": round(winrate(float(result.q_values[action]) * colour), 4),
                "prior": round(float(result.prior[action]), 4),
                "line": [{"action": each, "name": action_to_name(rules, each)} for each in line],
            }
        )
    return {
        "moves": num_moves,
        "to_play": colour,
        "chance": black_chance(result, num_moves),
        "simulations": int(visits.sum()),
        "best": moves,
        "visits": [round(int(count) / most, 3) for count in visits[: rules.num_points]],
        "prior": [round(float(share), 4) for share in result.prior[: rules.num_points]],
    }


def black_chance(result: SearchResult, num_moves: int) -> float:
    """Black's chance to win, in [0, 1], after a search of the position after `num_moves`."""
    return round(winrate(result.best_value * colour_to_play(num_moves)), 4)
