"""Players by name: their networks, the game that they play, and how they are made ready. Their texts: `player_text`."""

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import ValidationError

from zero.config.params import GameParams, GoParams, Params, ProfileParams, SearchParams
from zero.errors import ParamsError
from zero.games.position import Rules
from zero.games.rules import rules_of
from zero.network.profile import load_project_params, local_precision, local_profile, prepare_torch
from zero.players.base import Opponent, PlayerId
from zero.players.networks import Source, find_source
from zero.players.spec import SEARCH_OPTIONS, PlayerText, parse_player
from zero.search.evaluator import Evaluator
from zero.storage.files import sha256_bytes
from zero.storage.manifests import NO_RESIGNATION

if TYPE_CHECKING:
    from zero.players.single_game import Mind

DEFAULT_GNUGO_LEVEL, DEFAULT_PLAYOUTS, DEFAULT_LEELAZ_PLAYOUTS = 10, 1000, 200
MOST_SIMULATIONS = 1_000_000
SEAT_SIMULATIONS = 400
"""Of a move against a person or another program, where its text does not say: networks are made with far fewer."""
WARM_UP = 4
"""Simulations before the first game."""
MATCH_THREADS = 1
"""Of a network in a match, in which two players think side by side: its bits depend on them, and not on the machine's
cores."""
MANY_NODES = 100_000
"""Of the tree of one game: analysis goes on beyond a move's simulations."""


class NetworkPlayer(NamedTuple):
    """A player with a network, its parts ready to be put together."""

    player: PlayerId
    source: Source
    search: SearchParams
    profile: ProfileParams  # of its maker
    num_simulations: int
    resign_threshold: float

    def evaluator(self, num_threads: int) -> Evaluator:
        """The network, ready to judge positions, on so many threads of this machine.

        Raises:
          StorageError: the weight file is broken.
        """
        from zero.network.inference import new_evaluator

        profile = local_profile(self.profile, num_threads)
        prepare_torch(profile, num_threads)
        return new_evaluator(self.source.weights, profile)


def find_network_player(home: Path, asked: PlayerText, at_seat: bool = False) -> NetworkPlayer:
    """The network of a player that has one, with the search it was made for.

    Parameters that the source does not tell (a bare weight file, a model) are those of the project's `params.yaml`.
    Where the text has no simulations, they are those of the gate; at the seat of one game `SEAT_SIMULATIONS` if that is
    more, with a search that knows what a second pass would decide.

    Raises:
      ZeroError: there is no such network, or an option is out of its range.
    """
    source = find_source(home, asked.argument)
    params = source.params or load_project_params(home)
    simulations, resign = params.gating.num_simulations, asked.resign_threshold()
    if asked.kind == "raw":
        simulations = 0
    elif "simulations" in asked.options:
        simulations = asked.whole("simulations", asked.options["simulations"], 0, MOST_SIMULATIONS)
    elif at_seat:
        simulations = max(simulations, SEAT_SIMULATIONS)
    params = params.model_copy(update={"search": _search_of(asked, params.search, at_seat)})
    precision = local_precision(params.profile)
    name = " ".join([source.name, *(f"{key}={asked.options[key]}" for key in SEARCH_OPTIONS if key in asked.options)])
    player = network_id(name, sha256_bytes(source.weights), params, simulations, resign, precision)
    return NetworkPlayer(player, source, params.search, params.profile, simulations, resign)


