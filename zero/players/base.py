"""Players of a match, each with many games at once. One module a kind.

| kind | module | what it is |
|---|---|---|
| network | `searcher` | a network and a search; without simulations the raw network |
| gtp | `gtp` | any program that speaks GTP: GNU Go, Leela Zero |
| rollout | `rollout` | Monte-Carlo tree search with random games, no network |
| random | `uniform` | a legal action, all equally likely |

A player is told of every move and never decides what is legal: the match does.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from zero.storage.manifests import Manifest

RESIGN = -1
"""Action of a player who gives up."""


class Reply(NamedTuple):
    """What a player does when it is to move: plays, gives up, or fails and so loses the game."""

    action: int = RESIGN
    """An action of the rules, legal or not, or RESIGN."""
    fault: str = ""
    """Why the game is forfeited (the engine died, timed out, answered nonsense); empty: it is not."""


class PlayerId(Manifest):
    """Who plays: players with equal ids play alike, as far as they are deterministic."""

    name: str
    """As a person calls it: `go9/gen-0012, 800 simulations`, `GNU Go 3.8 level 10`."""
    kind: Literal["network", "gtp", "rollout", "random"]
    settings: dict[str, str | int | float | bool]
    """All that its play depends on: SHA-256 of the weights and the search, or the command line and the version."""


class Opponent(Protocol):
    """Plays in many games at once, of which it knows nothing but their numbers and moves.

    The calls of one player never overlap; those of two players do. It is deterministic where it can be: the random
    numbers of a game are keyed by its seed and the game's number, not by who plays beside it.
    """

    player: PlayerId

    def begin(self, games: Sequence[int]) -> None:
        """Sets up the empty board of new games, at most as many open at once as it was made for."""
        ...

    def choose(self, games: Sequence[int]) -> list[Reply]:
        """What it does in each of these games, in all of which it is to move. Plays nothing: `play` tells it."""
        ...

    def play(self, game: int, action: int) -> None:
        """A legal move was played in a game, by whoever was to move, itself included."""
        ...

    def end(self, game: int) -> None:
        """A game is over; its number does not come again."""
        ...

    def close(self) -> None:
        """Gives back processes and memory. Nothing follows."""
        ...
