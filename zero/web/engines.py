"""Engines of the games on the page: sessions of players, whose networks are loaded once and shared."""

import secrets
import threading
from collections import OrderedDict
from pathlib import Path

import numpy as np

from zero.config.params import GameParams, GoParams
from zero.errors import ParamsError
from zero.games.position import Rules
from zero.players.build import ResolvedPlayer, common_game, difference, new_session, num_cores
from zero.players.session import Session
from zero.search.evaluator import Evaluator
from zero.web.ownership import OwnershipPredictor, ownership_predictor
from zero.web.players import board_title

NUM_LEAVES = 4
"""Leaves per network call, as in `zero play`: more are faster and weaker."""
MAX_NETWORKS = 4
"""Networks that stay loaded for the next game."""
SEEDS = 1 << 31


class SharedEvaluator:
    """A network that several games use, each in its thread: one batch at a time."""

    def __init__(self, evaluator: Evaluator, ownership: OwnershipPredictor | None) -> None:
        self.spec = getattr(evaluator, "spec", None)
        self.ownership = ownership
        self._evaluator, self._lock = evaluator, threading.Lock()

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Evaluates a batch. Writes into `prior` and `value`; see `zero.search.evaluator`."""
        with self._lock:
            self._evaluator.evaluate(planes, prior, value)


class Engines:
    """Makes the sessions of players. Thread-safe."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._evaluators: OrderedDict[tuple[str, str], SharedEvaluator] = OrderedDict()
        self._lock = threading.Lock()

    def game_of(self, players: list[ResolvedPlayer], given: GameParams | None) -> GameParams:
        """The game of the networks of `players`, with the komi of `given`; without a network `given` itself.

        Raises:
          ParamsError: the players play different games, or another one than `given`.
        """
        networks = [player for player in players if player.network is not None]
        if not networks and given is not None:
            return given
        komi = given.komi if isinstance(given, GoParams) else None
        game = common_game(self._home, networks[:1])
        for other in [given, *(common_game(self._home, [player]) for player in networks[1:])]:
            if isinstance(other, GoParams) and isinstance(game, GoParams):
                other = other.model_copy(update={"komi": game.komi})
            if other is not None and other != game:
                raise ParamsError(
                    f"the players are for different games: {difference(game, other)}; choose players for "
                    f"{board_title(given or game)}"
                )
        return game.model_copy(update={"komi": komi}) if komi is not None else game

    def open(self, player: ResolvedPlayer, rules: Rules) -> Session:
        """A session of a player. The first one of a network loads it.

        Raises:
          ZeroError: the network is corrupt, or the player cannot be started.
        """
        evaluator = self._evaluator(player) if player.network is not None else None
        session = new_session(player, rules, secrets.randbelow(SEEDS), NUM_LEAVES, evaluator=evaluator)
        session.new_game(rules)
        return session

    def ownership(self, player: ResolvedPlayer) -> OwnershipPredictor | None:
        """Predicts the owner of each point; None if the player has no network with an ownership head."""
        return None if player.network is None else self._evaluator(player).ownership

    def _evaluator(self, player: ResolvedPlayer) -> SharedEvaluator:
        assert player.network is not None
        key = str(player.network.id.settings["weights"]), player.network.profile.model_dump_json()
        with self._lock:  # also while it loads: a second game of the network waits for it
            if key not in self._evaluators:
                evaluator = player.network.evaluator(num_cores())  # first, because it prepares the backend
                self._evaluators[key] = SharedEvaluator(evaluator, ownership_predictor(player.network.weights))
            self._evaluators.move_to_end(key)
            while len(self._evaluators) > MAX_NETWORKS:
                self._evaluators.popitem(last=False)
            return self._evaluators[key]
