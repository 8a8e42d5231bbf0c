"""Sessions: a player in a single game, for GTP and the terminal, with undo, other boards, time limits and analysis.

A session receives all moves of the game before each search and finds out what is new. So undo, loaded files and moves
out of turn need no calls of their own. `NetworkSession` can also report its search; `PlayerSession` wraps any other
player.
"""

from collections.abc import Callable

from zero.errors import ZeroError
from zero.games.position import Rules
from zero.play.search_result import SearchResult
from zero.play.single_game import SingleGamePlayer
from zero.players.player import RESIGN, Player
from zero.storage.manifests import NO_RESIGNATION


class SessionError(ZeroError):
    """A player failed during a session: its program died or answered incorrectly."""


class NetworkSession:
    """A network and a search in one game, on the board of the network. It can analyse positions."""

    def __init__(
        self,
        name: str,
        new_player: Callable[[Rules], SingleGamePlayer],
        rules: Rules,
        num_simulations: int,
        resign_threshold: float = NO_RESIGNATION,
        seconds: float | None = None,
        digest: str = "",
    ) -> None:
        """Stores the arguments; `new_game` makes the player.

        Args:
          name: display name of the player.
          new_player: makes the player for any komi and any maximum length of a game, with the same evaluator.
          rules: game and board of the network.
          num_simulations: simulations for each move, the number of the players that `new_player` makes.
          resign_threshold: it resigns below this value, in [-1, 1]; -1 means never.
          seconds: time limit of every search; None without one.
          digest: of the weights and the search.
        """
        self.name, self.num_simulations, self.seconds = name, num_simulations, seconds
        self.version = f"{name} {digest}".strip()
        self._new_player = new_player
        self._resign_threshold = resign_threshold
        self._rules = rules
        self._made: SingleGamePlayer | None = None
        self._has_filler_pass = False

    def accepts(self, rules: Rules) -> bool:
        """True for the game and board of its network."""
        own = self._rules
        return (rules.game, rules.rows, rules.columns, rules.in_a_row) == (
            *(own.game, own.rows, own.columns, own.in_a_row),
        )

    def new_game(self, rules: Rules) -> None:
        """Sets up the empty board. Other rules than before need a new player. All calls but `accepts` need a game.

        Raises:
          ZeroError: the player cannot be made, or is for another board.
        """
        if self._made is not None and rules is self._rules:
            self._made.new_game()
            return
        self._made = self._new_player(rules)
        self._rules = rules

    def set_position(self, actions: tuple[int, ...], ends_with_filler_pass: bool = False) -> None:
        """Sets the moves of the game. They are legal and the game is not over.

        Args:
          actions: all actions since the empty board.
          ends_with_filler_pass: the last action is a pass that no one played. It only makes the colours alternate, so
            that one more pass does not end the game.
        """
        played = self._player.actions
        # the filler pass was taken out of the player's count of passes, so nothing can be played on top of it
        cannot_extend = self._has_filler_pass and (actions != played or not ends_with_filler_pass)
        if actions[: len(played)] != played or (played and cannot_extend):
            self._player.new_game()
            played = ()
        for action in actions[len(played) :]:
            self._player.play(action)
        if ends_with_filler_pass and (len(actions) > len(played) or not self._has_filler_pass):
            self._player.ignore_last_pass()
        self._has_filler_pass = ends_with_filler_pass

    def choose(self, seconds: float | None) -> int:
        """Searches for at most `seconds` and returns the action to play, or RESIGN."""
        self._player.search(seconds=self.limit(seconds))
        return self.best_action()

    def search(
        self, num_simulations: int, seconds: float | None, interrupted: Callable[[], bool] | None = None
    ) -> SearchResult:
        """Adds simulations to the tree of the position, for at most `seconds`; see `SingleGamePlayer.search`."""
        return self._player.search(num_simulations, self.limit(seconds), interrupted)

    def result_so_far(self) -> SearchResult:
        """The search result so far; only `interrupted` of a running `search` may call it."""
        return self._player.result_so_far()

    def best_action(self) -> int:
        """The action to play after the searches so far, or RESIGN."""
        if self._resign_threshold > NO_RESIGNATION and self._player.should_resign(self._resign_threshold):
            return RESIGN
        return self._player.choose()

    def principal_variation(self, action: int) -> tuple[int, ...]:
        """An action and the most visited replies after it."""
        return self._player.principal_variation(action)

    def limit(self, seconds: float | None) -> float | None:
        """The shorter one of a time limit and that of every search; None without any."""
        return min((each for each in (seconds, self.seconds) if each is not None), default=None)

    def close(self) -> None:
        """Does nothing: memory is freed with the object."""

    @property
    def _player(self) -> SingleGamePlayer:
        assert self._made is not None, "a session begins with `new_game`"
        return self._made


