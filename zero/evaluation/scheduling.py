"""Match scheduling: plays matches one after another, each between the two players whose game is most informative.

The next match follows from the finished ones alone. So an interrupted call, when it is repeated, first continues the
match that was interrupted.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from zero.config.params import GameParams, GoParams
from zero.errors import LineageError, ParamsError
from zero.evaluation.elo import most_informative
from zero.evaluation.ladder import Entry, Rated, champion_player, champions_of, entry_of_player, key_of, rate_lineage
from zero.evaluation.match import FinishedMatch, finished_matches, run_match
from zero.games.rules import rules_of
from zero.players.build import difference, identify, resolve_player
from zero.players.gtp_process import program_path
from zero.players.networks import SHIPPED_PREFIX
from zero.players.spec import parse_player
from zero.progress import Progress, part_of
from zero.record.lineages import ProjectRecord

WEAKER = ("random",)
"""Kinds of opponents that come before the first generation in the line-up; the others come after the last one."""
SEED = 1
"""Seed of the first match of a pair; each further match has the next free seed."""
MATCH_GAMES = 20
"""Games per match; the ratings are computed again after each match."""
OPENING_MOVES = 4
"""Random moves at the start, the same for two games, so that deterministic players do not repeat a game."""


def default_opponents(game: GameParams) -> tuple[str, ...]:
    """Fixed opponents for a game, GNU Go only if it is installed. The first one is an anchor."""
    if isinstance(game, GoParams) and program_path("gnugo") is not None:
        return ("gnugo:10", "gnugo:1", "random")
    return ("rollout:1000", "random")


def play_schedule(
    home: Path,
    lineage: str,
    num_games: int,
    against: Sequence[str] | None = None,
    simulations: int | None = None,
    progress: Progress | None = None,
) -> Iterator[FinishedMatch]:
    """Plays matches until `num_games` games are added; yields each match when it is over.

    Args:
      home: the project's folder.
      lineage: its name.
      num_games: games to add in this call.
      against: specs of the fixed opponents; None: those of `default_opponents`.
      simulations: simulations per move of the networks; None: those of each generation's gating.
      progress: receives (games done, all games).

    Raises:
      ParamsError: the number of games is odd or below 2.
      ZeroError: a player cannot be started; finished games are kept.
    """
    if num_games < 2 or num_games % 2:
        raise ParamsError(f"{num_games} games cannot be shared between the colours; give an even number of at least 2")
    done = 0
    with ProjectRecord(home) as record:
        generations = record.ancestry(lineage)
        rated = rate_lineage(home, generations)
        players = line_up(home, rated, against, simulations)
        if len(players) < 2 or all(player.generation is None for player in players):
            raise LineageError(
                f"lineage {lineage} has {len(players)} players of the newest generation's game, which is not enough "
                "for a match; give --against"
            )
        while done < num_games:
            one, other = next_match(rated, players)
            assert one.text and other.text, "see line_up"
            size, seed = min(MATCH_GAMES, num_games - done), free_seed(home, {one.key, other.key})
            report = part_of(progress, done, num_games)
            played = run_match(home, (one.text, other.text), size, OPENING_MOVES, seed, progress=report)
            done += size
            yield played
            rated = rate_lineage(home, generations)


def line_up(
    home: Path, rated: Rated, against: Sequence[str] | None = None, simulations: int | None = None
) -> list[Entry]:
    """All players, the weakest first as far as the order is known before the games."""
    game = rated.game
    networks = []
    for generation in champions_of(rated.generations).values():
        player = champion_player(generation, simulations)
        if player is not None and generation.params is not None and generation.params.game == game:
            text = generation.tag if simulations is None else f"{generation.tag},simulations={simulations}"
            networks.append(entry_of_player(player, generation.number, text))
    opponents = [_opponent(home, text, game) for text in (default_opponents(game) if against is None else against)]
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
    pairs = [(one.key, other.key) for one, other in chosen if {one.generation, other.generation} != {None}]
    first, second = most_informative(rated.groups, pairs)
    return by_key[first], by_key[second]


def free_seed(home: Path, keys: set[str]) -> int:
    """The lowest seed that no finished match of these two players has."""
    used = {spec.seed for _, spec, _ in finished_matches(home) if {key_of(player) for player in spec.players} == keys}
    return next(seed for seed in range(SEED, SEED + len(used) + 1) if seed not in used)


def _opponent(home: Path, text: str, game: GameParams) -> Entry:
    spec = parse_player(text)
    if spec.has_network and not spec.argument.startswith(SHIPPED_PREFIX):
        raise ParamsError(
            f"{text!r} is not a fixed opponent; give a program or a shipped player, such as gnugo:10, random or "
            "shipped:go9"
        )
    player = resolve_player(home, spec)
    params = player.network.params if player.network is not None else None
    if params is not None and params.game != game:
        raise ParamsError(f"{text!r} plays another game ({difference(params.game, game)}); give another opponent")
    return entry_of_player(identify(player, rules_of(game)), None, text)