def _search_of(asked: PlayerText, search: SearchParams, at_seat: bool) -> SearchParams:
    """The search with what the text says of it."""
    changes = {name: asked.options[name] for name in SEARCH_OPTIONS if name in asked.options}
    default = {"pass_wins": True} if at_seat else {}
    try:
        search = SearchParams.model_validate(search.model_dump() | default | changes)
    except ValidationError as error:
        fault = error.errors()[0]
        raise ParamsError(f"{asked.text!r}: {fault['loc'][0]} {fault['input']!r}: {fault['msg']}") from None
    for name in changes:
        if SEARCH_OPTIONS[name] not in (None, search.root):
            raise ParamsError(
                f"{asked.text!r}: a {search.root} root does not read {name}; add root={SEARCH_OPTIONS[name]}, or leave "
                f"{name} out"
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
    """Who a network is (`weights`: its SHA-256) that searches as these parameters say.

    `precision`: with which it plays, in place of that of its parameters; where it differs, the settings tell both.
    """
    made_for = params.profile.precision
    settings: dict[str, str | int | float | bool] = {
        "weights": weights,
        "simulations": simulations,
        "resign_threshold": resign_threshold,
        "precision": precision or made_for,
        **(params.search.model_dump(exclude={"max_nodes"}) if simulations else {}),
    }
    if precision not in (None, made_for):
        settings["made_for_precision"] = made_for
    shown = f"{simulations} simulations" if simulations else "raw network"
    return PlayerId(name=f"{name}, {shown}", kind="network", settings=settings)


def game_of(home: Path, players: list[NetworkPlayer], komi: float | None = None, size: int | None = None) -> GameParams:
    """The game that these players play; without any, that of the project's `params.yaml`.

    Args:
      home: the project's folder.
      players: those that have a network.
      komi: in place of theirs.
      size: of the board, in place of theirs.

    Raises:
      ParamsError: they play different games, or it has no such komi or board.
    """
    made_for = [player.source.params.game for player in players if player.source.params is not None]
    first, *others = [_changed(game, komi, size) for game in made_for or [load_project_params(home).game]]
    for other in others:
        if other != first:
            remedy = "give --komi" if _differing(first, other) == ["komi"] else "take two players of one game"
            raise ParamsError(f"these players were made for different games: {difference(first, other)}; {remedy}")
    return first


def make_opponent(
    asked: PlayerText, network: NetworkPlayer | None, rules: Rules, games_at_once: int, seed: int
) -> Opponent:
    """The player, ready for a match in which `games_at_once` games are open.

    Raises:
      ZeroError: a program is missing, a number is out of range, or the network is for another board.
    """
    if network is not None:
        from zero.players.network import Searcher

        return Searcher(
            network.player,
            rules,
            network.evaluator(MATCH_THREADS),
            network.search,
            network.num_simulations,
            games_at_once,
            seed,
            network.resign_threshold,
        )
    if asked.kind == "rollout":
        from zero.players.rollout import RolloutPlayer

        return RolloutPlayer(rules, asked.number(DEFAULT_PLAYOUTS, 1, MOST_SIMULATIONS), games_at_once, seed)
    if asked.kind == "random":
        from zero.players.uniform import UniformPlayer

        return UniformPlayer(rules, seed)
    from zero.players import gtp

    if asked.kind == "gnugo":
        return gtp.gnugo(asked.number(DEFAULT_GNUGO_LEVEL, 0, 20), rules, seed)
    if asked.kind == "leelaz":
        playouts = asked.whole("playouts", asked.options.get("playouts", str(DEFAULT_LEELAZ_PLAYOUTS)), 1, 10**6)
        return gtp.leelaz(Path(asked.argument), playouts, rules, seed)
    try:
        command = shlex.split(asked.argument)
    except ValueError as error:
        raise ParamsError(f"{asked.text!r} is no command line: {str(error).lower()}; mend its quotes") from None
    return gtp.gtp_opponent(command, rules, seed=seed)


def make_mind(
    asked: PlayerText,
    network: NetworkPlayer | None,
    rules: Rules,
    seed: int,
    num_leaves: int,
    seconds: float | None = None,
) -> "Mind":
    """The player, for one game at a terminal or behind GTP; its `begin` starts it.

    Args:
      asked: the player.
      network: its network, where it has one.
      rules: the game and the first board; a player without a network goes on to any other board.
      seed: of all that is random.
      num_leaves: leaves of one tree that a network judges at once.
      seconds: limit of a search.

    Raises:
      ZeroError: the network is broken.
    """
    from zero.players.single_game import OpponentMind, PlayerMind

    if network is None:
        name = asked.text
        return OpponentMind(name, lambda board: make_opponent(asked, None, board, 1, seed), rules)
    from zero.play.player import Player

    evaluator, search = network.evaluator(num_cores()), network.search

    def new_player(board: Rules) -> Player:
        player = Player(
            board,
            evaluator,
            network.num_simulations,
            search.c_puct,
            search.first_play == "parent",
            search.random_symmetry,
            max_nodes=max(MANY_NODES, 4 * network.num_simulations),
            num_leaves=num_leaves,
            considered_actions=search.considered_actions if search.root == "gumbel" else 0,
            value_scale=search.value_scale,
            rescale_values=search.rescale_values,
            pass_wins=search.pass_wins,
            seed=seed,
            seconds=seconds,
        )
        player.search(WARM_UP)  # kernels are compiled and loaded now, and not on the clock of the first move
        player.new_game()
        return player

    return PlayerMind(network.player.name, new_player, rules, network.num_simulations, network.resign_threshold)


def _changed(game: GameParams, komi: float | None, size: int | None) -> GameParams:
    """The game with another komi or board."""
    changes = {name: value for name, value in (("komi", komi), ("size", size)) if value is not None}
    if komi is not None and not isinstance(game, GoParams):
        raise ParamsError(f"komi = {komi} is for Go; {game.name} has none")
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


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


class Entrant(NamedTuple):
    """A player before the match."""

    asked: PlayerText
    network: NetworkPlayer | None


def seat(
    home: Path,
    text: str,
    size: int | None = None,
    komi: float | None = None,
    seed: int = 1,
    num_leaves: int = 1,
    seconds: float | None = None,
) -> tuple["Mind", Rules]:
    """A player for one game with a person or another program, and the rules for its `begin`, which starts it.

    A network searches with `SEAT_SIMULATIONS`, or with those of its gate if they are more. It does not pass if the
    other player could win by passing too (`search.pass_wins`).

    Raises:
      ZeroError: the player is unknown or plays another game.
    """
    entrant = entrant_of(home, text, at_seat=True)
    rules = rules_of(game_of(home, [entrant.network] if entrant.network else [], komi, size))
    return make_mind(*entrant, rules, seed, num_leaves, seconds), rules


def entrant_of(home: Path, text: str, at_seat: bool = False) -> Entrant:
    """The player that a text describes, with its network if it has one."""
    asked = parse_player(text)
    return Entrant(asked, find_network_player(home, asked, at_seat) if asked.has_network else None)