class PlayerSession:
    """Any player in one game, on any board that it supports. It ignores time limits and cannot analyse positions."""

    def __init__(self, name: str, new_player: Callable[[Rules], Player], rules: Rules) -> None:
        """Stores the arguments; `new_game` makes the player.

        Args:
          name: display name of the player.
          new_player: makes the player for a game and board, for one open game.
          rules: the game and the first board.
        """
        self.name = self.version = name
        self._new_player = new_player
        self._rules = rules
        self._made: Player | None = None
        self._game = 0  # a player never sees a game's number twice
        self._actions: tuple[int, ...] | None = None  # None if no game is open
        self._has_failed = False  # in this game
        self._has_filler_pass = False  # the last action is one

    def accepts(self, rules: Rules) -> bool:
        """True for every board of its game. `new_game` finds out whether the player supports the board."""
        return (rules.game, rules.in_a_row) == (self._rules.game, self._rules.in_a_row)

    def new_game(self, rules: Rules) -> None:
        """Sets up the empty board. Other rules than before need a new player.

        Raises:
          ZeroError: the player cannot be made, or does not support the board; the player from before is kept.
        """
        if self._made is None or rules is not self._rules:
            player = self._new_player(rules)  # first, because it may fail
            self.close()
            self._made, self._rules, self._actions = player, rules, None
        self._open_game()

    def set_position(self, actions: tuple[int, ...], ends_with_filler_pass: bool = False) -> None:
        """Sets the moves of the game. To other players than rollout MCTS a filler pass is a pass."""
        # as in `NetworkSession.set_position`
        cannot_extend = self._has_filler_pass and (actions != self._actions or not ends_with_filler_pass)
        if self._actions is None or self._has_failed or cannot_extend or actions[: len(self._actions)] != self._actions:
            self._open_game()
        for action in actions[len(self._actions or ()) :]:
            self._player.play(self._game, action)
        if ends_with_filler_pass and not self._has_filler_pass and hasattr(self._player, "ignore_last_pass"):
            self._player.ignore_last_pass(self._game)
        self._actions, self._has_filler_pass = actions, ends_with_filler_pass

    def choose(self, seconds: float | None) -> int:
        """Returns the player's action, or RESIGN; ignores `seconds`. After a failure the next call replays the game.

        Raises:
          SessionError: the player failed.
        """
        if self._actions is None:
            self._open_game()
        reply = self._player.choose([self._game])[0]
        if reply.fault:
            self._has_failed = True
            raise SessionError(f"{self.name} failed: {reply.fault}")
        return reply.action

    def close(self) -> None:
        """Closes the player."""
        if self._made is not None:
            self._made.close()

    @property
    def _player(self) -> Player:
        assert self._made is not None, "a session begins with `new_game`"
        return self._made

    def _open_game(self) -> None:
        if self._actions is not None:
            self._actions = None  # so that an interruption below leaves no half-open game
            self._player.end(self._game)
            self._game += 1
        self._player.begin([self._game])
        self._actions, self._has_failed, self._has_filler_pass = (), False, False


Session = NetworkSession | PlayerSession
