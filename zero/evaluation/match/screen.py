"""A match in a few lines for a person."""

from collections.abc import Iterator
from pathlib import Path

from zero.evaluation.match import colour_interval
from zero.evaluation.match.results import MatchTable
from zero.storage.manifests import Colours


def match_lines(table: MatchTable, folder: Path) -> Iterator[str]:
    """Who won, by how much and how surely, and where the games are."""
    first, second = (player.name for player in table.players)
    result = table.result
    games = result.wins + result.losses + result.draws
    low, high = result.interval
    yield f"{first} against {second}: {games} games"
    yield (
        f"{result.wins} won, {result.losses} lost, {result.draws} drawn: {result.score:.1%} "
        f"(95 % interval {low:.1%} to {high:.1%})"
    )
    yield f"as Black {_colours(result.as_black)}; as White {_colours(result.as_white)}"
    yield f"{result.unique_games} unique games of {result.mean_length:.0f} moves on average"
    if table.mean_margin is not None:
        yield f"mean margin of the games played out: {table.mean_margin:+.1f} points"
    for name, forfeits in zip((first, second), table.forfeits, strict=True):
        if forfeits:
            yield f"{name} forfeited {forfeits} games; the reasons are in the SGF"
    yield f"games and count: {folder}"


def _colours(colours: Colours) -> str:
    games = colours.wins + colours.losses + colours.draws
    low, high = colour_interval(colours)
    score = (colours.wins + colours.draws / 2) / games if games else 0.0
    return f"{colours.wins}-{colours.losses}-{colours.draws}, {score:.1%} ({low:.1%} to {high:.1%})"
