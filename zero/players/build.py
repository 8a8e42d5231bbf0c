"""Players from specs: resolves a spec to weights, search and identity, and makes the player of a match or a session.

`parse_player` makes a `PlayerSpec` of a text. `resolve_player` adds the `NetworkSetup` of a network, with the weights
that `resolve_network` found. Then `identify` and `make_player` serve a match, and `open_session` one game by GTP or in
the terminal.
"""

import os
import shlex
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import ValidationError

from zero.config.params import GameParams, GoParams, Params, ProfileParams, SearchParams
from zero.errors import ParamsError
from zero.games.position import Rules
from zero.games.rules import rules_of
from zero.network.inference import new_evaluator
from zero.network.profile import load_project_params, local_precision, local_profile, prepare_inference
from zero.players.networks import ResolvedNetwork, resolve_network
from zero.players.player import Player, PlayerId
from zero.players.spec import SEARCH_OPTIONS, PlayerSpec
from zero.search.evaluator import Evaluator
from zero.storage.files import canonical_json, sha256_bytes
from zero.storage.manifests import NO_RESIGNATION

if TYPE_CHECKING:
    from zero.players.session import Session

DEFAULT_GNUGO_LEVEL, DEFAULT_PLAYOUTS, DEFAULT_LEELAZ_PLAYOUTS = 10, 1000, 200
MAX_GNUGO_LEVEL = 20
MAX_SIMULATIONS = 1_000_000
SESSION_SIMULATIONS = 400
"""Simulations of a move in a session if the spec gives no number; gating's number if that is greater. Networks are
trained with far fewer."""
WARM_UP_SIMULATIONS = 4
MATCH_THREADS = 1
"""CPU threads of a network in a match, where two players search at once. The number is fixed: the bits depend on it."""
VERSION_DIGITS = 12
"""Digits of the digest of weights and search in the version of a GTP engine."""
MIN_SESSION_NODES = 100_000
"""Nodes of the tree in a session: an analysis goes on beyond the simulations of a move."""


class NetworkSetup(NamedTuple):
    """All that a player with a network is made of."""

    id: PlayerId
    weights: bytes  # content of the weight file
    params: Params | None  # that the network was made with; None if unknown
    search: SearchParams
    profile: ProfileParams  # of the machine that made the network
    num_simulations: int  # for each move
    resign_threshold: float

    def evaluator(self, num_threads: int) -> Evaluator:
        """The network, ready to evaluate positions on this machine with this number of CPU threads.

        Raises:
          StorageError: the weight file is corrupt.
        """
        profile = local_profile(self.profile, num_threads)
        prepare_inference(profile)
        return new_evaluator(self.weights, profile)


class ResolvedPlayer(NamedTuple):
    """A player whose network is found and whose search is settled."""

    spec: PlayerSpec
    network: NetworkSetup | None  # None for kinds without a network


def resolve_player(
    home: Path, spec: PlayerSpec, for_session: bool = False, network: ResolvedNetwork | None = None
) -> ResolvedPlayer:
    """Finds the network of a player, if it has one, and settles its search.

    If the network's own parameters are unknown (a bare weight file, a model version), those of the project's
    `params.yaml` are used. If the spec has no number of simulations, that of gating is used.

    Args:
      home: the project's folder.
      spec: the player.
      for_session: the defaults are at least `SESSION_SIMULATIONS` simulations, and `pass_wins`.
      network: that of the spec, if it was resolved before: a name can refer to another network later.

    Raises:
      ZeroError: there is no such network, or an option is out of range.
    """
    if not spec.has_network:
        return ResolvedPlayer(spec, None)
    network = network or resolve_network(home, spec.argument)
    own_params = network.read_params()
    params = own_params or load_project_params(home)
    default = max(params.gating.num_simulations, SESSION_SIMULATIONS) if for_session else params.gating.num_simulations
    simulations = 0 if spec.kind == "raw" else spec.int_option("simulations", default, 0, MAX_SIMULATIONS)
    resign = spec.resign_threshold()
    searched = params.model_copy(update={"search": _search_params(spec, params.search, for_session)})
    precision = local_precision(params.profile)  # fp32 if this machine lacks the network's bf16
    name = " ".join([network.name, *(f"{key}={spec.options[key]}" for key in SEARCH_OPTIONS if key in spec.options)])
    setup = NetworkSetup(
        id=network_id(name, sha256_bytes(network.weights), searched, simulations, resign, precision),
        weights=network.weights,
        params=own_params,
        search=searched.search,
        profile=searched.profile,
        num_simulations=simulations,
        resign_threshold=resign,
    )
    return ResolvedPlayer(spec, setup)


