"""The slow twins of all games."""

from tests.oracle.go import GoGame
from tests.oracle.gomoku import GomokuGame
from tests.oracle.othello import OthelloGame
from zero.games.position import GO, GOMOKU, Rules

Game = GoGame | GomokuGame | OthelloGame


def oracle_of(rules: Rules) -> Game:
    """The slow twin of a game without moves."""
    if rules.game == GO:
        return GoGame(rules.rows, rules.columns, rules.komi, rules.allow_suicide, rules.max_moves)
    if rules.game == GOMOKU:
        return GomokuGame(rules.rows, rules.columns, rules.in_a_row)
    return OthelloGame(rules.rows, rules.columns)
