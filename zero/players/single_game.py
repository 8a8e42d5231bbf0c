"""Who thinks for an engine or at a table: a search with a network, or any opponent of a match.

A mind is told the whole game each time and finds out itself what is new, so that undo, a loaded file and a move out of
turn are nothing special to it.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from zero.errors import ZeroError
from zero.games.position import Rules
from zero.play.player import Player
from zero.play.search_result import SearchResult
from zero.players.base import RESIGN, Opponent

NEVER_RESIGN = -1.0


class MindError(ZeroError):
    """A player failed: its program died, or it answered nonsense."""


class Mind(Protocol):
    """Plays one game at a time."""

    name: str
    """Who it is, as a person calls it."""

    def accepts(self, rules: Rules) -> bool:
        """True where it can play on this board."""
        ...

    def begin(self, rules: Rules) -> None:
        """From now on the game has these rules; the board is empty. Comes before all but `accepts` and `close`.

        Raises:
          ZeroError: the player cannot be started, or is for another board.
        """
        ...

    def follow(self, actions: tuple[int, ...], is_played: bool = True) -> None:
        """The game has come to this; the actions are legal and the game is not over.

        With `is_played` false the last is a pass that nobody played, put in so that the turns are right: another one
        would not end the game.
        """
        ...

    def choose(self, seconds: float | None) -> int:
        """The action it would play, or RESIGN, after so many seconds at most, as far as it can be stopped.

        Raises:
          MindError: it failed.
        """
        ...

    def close(self) -> None:
        """Gives back processes and memory. Nothing follows."""
        ...


@runtime_checkable
class Thinker(Mind, Protocol):
    """A mind that can tell what it thinks."""

    num_simulations: int
    """Of a move."""

    @property
    def seconds(self) -> float | None:
        """For a move at most; None: no limit."""
        ...

    def think(self, num_simulations: int, seconds: float | None) -> SearchResult:
        """Adds simulations to what it knows of the position, for so long at most."""
        ...

    def decide(self) -> int:
        """The action it would play, or RESIGN, by what it has thought so far."""
        ...

    def line(self, action: int) -> tuple[int, ...]:
        """An action and the answers that it expects."""
        ...


class PlayerMind:
    """A search with a network, on the board of that network."""

    def __init__(
        self,
        name: str,
        new_player: Callable[[Rules], Player],
        rules: Rules,
        num_simulations: int,
        resign_below: float = NEVER_RESIGN,
    ) -> None:
        """Waits for `begin`, which makes the player.

        Args:
          name: who it is.
          new_player: makes the player for any komi and any limit of a game's length, around the same evaluator.
          rules: the game and board of the network.
          num_simulations: of a move, as the player has it.
          resign_below: it gives up where the value is below this, from -1 (never) to 1.
        """
        self.name = name
        self.num_simulations = num_simulations
        self._new_player = new_player
        self._resign_below = resign_below
        self._rules = rules
        self._made: Player | None = None
        self._is_played = True  # the last action that it was told

    def accepts(self, rules: Rules) -> bool:
        """True for the board of its network."""
        own = self._rules
        return (rules.game, rules.rows, rules.columns, rules.in_a_row) == (
            *(own.game, own.rows, own.columns, own.in_a_row),
        )

    def begin(self, rules: Rules) -> None:
        """Takes a new player where a rule has changed, or the empty board."""
        if self._made is not None and rules is self._rules:
            self._made.new_game()
            return
        self._made = self._new_player(rules)
        self._rules = rules

    def follow(self, actions: tuple[int, ...], is_played: bool = True) -> None:
        """Plays what is new, or the whole game where something was taken back."""
        played = self._player.actions
        if actions[: len(played)] != played or (played and not self._is_played and (actions != played or is_played)):
            self._player.new_game()
            played = ()
        for action in actions[len(played) :]:
            self._player.play(action)
        if not is_played and (len(actions) > len(played) or self._is_played):
            self._player.ignore_last_pass()
        self._is_played = is_played

    def choose(self, seconds: float | None) -> int:
        """The best action after a search."""
        self._player.search(seconds=seconds)
        return self.decide()

    @property
    def seconds(self) -> float | None:
        """The limit of the player, once there is one: `isinstance` asks for it, too."""
        return self._made.seconds if self._made else None

    def decide(self) -> int:
        """The best action of the last search."""
        if self._resign_below > NEVER_RESIGN and self._player.should_resign(self._resign_below):
            return RESIGN
        return self._player.choose()

    def think(self, num_simulations: int, seconds: float | None) -> SearchResult:
        """Adds simulations to the tree."""
        return self._player.search(num_simulations, seconds)

    def line(self, action: int) -> tuple[int, ...]:
        """The most visited line below an action."""
        return self._player.principal_variation(action)

    def close(self) -> None:
        """Nothing is open."""

    @property
    def _player(self) -> Player:
        assert self._made is not None, "a mind was asked before `begin`"
        return self._made


class OpponentMind:
    """Any opponent of a match, for any board that its factory makes one for. It takes the time it takes."""

    def __init__(self, name: str, new_opponent: Callable[[Rules], Opponent], rules: Rules) -> None:
        """Waits for `begin`, which makes the opponent.

        Args:
          name: who it is.
          new_opponent: makes one for a game and board, with room for one open game.
          rules: the game and the first board.
        """
        self.name = name
        self._new_opponent = new_opponent
        self._rules = rules
        self._made: Opponent | None = None
        self._game = 0
        self._actions: tuple[int, ...] | None = None  # None: no game is open
        self._has_failed = False  # in this game

    def accepts(self, rules: Rules) -> bool:
        """True for every board of its game; whether there is one for it, `begin` finds out."""
        return (rules.game, rules.in_a_row) == (self._rules.game, self._rules.in_a_row)

    def begin(self, rules: Rules) -> None:
        """Takes a new opponent where a rule has changed, or a new game."""
        if self._made is None or rules is not self._rules:
            opponent = self._new_opponent(rules)
            self.close()
            self._made, self._rules, self._actions = opponent, rules, None
        self._new_game()

    def follow(self, actions: tuple[int, ...], is_played: bool = True) -> None:
        """Tells it what is new, or the whole game where something was taken back; a pass counts as played."""
        if self._actions is None or self._has_failed or actions[: len(self._actions)] != self._actions:
            self._new_game()
        for action in actions[len(self._actions or ()) :]:
            self._opponent.play(self._game, action)
        self._actions = actions

    def choose(self, seconds: float | None) -> int:
        """Its answer; an opponent knows no time. One that fails is told the game anew the next time."""
        if self._actions is None:
            self._new_game()
        reply = self._opponent.choose([self._game])[0]
        if reply.fault:
            self._has_failed = True
            raise MindError(f"{self.name} failed: {reply.fault}")
        return reply.action

    def close(self) -> None:
        """Closes the opponent."""
        if self._made is not None:
            self._made.close()

    @property
    def _opponent(self) -> Opponent:
        assert self._made is not None, "a mind was asked before `begin`"
        return self._made

    def _new_game(self) -> None:
        if self._actions is not None:
            self._actions = None  # whatever interrupts the next lines
            self._opponent.end(self._game)
            self._game += 1
        self._opponent.begin([self._game])
        self._actions, self._has_failed = (), False