def _search_params(spec: PlayerSpec, search: SearchParams, for_session: bool) -> SearchParams:
    """The search parameters with the options of the spec."""
    changes = {name: spec.options[name] for name in SEARCH_OPTIONS if name in spec.options}
    default = {"pass_wins": True} if for_session else {}
    try:
        search = SearchParams.model_validate(search.model_dump() | default | changes)
    except ValidationError as error:
        fault = error.errors()[0]
        raise ParamsError(f"{spec.text!r}: {fault['loc'][0]} {fault['input']!r}: {fault['msg']}") from None
    for name in changes:
        if SEARCH_OPTIONS[name] not in (None, search.root):
            raise ParamsError(
                f"{spec.text!r}: a {search.root} root does not use {name}; add root={SEARCH_OPTIONS[name]}, or remove "
                f"{name}"
            )
    return search


def network_id(
    name: str,
    weights: str,
    params: Params,
    simulations: int,
    resign_threshold: float = NO_RESIGNATION,
    precision: Literal["fp32", "bf16"] | None = None,
) -> PlayerId:
    """Identity of a network (`weights`: its SHA-256) that searches with these parameters.

    `precision` is the one it plays with, by default that of its parameters. If they differ, the settings contain both.
    """
    made_for = params.profile.precision
    settings: dict[str, str | int | float | bool] = {
        "weights": weights,
        "simulations": simulations,
        "resign_threshold": resign_threshold,
        "precision": precision or made_for,
        # without simulations the search does not matter, and players size their trees themselves
        **(params.search.model_dump(exclude={"max_nodes"}) if simulations else {}),
    }
    if precision not in (None, made_for):
        settings["made_for_precision"] = made_for
    suffix = f"{simulations} simulations" if simulations else "raw network"
    return PlayerId(name=f"{name}, {suffix}", kind="network", settings=settings)


def common_game(
    home: Path, players: Iterable[ResolvedPlayer], komi: float | None = None, size: int | None = None
) -> GameParams:
    """The game of the players' networks; without a network, the game of the project's `params.yaml`.

    Args:
      home: the project's folder.
      players: the players.
      komi: replaces their komi.
      size: replaces their board size.

    Raises:
      ParamsError: the players play different games, or the game has no such komi or board.
    """
    networks = [player.network for player in players if player.network is not None]
    games = [network.params.game for network in networks if network.params is not None]
    first, *others = [_changed(game, komi, size) for game in games or [load_project_params(home).game]]
    for other in others:
        if other != first:
            remedy = "give --komi" if _differing(first, other) == ["komi"] else "choose two players of the same game"
            raise ParamsError(f"these players were made for different games: {difference(first, other)}; {remedy}")
    return first


def _changed(game: GameParams, komi: float | None, size: int | None) -> GameParams:
    """The game with another komi or board."""
    changes = {name: value for name, value in (("komi", komi), ("size", size)) if value is not None}
    if komi is not None and not isinstance(game, GoParams):
        raise ParamsError(f"komi = {komi} is for Go only; {game.name} has no komi")
    try:
        return type(game).model_validate(game.model_dump() | changes)
    except ValidationError as error:
        fault = error.errors()[0]
        name = fault["loc"][0] if fault["loc"] else "game"
        raise ParamsError(f"{name} = {fault['input']}: {fault['msg']}") from None


def difference(one: GameParams, other: GameParams) -> str:
    """Parameters in which two games differ, such as `size 5 and 9, komi 0.5 and 7.0`."""
    if one.name != other.name:
        return f"{one.name} and {other.name}"
    return ", ".join(f"{name} {getattr(one, name)} and {getattr(other, name)}" for name in _differing(one, other))


def _differing(one: GameParams, other: GameParams) -> list[str]:
    """Names of the parameters in which two games differ."""
    ours, theirs = one.model_dump(), other.model_dump()
    return [name for name in ours if ours[name] != theirs.get(name)]


