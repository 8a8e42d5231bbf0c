"""A game on the page: its board, the people and engines that play it, and one thread that does all engine work.

Commands change the game at once, from any thread. Each change of the position makes a new `_version`. The thread stops
a search as soon as the version is another one, and drops its result.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

from zero.config.params import GameParams
from zero.data.sgf import OUT_OF_TIME, SgfHead, moves_to_sgf, read_sgf, result, usable_komi
from zero.errors import MoveError, ZeroError
from zero.games.coordinates import action_to_name
from zero.games.position import BLACK, GO, WHITE, Rules
from zero.games.rules import TRAITS, rules_of
from zero.play.search_result import SearchResult
from zero.players.board import Board, colour_to_play
from zero.players.build import ResolvedPlayer
from zero.players.player import RESIGN
from zero.players.session import NetworkSession, Session
from zero.storage.manifests import RESIGNATION
from zero.web.analysis import analysis_of, black_chance
from zero.web.broadcast import LAST_TOPIC, Broadcast
from zero.web.engines import Engines
from zero.web.game_clock import GameClock
from zero.web.ownership import OwnershipPredictor
from zero.web.players import board_title

REPORT_SECONDS = 0.2
"""Interval between two reports of a search."""
ANALYSIS_SECONDS = 3600.0
"""Time limit of an analysis, which its simulations end much earlier. With a limit the root follows PUCT, as in GTP."""
HINT_SECONDS = 1.0
"""An analysis makes room for a hint once it has taken this time: a hint of a shorter search would be worse."""
COLOURS: dict[int, Literal["black", "white"]] = {BLACK: "black", WHITE: "white"}
ANALYSIS, LOADING = "analysis", "loading"
Role = Literal["black", "white", "analysis"]
LOSSES = {RESIGNATION: "the game is over by resignation", OUT_OF_TIME: "the game was lost on time"}
"""How a player can lose before the board decides, as the start of a message."""

log = logging.getLogger(__name__)


class Seat(NamedTuple):
    """Who plays a colour, or analyses."""

    spec: str
    title: str
    player: ResolvedPlayer | None
    """None for a person."""


class Loss(NamedTuple):
    """A loss that the board does not show."""

    colour: int
    end: str
    """One of `LOSSES`."""


class Opened(NamedTuple):
    """An engine of the game's thread, for one seat and one set of rules."""

    seat: Seat
    rules: Rules
    session: Session
    ownership: OwnershipPredictor | None

    @property
    def is_program(self) -> bool:
        """True if it is another program, which can be ended."""
        return self.seat.player is not None and self.seat.player.spec.kind == "gnugo"


