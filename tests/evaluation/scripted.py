"""Scripted players for tests of matches; they record the calls they receive."""

from collections.abc import Callable, Sequence

from zero.players.player import PlayerId, Reply


class Scripted:
    """Replies in each game with `reply(game, moves so far)`."""

    def __init__(self, name: str, reply: Callable[[int, tuple[int, ...]], Reply]) -> None:
        self.id = PlayerId(name=name, kind="random", settings={})
        self.reply = reply
        self.moves: dict[int, list[int]] = {}
        self.ended: list[int] = []
        self.requests: list[list[int]] = []
        self.begun: list[list[int]] = []
        self.is_closed = False

    def begin(self, games: Sequence[int]) -> None:
        self.begun.append(list(games))
        self.moves |= {game: [] for game in games}

    def choose(self, games: Sequence[int]) -> list[Reply]:
        self.requests.append(list(games))
        return [self.reply(game, tuple(self.moves[game])) for game in games]

    def play(self, game: int, action: int) -> None:
        self.moves[game].append(action)

    def end(self, game: int) -> None:
        self.ended.append(game)

    def close(self) -> None:
        self.is_closed = True


def passes(rules) -> Callable[[int, tuple[int, ...]], Reply]:
    """Always passes."""
    return lambda game, moves: Reply(rules.num_points)


def plays(*actions: int) -> Callable[[int, tuple[int, ...]], Reply]:
    """Plays these actions, one per turn."""
    return lambda game, moves: Reply(actions[len(moves) // 2])