def make_player(player: ResolvedPlayer, rules: Rules, games_at_once: int, seed: int) -> Player:
    """Makes a player that plays up to `games_at_once` games at once.

    Raises:
      ZeroError: a program is missing, a number is out of range, or the network is for another board.
    """
    spec, network = player
    if network is not None:
        from zero.players.network_player import NetworkPlayer

        return NetworkPlayer(
            network.id,
            rules,
            network.evaluator(MATCH_THREADS),
            network.search,
            num_simulations=network.num_simulations,
            num_slots=games_at_once,
            seed=seed,
            resign_threshold=network.resign_threshold,
        )
    if spec.kind == "rollout":
        from zero.players.rollout import RolloutPlayer

        return RolloutPlayer(rules, spec.int_argument(DEFAULT_PLAYOUTS, 1, MAX_SIMULATIONS), games_at_once, seed)
    if spec.kind == "random":
        from zero.players.uniform import UniformPlayer

        return UniformPlayer(rules, seed)
    from zero.players import gtp

    if spec.kind == "gnugo":
        return gtp.gnugo(spec.int_argument(DEFAULT_GNUGO_LEVEL, 0, MAX_GNUGO_LEVEL), rules, seed)
    if spec.kind == "leelaz":
        playouts = spec.int_option("playouts", DEFAULT_LEELAZ_PLAYOUTS, 1, MAX_SIMULATIONS)
        return gtp.leelaz(Path(spec.argument), playouts, rules, seed)
    try:
        command = shlex.split(spec.argument)
    except ValueError as error:
        raise ParamsError(f"{spec.text!r} is not a command line: {str(error).lower()}; fix its quotes") from None
    return gtp.gtp_program(command, rules, seed)


def identify(player: ResolvedPlayer, rules: Rules) -> PlayerId:
    """The identity of a player. A program is started to report its name and version.

    Raises:
      ZeroError: as `make_player`.
    """
    if player.network is not None:
        return player.network.id
    with closing(make_player(player, rules, 1, seed=1)) as made:
        return made.id


def open_session(
    home: Path,
    spec: PlayerSpec,
    size: int | None = None,
    komi: float | None = None,
    seed: int = 1,
    num_leaves: int = 1,
    seconds: float | None = None,
) -> tuple["Session", Rules]:
    """A session of a player with a person or another program, and the rules for its first `new_game`.

    Args:
      home: the project's folder.
      spec: the player's spec.
      size: size of the first board; by default that of the player's parameters.
      komi: first komi; by default that of the player's parameters.
      seed: seed of all random numbers.
      num_leaves: leaves of the tree that a network evaluates in one batch.
      seconds: time limit of every search.

    Raises:
      ZeroError: the player is unknown, its network is corrupt, or it plays another game.
    """
    player = resolve_player(home, spec, for_session=True)
    rules = rules_of(common_game(home, [player], komi, size))
    return new_session(player, rules, seed, num_leaves, seconds), rules


def new_session(
    player: ResolvedPlayer,
    rules: Rules,
    seed: int = 1,
    num_leaves: int = 1,
    seconds: float | None = None,
    evaluator: Evaluator | None = None,
) -> "Session":
    """A session of a player that was resolved for one, see `open_session`.

    Args:
      player: the player.
      rules: the game and the first board.
      seed: seed of all random numbers.
      num_leaves: leaves of the tree that a network evaluates in one batch.
      seconds: time limit of every search.
      evaluator: of the player's network, if several sessions share it; by default a new one.

    Raises:
      ZeroError: the network is corrupt.
    """
    from zero.players.session import NetworkSession, PlayerSession

    network = player.network
    if network is None:
        return PlayerSession(player.spec.text, lambda board: make_player(player, board, 1, seed), rules)
    from zero.play.single_game import SingleGamePlayer

    used, num_simulations = evaluator or network.evaluator(num_cores()), network.num_simulations
    max_nodes = max(MIN_SESSION_NODES, 4 * num_simulations)

    # called for each new board, komi or length of the game; the evaluator is loaded once
    def new_player(board: Rules) -> SingleGamePlayer:
        made = SingleGamePlayer(board, used, network.search, num_simulations, max_nodes, num_leaves, seed)
        made.search(WARM_UP_SIMULATIONS)  # compiles and loads the kernels before the clock of the first move runs
        made.new_game()
        return made

    name, threshold = network.id.name, network.resign_threshold
    digest = sha256_bytes(canonical_json(network.id.settings))[:VERSION_DIGITS]
    return NetworkSession(name, new_player, rules, num_simulations, threshold, seconds, digest)


def num_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0))
