"""A ladder for a person: a table a group, and in sentences what the numbers are relative to and what they lack."""

from collections.abc import Iterator

from rich.table import Table

from zero.evaluation.ladder.table import Ladder, Row

UNCERTAIN = 400
"""Half-width of an interval from which on a rating hardly says anything: the one beats the other ten to one."""


def ladder_tables(ladder: Ladder) -> Iterator[Table]:
    """A table for each group, the strongest first."""
    for group, scale in enumerate(ladder.scales):
        title = f"ladder of {ladder.lineage}" + (f", group {group + 1}" if len(ladder.scales) > 1 else "")
        table = Table(title=f"{title}: {scale.reference} = {scale.elo:.0f}", title_justify="left")
        table.add_column("player")
        for column in ("rating", "95 % interval", "games", "opponents"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in ladder.rows:
            if row.group == group:
                table.add_row(*_cells(row))
        yield table


def ladder_lines(ladder: Ladder) -> Iterator[str]:
    """What a reader of the ratings has to know."""
    if not ladder.rows:
        yield (
            f"no results: no challenger of {ladder.lineage} was promoted and no match was played; "
            f"add matches with `zero elo {ladder.lineage} --games 100`"
        )
        return
    gates = sum(result.games for result in ladder.results if result.kind == "gate")
    games = sum(result.games for result in ladder.results)
    different = sum(result.score.games for result in ladder.results)
    yield f"{games} games, {gates} of them the gate's; {different:g} different ones, which alone count"
    if len(ladder.scales) > 1:
        yield (
            f"the players fall into {len(ladder.scales)} groups that never met, so ratings of different groups cannot "
            f"be compared; join them with `zero elo {ladder.lineage} --games 100`"
        )
    if gates and gates == games:
        yield (
            "every result is of a gate, which lets those pass that did well there: the steps are overrated; "
            f"`zero elo {ladder.lineage} --games 100` adds matches that choose nobody"
        )
    if not any(scale.is_anchor for scale in ladder.scales):
        yield "no fixed opponent holds the scale, so it cannot be compared with that of another lineage"
    if vague := sum(row.high - row.low > 2 * UNCERTAIN for row in ladder.rows):
        yield f"{vague} of {len(ladder.rows)} ratings are uncertain by more than {UNCERTAIN} points"
    if not ladder.curve:
        yield "no curve: no champion has played with that many simulations"


def _cells(row: Row) -> tuple[str, ...]:
    interval = "given" if row.low == row.high else f"{row.low:.0f} to {row.high:.0f}"
    return (row.entry.name, f"{row.elo:.0f}", interval, f"{row.games:g}", str(row.opponents))