class LiveGame:
    """One game."""

    def __init__(
        self,
        name: str,
        engines: Engines,
        game: GameParams,
        seats: dict[Role, Seat],
        seconds: float | None,
        idle_seconds: float,
        clock: GameClock | None = None,
        sgf: str | None = None,
    ) -> None:
        """Sets up the board and starts the thread.

        Args:
          name: identifies the game in its address.
          engines: makes the sessions of the players.
          game: the game and board.
          seats: of both colours, and `analysis` if positions are analysed while a person is to move.
          seconds: time limit of each move of a network; None without one.
          idle_seconds: the game is closed after this time without a page that shows it.
          clock: the time of both players; None without a limit. It stands still while the game is paused or an engine
            is loaded.
          sgf: a file whose moves are played first; None for the empty board.

        Raises:
          ZeroError: as `load`.
        """
        self.name, self.events = name, Broadcast()
        self._used = time.monotonic()
        self._idle_seconds = idle_seconds
        self._engines, self._game, self._rules = engines, game, rules_of(game)
        self._seats, self._seconds = dict(seats), seconds
        self._board = Board(self._rules)
        self._changed = threading.Condition()
        self._opened: dict[Role, Opened] = {}  # used by the thread alone
        self._version = 0
        self._first_version = 0  # since then moves were only added, and the analysis engine is the same
        self._stopped = -1  # version whose search ends as soon as it can
        self._analysed = -1  # version whose analysis is done
        self._hinted = -1  # version that a hint is requested for
        self._is_cut = False  # the analysis ended for a hint before its simulations were done
        self._is_closed = self._is_paused = False
        self._work_name = ""  # what the thread does: "move", "hint", "analysis", "loading" or nothing
        self._choosing: Opened | None = None  # engine that chooses a move and cannot be interrupted
        self._lost: Loss | None = None
        self._clock = clock or GameClock(math.inf, 0.0)
        self._timer: threading.Timer | None = None  # ends the game when the running time is over
        self._error = ""
        self._source: dict[str, str] | None = None  # of a loaded file
        self._chances: dict[int, float] = {}  # Black's chance to win by number of moves
        if sgf is not None:
            self.load(sgf)  # before the thread starts, so that no engine searches the empty board
        self.resume()  # publishes the state
        self._thread = threading.Thread(target=self._work, name=f"game {name}", daemon=True)
        self._thread.start()

    # commands

    def play(self, action: int, num_moves: int | None = None) -> None:
        """Plays for the person to move; for an engine too while the game is paused.

        Args:
          action: the action.
          num_moves: moves of the position that the person saw; the move is refused if the game has gone on since.

        Raises:
          MoveError: it is illegal, or it is not the person's turn.
        """
        with self._changed:
            board, colour = self._board, self._board.to_play
            self._end_if_out_of_time()
            if num_moves not in (None, len(board.actions)):
                raise MoveError(
                    "the position has changed since you saw it, perhaps in another tab; look at the board again"
                )
            if self._lost is not None:
                raise MoveError(f"{LOSSES[self._lost.end]}; undo continues it")
            seat = self._seats[COLOURS[colour]]
            if seat.player is not None and not self._is_paused and not board.is_over:
                raise MoveError(f"{COLOURS[colour]} is played by {seat.title}; wait for its move")
            self._play(action)
            self._is_paused = False
            self._change()

    def undo(self) -> None:
        """Takes back a person's loss on time or by resignation; without one, a person's last move and what followed.

        Without people it takes back one move. An engine's loss ends too, even if there is no move. The clock goes back
        too.

        Raises:
          MoveError: there is neither such a loss nor such a move.
        """
        with self._changed:
            people = self._people()
            if self._lost is not None and self._lost.colour in people:
                self._lost = None
                self._clock.set_moves(len(self._board.actions))
                self._change()
                return
            turns = [turn for turn in range(len(self._board.actions)) if not people or colour_to_play(turn) in people]
            if not turns and self._lost is None:
                raise MoveError("no move can be taken back; play one first")
            self._set_moves(self._board.actions[: turns[-1]] if turns else self._board.actions)

    def hint(self) -> None:
        """Requests the move that the analysis would play or, without an analysis, an engine of the game.

        Raises:
          ZeroError: the game is over, an engine is to move, or there is no engine.
        """
        with self._changed:
            self._check_not_over()
            if self._is_engines_turn():
                raise MoveError("an engine is to move; hints are for people")
            if self._adviser() is None:
                raise ZeroError("two people play without an engine; choose an analysis, which also gives hints")
            self._hinted = self._version
            self._changed.notify()

    def stop(self, version: int | None = None) -> None:
        """Ends the search: a network plays its best move so far, an analysis ends. Two engines pause after the move.

        Args:
          version: of the state that the person saw. Against a person, the search of a later position goes on. A pause
            of two engines always ends the present search.

        Raises:
          ZeroError: the engine that is to move against a person cannot be interrupted.
        """
        with self._changed:
            if self._choosing is not None and self._people():
                raise ZeroError(f"{self._choosing.seat.title} cannot be interrupted; wait for its move, or undo")
            if version in (None, self._version) or not self._people():
                self._stopped = self._version
            if not self._people():
                self._is_paused = True
            self._publish()

    def resume(self) -> None:
        """Lets the engine to move play again, after an error, an undo or a loaded file."""
        with self._changed:
            self._is_paused, self._error = False, ""
            self._stopped = -1  # else the next search of this position would end at once
            self._publish()

    def resign(self) -> None:
        """The person to move resigns, or the other person in an engine's turn.

        Raises:
          MoveError: the game is over, or no person plays.
        """
        with self._changed:
            self._check_not_over()
            people = self._people()
            if not people:
                raise MoveError("no person plays in this game, so no one can resign")
            colour = self._board.to_play
            self._lost = Loss(colour if colour in people else -colour, RESIGNATION)
            self._change()

    def seat(self, role: Role, seat: Seat | None) -> None:
        """Gives a colour to another player, or sets the analysis engine; None ends the analysis.

        Raises:
          ZeroError: the player is for another game.
        """
        if seat is not None and seat.player is not None:
            self._engines.game_of([seat.player], self._game)
        with self._changed:
            if seat is None:
                self._seats.pop(role, None)
            else:
                self._seats[role] = seat
            if role == ANALYSIS:
                self._first_version = self._version + 1  # an analysis of the engine before must not stay on the page
            else:
                self._is_paused = False
            self._change()

    def load(self, text: str) -> None:
        """Replaces the moves by those of an SGF file. If an engine is to move, the game is paused.

        Raises:
          ZeroError: the file cannot be read, is of another game or board, or has an illegal move.
        """
        loaded, rules = read_sgf(text), rules_of(self._game)
        if (loaded.game, loaded.rows, loaded.columns) != (rules.game, rules.rows, rules.columns):
            raise ZeroError(
                f"the file has a game of {TRAITS[loaded.game].title} {loaded.rows}×{loaded.columns}, this is "
                f"{board_title(self._game)}; start a game on the board of the file"
            )
        komi = usable_komi(loaded.komi, rules.num_points)
        if komi is not None and rules.game == GO:
            rules = rules._replace(komi=komi)
        board = Board(rules)
        for number, action in enumerate(loaded.actions, 1):
            try:
                board.play(action)
            except MoveError as error:
                raise MoveError(f"move {number} of the file: {error}") from None
        names = ("black", loaded.black_name), ("white", loaded.white_name), ("event", loaded.event)
        with self._changed:
            self._rules = rules
            self._clock.set_moves(0)
            self._source = {
                name: value for name, value in (*names, ("result", loaded.result), ("comment", loaded.comment)) if value
            }
            self._chances.clear()
            self._set_moves(loaded.actions)

    def sgf(self) -> str:
        """The game as SGF."""
        with self._changed:
            board, rules, lost = self._board, self._rules, self._lost
            is_over, seats = self._is_over(), self._seats
            end = lost.end if lost is not None else board.end if is_over else None
            winner = -lost.colour if lost is not None else board.outcome() if is_over else 0
            head = SgfHead("a game on the page of zero", self.name, seats["black"].title, seats["white"].title, "")
            return moves_to_sgf(rules, head, board.actions, winner, board.margin(), end)

    def position(self, num_moves: int) -> dict[str, Any]:
        """The stones after the first moves of the game, to look back.

        Raises:
          MoveError: the game has fewer moves.
        """
        with self._changed:
            rules, actions = self._rules, self._board.actions
        if not 0 <= num_moves <= len(actions):
            raise MoveError(f"the game has {len(actions)} moves, not {num_moves}")
        board = Board(rules, actions[:num_moves])
        return {
            "moves": num_moves,
            "stones": board.stones.tolist(),
            "last": actions[num_moves - 1] if num_moves else None,
        }

    def show(self) -> None:
        """Publishes the time that is left now, for a page that comes."""
        with self._changed:
            if self._clock.has_limit:
                self._publish()

    def close(self, reason: str) -> None:
        """Ends the game and its engines; the pages are told the reason. Later calls do nothing."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._version += 1
            self._run_clock()
            self._changed.notify()
            choosing = self._choosing
        self.events.publish(LAST_TOPIC, {"reason": reason})
        if choosing is not None and choosing.is_program:
            choosing.session.close()  # ends the program, for whose answer the thread waits

    def join(self, seconds: float) -> None:
        """Waits for the end of the thread after `close`."""
        self._thread.join(seconds)

    def last_use(self) -> float:
        """Time (monotonic) of the last command, or of the last change of the number of pages."""
        return max(self._used, self.events.last_change)

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._is_closed

    @property
    def is_idle(self) -> bool:
        """True if no engine works."""
        return not self._work_name

    # state; the caller holds `_changed`

    def _people(self) -> list[int]:
        return [colour for colour, role in COLOURS.items() if self._seats[role].player is None]

    def _is_over(self) -> bool:
        return self._board.is_over or self._lost is not None

    def _check_not_over(self) -> None:
        if self._is_over():
            raise MoveError("the game is over; undo takes a move back")

    def _is_engines_turn(self) -> bool:
        seat = self._seats[COLOURS[self._board.to_play]]
        return seat.player is not None and not self._is_over() and not self._is_paused

    def _adviser(self) -> Role | None:
        """Role of the engine that gives hints; None without an engine."""
        roles: tuple[Role, ...] = ("analysis", "black", "white")
        return next((role for role in roles if role in self._seats and self._seats[role].player is not None), None)

    def _set_moves(self, actions: tuple[int, ...]) -> None:
        """Replaces the moves; an engine that is to move then waits for `resume`."""
        self._board = Board(self._rules, actions)
        self._lost = None
        self._clock.set_moves(len(actions))
        self._is_paused = self._seats[COLOURS[self._board.to_play]].player is not None and not self._board.is_over
        self._chances = {moves: chance for moves, chance in self._chances.items() if moves <= len(actions)}
        self._first_version = self._version + 1
        self._change()

    def _play(self, action: int) -> None:
        colour = self._board.to_play
        self._board.play(action)
        self._clock.move(colour)

    def _run_clock(self) -> None:
        """Lets the time of the player to move pass, unless the game stands still."""
        if self._timer is not None:
            self._timer.cancel()
        stands = self._is_over() or self._is_paused or self._is_closed or self._work_name == LOADING
        self._clock.run(None if stands else self._board.to_play)
        if not stands and self._clock.has_limit:
            self._timer = threading.Timer(self._clock.left(self._board.to_play), self._time_is_over)
            self._timer.daemon = True
            self._timer.start()

    def _end_if_out_of_time(self) -> None:
        """Ends the game if the time of the player to move is over."""
        running = self._clock.running
        if running is not None and not self._clock.left(running):
            self._lost = Loss(running, OUT_OF_TIME)
            self._change()

    def _change(self) -> None:
        """Begins a new version: searches for the old one end."""
        self._version += 1
        self._error = ""
        self._used = time.monotonic()
        self._publish()

    def _publish(self) -> None:
        """Publishes the state and wakes the thread."""
        self._run_clock()
        self.events.publish("state", self._state())
        self._changed.notify()

    def _state(self) -> dict[str, Any]:
        board, rules = self._board, self._rules
        is_over = self._is_over()
        state = {
            "id": self.name,
            "version": self._version,
            "first_version": self._first_version,
            "game": {
                **self._game.model_dump(),
                "title": board_title(self._game),
                "rows": rules.rows,
                "columns": rules.columns,
                "pass_action": rules.num_points if rules.num_actions > rules.num_points else None,
            },
            "players": {role: {"spec": seat.spec, "title": seat.title} for role, seat in self._seats.items()},
            "seconds": self._seconds,
            "clock": self._clock_state() if self._clock.has_limit else None,
            "moves": [{"action": action, "name": action_to_name(rules, action)} for action in board.actions],
            "stones": board.stones.tolist(),
            "to_play": board.to_play,
            "legal": [] if is_over else board.legal_actions().tolist(),
            "captures": {"black": board.num_captured(WHITE), "white": board.num_captured(BLACK)},
            "over": is_over,
            "result": self._result() if is_over else "",
            "end": self._lost.end if self._lost is not None else board.end if is_over else "",
            "paused": self._is_paused and not is_over,
            "thinking": self._work_name,
            "error": self._error,
            "source": self._source,
            "chances": [self._chances.get(moves) for moves in range(len(board.actions) + 1)],
        }
        if TRAITS[rules.game].has_score:
            state["score"] = board.margin_text()
        if rules.game == GO:
            state["game"]["komi"] = rules.komi
        return state

    def _result(self) -> str:
        if self._lost is not None:
            return result(self._rules, -self._lost.colour, 0.0, self._lost.end)
        return result(self._rules, self._board.outcome(), self._board.margin(), "")

    def _clock_state(self) -> dict[str, Any]:
        """The seconds left at this moment, and whose time passes."""
        left: dict[str, Any] = {role: round(self._clock.left(colour), 3) for colour, role in COLOURS.items()}
        return left | {"running": self._clock.running, "increment": self._clock.increment_seconds}

    def _time_is_over(self) -> None:
        """Called by the timer, which may be that of an earlier turn."""
        with self._changed:
            self._end_if_out_of_time()
            self._run_clock()

    # the thread

    def _work(self) -> None:
        try:
            while (task := self._next_task()) is not None:
                task()
        finally:
            for role in [*self._opened]:
                self._close_engine(role)

    def _next_task(self) -> Callable[[], None] | None:
        """Waits for engine work; None once the game is closed."""
        with self._changed:
            while not self._is_closed:
                for role, opened in self._opened.items():
                    if self._seats.get(role) is not opened.seat:
                        return partial(self._close_engine, role)
                if (found := self._wanted()) is not None:
                    name, role, task = found
                    self._set_work(name)
                    return partial(self._guarded, role, self._version, partial(task, self._version))
                self._set_work("")
                if not self._changed.wait(max(0.0, self._idle_seconds - self._seconds_alone())) and (
                    self._seconds_alone() >= self._idle_seconds
                ):
                    self.close(f"no page has shown the game for {self._idle_seconds / 60:.0f} minutes")
            return None

    def _wanted(self) -> tuple[str, Role, Callable[[int], None]] | None:
        """The engine work that the position needs: its name, the seat of the engine, and the method."""
        if self._is_over():
            return None
        if self._is_engines_turn():
            return "move", COLOURS[self._board.to_play], self._move
        adviser = self._adviser()
        if self._hinted == self._version and adviser is not None:
            return "hint", adviser, partial(self._give_hint, adviser)
        if ANALYSIS in self._seats and self._version not in (self._analysed, self._stopped):
            return "analysis", "analysis", self._analyse
        return None

    def _set_work(self, name: str) -> None:
        """Publishes what the thread does."""
        if name != self._work_name:
            self._work_name = name
            self._run_clock()
            self.events.publish("state", self._state())

    def _seconds_alone(self) -> float:
        """Seconds since the last use while no page shows the game; 0 if a page does."""
        return 0.0 if self.events.num_pages else time.monotonic() - self.last_use()

    def _guarded(self, role: Role, version: int, task: Callable[[], None]) -> None:
        """Does engine work. After a failure the game stays and the engine is made again for its next work."""
        try:
            task()
        except Exception as error:
            if not isinstance(error, ZeroError):
                log.exception("game %s: the engine of %s failed", self.name, role)
            self._close_engine(role)
            with self._changed:
                if version != self._version:
                    return
                self._hinted, self._analysed = -1, version
                self._is_paused = self._is_paused or self._is_engines_turn()
                text = str(error) if isinstance(error, ZeroError) else f"{type(error).__name__}, see the server's log"
                self._error = f"{self._seats[role].title}: {text}"
                self._publish()

    def _close_engine(self, role: Role) -> None:
        """Ends the engine of a seat and frees its memory, if it is open."""
        if (opened := self._opened.pop(role, None)) is not None:
            opened.session.close()

    def _engine(self, role: Role, version: int) -> Session | None:
        """The engine of a seat at the present position; None if the version is over."""
        with self._changed:
            seat, rules, actions = self._seats.get(role), self._rules, self._board.actions
            if version != self._version or seat is None or seat.player is None:
                return None
        opened = self._opened.get(role)
        if opened is None:
            with self._changed:
                work = self._work_name
                self._set_work(LOADING)
            session = self._engines.open(seat.player, rules)
            opened = Opened(seat, rules, session, self._engines.ownership(seat.player))
            with self._changed:
                self._set_work(work)
        elif opened.rules is not rules:  # the komi of a loaded file
            opened.session.new_game(rules)
            opened = opened._replace(rules=rules)
        self._opened[role] = opened
        opened.session.set_position(actions)
        return opened.session

    def _move(self, version: int) -> None:
        """Lets the engine to move play."""
        role = COLOURS[self._board.to_play]
        action = self._chosen(role, version)
        with self._changed:
            self._end_if_out_of_time()
            if action is None or version != self._version:
                return
            if action == RESIGN:
                self._lost = Loss(self._board.to_play, RESIGNATION)
            else:
                self._play(action)
            self._change()

    def _give_hint(self, role: Role, version: int) -> None:
        action = self._chosen(role, version)
        with self._changed:
            if action is None or version != self._version:
                return
            self._hinted = -1
            if self._is_cut:  # the analysis goes on
                self._analysed, self._is_cut = -1, False
            name = "resign" if action == RESIGN else action_to_name(self._rules, action)
            hint = {"version": version, "action": action, "name": name, "by": self._seats[role].title}
        self.events.publish("hint", hint)

    def _chosen(self, role: Role, version: int) -> int | None:
        """The move of an engine; None if the version is over."""
        # A new session has no result: an analysis that failed counts as done, and its engine is closed.
        is_searched = role == ANALYSIS and self._analysed == version and role in self._opened
        session = self._engine(role, version)
        if session is None:
            return None
        if isinstance(session, NetworkSession):
            if not is_searched and not self._search(session, role, version, self._seconds):
                return None
            return session.best_action()
        with self._changed:
            if version != self._version:
                return None
            self._choosing = self._opened[role]
        try:
            return session.choose(self._seconds)
        finally:
            with self._changed:
                self._choosing = None

    def _analyse(self, version: int) -> None:
        session = self._engine("analysis", version)
        if isinstance(session, NetworkSession):
            self._search(session, "analysis", version, ANALYSIS_SECONDS, ends_for_hint=True)
        with self._changed:
            if version == self._version:
                self._analysed = version

    def _search(
        self, session: NetworkSession, role: Role, version: int, seconds: float | None, ends_for_hint: bool = False
    ) -> bool:
        """Searches to the end of the simulations, the time or the version, or to `stop`; reports on the way.

        With `ends_for_hint` it also ends when a hint is requested, but not before `HINT_SECONDS`. The search of an
        analysis or of a hint ends when an engine is to move again.

        Returns:
          False if the version is over.
        """
        next_report, started = 0.0, time.monotonic()
        with self._changed:
            if version != self._version:
                return False
            rules, actions, title = self._rules, self._board.actions, self._seats[role].title
        predictor = self._opened[role].ownership
        owners = None if predictor is None else [round(float(each), 2) for each in predictor.predict(rules, actions)]

        def report(result: SearchResult, is_done: bool) -> None:
            analysis = analysis_of(rules, len(actions), result, session.principal_variation)
            self.events.publish(
                "analysis", {"version": version, "by": title, "done": is_done, "ownership": owners, **analysis}
            )

        def interrupted() -> bool:
            nonlocal next_report
            now = time.monotonic()
            if now >= next_report:
                report(session.result_so_far(), False)
                next_report = now + REPORT_SECONDS
            is_for_hint = ends_for_hint and version == self._hinted and now >= started + HINT_SECONDS
            is_for_move = self._work_name != "move" and self._is_engines_turn()  # after `resume`
            return version != self._version or version == self._stopped or is_for_hint or is_for_move

        result = session.search(session.num_simulations, seconds, interrupted)
        with self._changed:
            if version != self._version:
                return False
            is_short = result.num_simulations < session.num_simulations
            self._is_cut = ends_for_hint and version == self._hinted and is_short
            report(result, not self._is_cut)
            self._chances[len(actions)] = black_chance(result, len(actions))
        return True
