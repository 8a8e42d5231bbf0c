"""The protocol of a player that plays many games at once, as a match needs it.

| kind | module | player |
|---|---|---|
| network | `network_player` | a network and a search; with 0 simulations the network's prior alone |
| gtp | `gtp` | any program that speaks GTP, such as GNU Go or Leela Zero |
| rollout | `rollout` | Monte-Carlo tree search with random games, without a network |
| random | `uniform` | a legal action, all equally likely |

`session` plays a single game with undo, other boards and analysis, for GTP and the terminal.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from zero.storage.manifests import Manifest

RESIGN = -1
"""Action of a player that resigns."""


class Reply(NamedTuple):
    """The answer of a player that is to move: an action, resignation, or a fault that forfeits the game."""

    action: int = RESIGN
    """An action of the rules, legal or not, or RESIGN."""
    fault: str = ""
    """Cause of a forfeit, such as an engine that died or timed out; empty without one."""


class PlayerId(Manifest):
    """Identity of a player. Players with equal kind and settings play alike, as far as they are deterministic."""

    name: str
    """Display name, such as `go9/gen-0012, 800 simulations` or `GNU Go 3.8 level 10`."""
    kind: Literal["network", "gtp", "rollout", "random"]
    """Coarser than the kind of a `PlayerSpec`: GNU Go is a `gtp`, a raw network a `network`."""
    settings: dict[str, str | int | float | bool]
    """Everything that its play depends on: weights (SHA-256) and search, or command line and version."""


class Player(Protocol):
    """Plays many games at once. It knows a game by its number and its moves only; the match checks legality.

    Calls of one player never overlap; calls of two players do. Random numbers are keyed by the seed and the game's
    number, so that a game does not depend on the games played beside it.

    `RolloutPlayer` also has `ignore_last_pass(game)`, which `zero.players.session` calls.
    """

    id: PlayerId

    def begin(self, games: Sequence[int]) -> None:
        """Sets up the empty board of new games. The player was made for a maximum number of open games."""
        ...

    def choose(self, games: Sequence[int]) -> list[Reply]:
        """Returns the player's reply in each of these games. It is to move in all of them. The boards do not change."""
        ...

    def play(self, game: int, action: int) -> None:
        """Plays a legal action in a game. The match calls it for the moves of both sides."""
        ...

    def end(self, game: int) -> None:
        """Removes a game. Its number is not used again."""
        ...

    def close(self) -> None:
        """Ends processes and frees memory. It is the last call."""
        ...
