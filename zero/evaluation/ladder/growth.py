"""Adds matches to a ladder, one after another, each between the two players of which a game tells most just then.

Which match comes next follows from the finished ones alone. So a call that was cut short and is repeated first goes on
with the match it was in.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from zero.config.params import GameParams, GoParams
from zero.errors import LineageError, ParamsError
from zero.evaluation.ladder import Rated, rate_lineage
from zero.evaluation.ladder.elo import Pair, most_informative
from zero.evaluation.ladder.entries import Entry, champion_player, champion_text, champions, entry_of_player
from zero.evaluation.match import Progress
from zero.evaluation.match.setup import Played, contest, finished_matches
from zero.games.rules import rules_of
from zero.players.build import difference, make_player, resolve_player
from zero.players.gtp_process import program_path
from zero.players.networks import SHIPPED_PREFIX
from zero.players.spec import parse_player
from zero.record.generation import Generation
from zero.record.lineages import ProjectRecord

WEAKER = ("random",)
"""Kinds that stand before the first generation in the line-up; other opponents stand behind the last."""
SEED = 1
"""Of a pair's first match; each match more has the next one."""


class Growth(NamedTuple):
    """How a ladder is to grow."""

    num_games: int
    """To be played now."""
    match_games: int = 20
    """Of a match; then all ratings are made anew."""
    opening_moves: int = 4
    """Random moves at the start, the same for two games, so that players without chance do not repeat one game."""
    against: tuple[str, ...] | None = None
    """Fixed opponents, as `zero match` names them; None: those of `usual_opponents`."""
    simulations: int | None = None
    """Of the networks, a move; None: those of each generation's gate."""
    games_at_once: int = 32


def usual_opponents(game: GameParams) -> tuple[str, ...]:
    """Fixed opponents for a game, as far as they are installed; the first can hold the scale."""
    if isinstance(game, GoParams) and program_path("gnugo") is not None:
        return ("gnugo:10", "gnugo:1", "random")
    return ("rollout:1000", "random")


def grow(
    home: Path, lineage: str, growth: Growth, progress: Callable[[int, int], None] | None = None
) -> Iterator[Played]:
    """Plays matches until there are as many games more; each match is yielded when it is over.

    Args:
      home: the project's folder.
      lineage: its name.
      growth: what to play.
      progress: is told of (games done, games in all).

    Raises:
      ParamsError: a number of games is odd or below 2.
      ZeroError: a player cannot be started; what was played is kept.
    """
    for number in (growth.num_games, growth.match_games):
        if number < 2 or number % 2:
            raise ParamsError(f"{number} games cannot be shared between the colours; give an even number from 2 on")
    done = 0
    with ProjectRecord(home) as chains:
        generations = chains.ancestry(lineage)
        rated = rate_lineage(home, generations)
        players = line_up(home, rated, growth)
        if len(players) < 2 or all(player.generation is None for player in players):
            raise LineageError(
                f"lineage {lineage} has nobody to play: {len(players)} players with the newest generation's game; "
                "give --against"
            )
        while done < growth.num_games:
            pair = next_match(rated, players)
            size = min(growth.match_games, growth.num_games - done)
            texts = tuple(player.text for player in pair)
            assert texts[0] and texts[1]
            played = contest(
                home,
                (texts[0], texts[1]),
                size,
                growth.opening_moves,
                free_seed(home, {entry.key for entry in pair}),
                games_at_once=growth.games_at_once,
                progress=_beyond(done, growth.num_games, progress),
            )
            done += size
            yield played
            rated = rate_lineage(home, generations)


def line_up(home: Path, rated: Rated, growth: Growth) -> list[Entry]:
    """All who can play, the weakest first as far as that is known beforehand."""
    game = rated.game
    texts = usual_opponents(game) if growth.against is None else growth.against
    networks = _networks(rated.generations, game, growth.simulations)
    opponents = [_opponent(home, text, game) for text in texts]
    weaker = [entry for entry in opponents if entry.kind in WEAKER]
    lined_up = [*weaker, *networks, *(entry for entry in opponents if entry not in weaker)]
    # a shipped player that is also a champion stands for that champion
    own = {entry.key: entry for entry in networks}
    return list({entry.key: own.get(entry.key, entry) for entry in lined_up}.values())


def next_match(rated: Rated, players: Sequence[Entry]) -> tuple[Entry, Entry]:
    """The two of whom a game tells most; of equals, such as players of unlike groups, the nearest in the line-up.

    At least one of them is a champion: games among the opponents tell nothing about the lineage.
    """
    by_key = {player.key: player for player in players}
    places = sorted(combinations(range(len(players)), 2), key=lambda places: (places[1] - places[0], -places[1]))
    chosen = [(players[i], players[j]) for i, j in places]
    pairs = [Pair(one.key, other.key) for one, other in chosen if {one.generation, other.generation} != {None}]
    pair = most_informative(rated.groups, pairs)
    return by_key[pair.first], by_key[pair.second]


def free_seed(home: Path, keys: set[str]) -> int:
    """The first seed that no finished match between these two has."""
    used = {
        spec.seed
        for _, spec, _ in finished_matches(home)
        if {entry_of_player(player).key for player in spec.players} == keys
    }
    return next(seed for seed in range(SEED, SEED + len(used) + 1) if seed not in used)


def _beyond(done: int, total: int, progress: Callable[[int, int], None] | None) -> Progress | None:
    """Tells of the games of a match as of those after the first `done`."""
    return (lambda now, _, __: progress(done + now, total)) if progress else None


def _networks(generations: Sequence[Generation], game: GameParams, simulations: int | None) -> list[Entry]:
    found = []
    for generation in champions(generations).values():
        player = champion_player(generation, simulations)
        if player is not None and generation.params is not None and generation.params.game == game:
            found.append(entry_of_player(player, generation.number, champion_text(generation, simulations)))
    return found


def _opponent(home: Path, text: str, game: GameParams) -> Entry:
    spec = parse_player(text)
    if spec.has_network and not spec.argument.startswith(SHIPPED_PREFIX):
        raise ParamsError(
            f"{text!r} is not a fixed opponent; give a program or a shipped player, such as gnugo:10, random or "
            "shipped:go9"
        )
    resolved = resolve_player(home, spec)
    if resolved.network is not None:
        params = resolved.network.network.params
        if params is not None and params.game != game:
            raise ParamsError(
                f"{text!r} was made for another game ({difference(params.game, game)}); give another opponent"
            )
        return entry_of_player(resolved.network.id, None, text)
    player = make_player(resolved, rules_of(game), 1, SEED)  # only a running program reports its name and version
    try:
        return entry_of_player(player.id, None, text)
    finally:
        player.close()
