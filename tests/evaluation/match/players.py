"""Players for tests of matches: they keep what they were told, and do as a function says."""

from collections.abc import Callable, Sequence

from zero.players.player import PlayerId, Reply


class Scripted:
    """In each game it does what `says` answers for (game, moves so far)."""

    def __init__(self, name: str, says: Callable[[int, tuple[int, ...]], Reply]) -> None:
        self.id = PlayerId(name=name, kind="random", settings={})
        self.says = says
        self.moves: dict[int, list[int]] = {}
        self.ended: list[int] = []
        self.asked: list[list[int]] = []
        self.begun: list[list[int]] = []
        self.is_closed = False

    def begin(self, games: Sequence[int]) -> None:
        self.begun.append(list(games))
        self.moves |= {game: [] for game in games}

    def choose(self, games: Sequence[int]) -> list[Reply]:
        self.asked.append(list(games))
        return [self.says(game, tuple(self.moves[game])) for game in games]

    def play(self, game: int, action: int) -> None:
        self.moves[game].append(action)

    def end(self, game: int) -> None:
        self.ended.append(game)

    def close(self) -> None:
        self.is_closed = True


def passes(rules) -> Callable[[int, tuple[int, ...]], Reply]:
    """It passes."""
    return lambda game, moves: Reply(rules.num_points)


def plays(*actions: int) -> Callable[[int, tuple[int, ...]], Reply]:
    """It plays these, one at each of its turns."""
    return lambda game, moves: Reply(actions[len(moves) // 2])
