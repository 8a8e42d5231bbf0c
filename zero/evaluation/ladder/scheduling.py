"""Match scheduling: plays matches one after another, each between the two players whose game is most informative.

The next match follows from the finished ones alone. So an interrupted call, when it is repeated, first continues the
match that was interrupted.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from zero.config.params import GameParams, GoParams
from zero.errors import LineageError, ParamsError
from zero.evaluation.ladder.elo import Pair, most_informative
from zero.evaluation.ladder.results import Entry, champion_player, champion_text, champions_of, entry_of_player
from zero.evaluation.ladder.table import Rated, rate_lineage
from zero.evaluation.match.setup import FinishedMatch, Progress, finished_matches, run_match
from zero.games.rules import rules_of
from zero.players.build import difference, make_player, resolve_player
from zero.players.gtp_process import program_path
from zero.players.networks import SHIPPED_PREFIX
from zero.players.spec import parse_player
from zero.record.generation import Generation
from zero.record.lineages import ProjectRecord

WEAKER = ("random",)
"""Kinds of opponents that come before the first generation in the line-up; the others come after the last one."""
SEED = 1
"""Seed of the first match of a pair; each further match has the next free seed."""


class Schedule(NamedTuple):
    """What to play."""

    num_games: int
    """Games to add in this call."""
    match_games: int = 20
    """Games per match; the ratings are computed again after each match."""
    opening_moves: int = 4
    """Random moves at the start, the same for two games, so that deterministic players do not repeat a game."""
    against: tuple[str, ...] | None = None
    """Specs of the fixed opponents; None: those of `default_opponents`."""
    simulations: int | None = None
    """Simulations per move of the networks; None: those of each generation's gating."""
    games_at_once: int = 32


def default_opponents(game: GameParams) -> tuple[str, ...]:
    """Fixed opponents for a game, GNU Go only if it is installed. The first one is an anchor."""
    if isinstance(game, GoParams) and program_path("gnugo") is not None:
        return ("gnugo:10", "gnugo:1", "random")
    return ("rollout:1000", "random")


def play_schedule(
    home: Path, lineage: str, schedule: Schedule, progress: Callable[[int, int], None] | None = None
) -> Iterator[FinishedMatch]:
    """Plays matches until `schedule.num_games` games are added; yields each match when it is over.

    Args:
      home: the project's folder.
      lineage: its name.
      schedule: what to play.
      progress: receives (games done, all games).

    Raises:
      ParamsError: a number of games is odd or below 2.
      ZeroError: a player cannot be started; finished games are kept.
    """
    for number in (schedule.num_games, schedule.match_games):
        if number < 2 or number % 2:
            raise ParamsError(f"{number} games cannot be shared between the colours; give an even number of at least 2")
    done = 0
    with ProjectRecord(home) as record:
        generations = record.ancestry(lineage)
        rated = rate_lineage(home, generations)
        players = line_up(home, rated, schedule)
        if len(players) < 2 or all(player.generation is None for player in players):
            raise LineageError(
                f"lineage {lineage} has {len(players)} players of the newest generation's game, which is not enough "
                "for a match; give --against"
            )
        while done < schedule.num_games:
            pair = next_match(rated, players)
            size = min(schedule.match_games, schedule.num_games - done)
            texts = tuple(player.text for player in pair)
            assert texts[0] and texts[1], "see line_up"
            played = run_match(
                home,
                (texts[0], texts[1]),
                size,
                schedule.opening_moves,
                free_seed(home, {entry.key for entry in pair}),
                games_at_once=schedule.games_at_once,
                progress=_offset(done, schedule.num_games, progress),
            )
            done += size
            yield played
            rated = rate_lineage(home, generations)


def line_up(home: Path, rated: Rated, schedule: Schedule) -> list[Entry]:
    """All players, the weakest first as far as the order is known before the games."""
    game = rated.game
    texts = default_opponents(game) if schedule.against is None else schedule.against
    networks = _networks(rated.generations, game, schedule.simulations)
    opponents = [_opponent(home, text, game) for text in texts]
    weaker = [entry for entry in opponents if entry.kind in WEAKER]
    ordered = [*weaker, *networks, *(entry for entry in opponents if entry not in weaker)]
    # A shipped player that is also a champion is listed once, as the champion.
    own = {entry.key: entry for entry in networks}
    return list({entry.key: own.get(entry.key, entry) for entry in ordered}.values())


def next_match(rated: Rated, players: Sequence[Entry]) -> tuple[Entry, Entry]:
    """The two players whose game is most informative; of equals the nearest in the line-up.

    At least one of them is a champion: games between opponents have no information about the lineage.
    """
    by_key = {player.key: player for player in players}
    places = sorted(combinations(range(len(players)), 2), key=lambda places: (places[1] - places[0], -places[1]))
    chosen = [(players[i], players[j]) for i, j in places]
    pairs = [Pair(one.key, other.key) for one, other in chosen if {one.generation, other.generation} != {None}]
    pair = most_informative(rated.groups, pairs)
    return by_key[pair.first], by_key[pair.second]


def free_seed(home: Path, keys: set[str]) -> int:
    """The lowest seed that no finished match of these two players has."""
    used = {
        spec.seed
        for _, spec, _ in finished_matches(home)
        if {entry_of_player(player).key for player in spec.players} == keys
    }
    return next(seed for seed in range(SEED, SEED + len(used) + 1) if seed not in used)


def _offset(done: int, total: int, progress: Callable[[int, int], None] | None) -> Progress | None:
    """Reports the games of a match as those after the first `done`."""
    return (lambda now, _, __: progress(done + now, total)) if progress else None


def _networks(generations: Sequence[Generation], game: GameParams, simulations: int | None) -> list[Entry]:
    found = []
    for generation in champions_of(generations).values():
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
        params = resolved.network.params
        if params is not None and params.game != game:
            raise ParamsError(f"{text!r} plays another game ({difference(params.game, game)}); give another opponent")
        return entry_of_player(resolved.network.id, None, text)
    # A program must be started to report its name and version.
    player = make_player(resolved, rules_of(game), 1, SEED)
    try:
        return entry_of_player(player.id, None, text)
    finally:
        player.close()
