"""The yardsticks of a lineage for a person: a table of its networks, a table of its games."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from zero.evaluation.probes import ALL_GAMES
from zero.evaluation.probes.judge import Judgement
from zero.evaluation.probes.shape import OPENING_LENGTHS
from zero.evaluation.probes.table import GenerationYardsticks, Who

LAST_GENERATIONS = 20
MISSING = "·"
SHOWN: tuple[Who, ...] = ("challenger", "champion")


def yardstick_tables(yardsticks: Sequence[GenerationYardsticks]) -> Iterator[Table]:
    """The last generations."""
    last = yardsticks[-LAST_GENERATIONS:]
    title = "accuracy of the policy / its cross-entropy / squared error of the value"
    networks = Table(title=f"networks against games: {title}", title_justify="left")
    networks.add_column("generation", justify="right")
    networks.add_column("who")
    for games in ALL_GAMES:
        networks.add_column(games, justify="right", no_wrap=True)
    networks.add_column("entropy", justify="right")
    for each in last:
        for who in SHOWN:
            found = [each.find(who, games) for games in ALL_GAMES]
            if who == "champion" and found == [each.find("challenger", games) for games in ALL_GAMES]:
                continue  # it is the challenger
            own = found[0]
            entropy = MISSING if own is None else f"{own.entropy:.2f}"
            networks.add_row(str(each.generation), who, *(_cell(judgement) for judgement in found), entropy)
    yield networks
    shapes = Table(title="games", title_justify="left")
    columns = "generation, games, moves, spread, Black, start value, resigned, score spread, target entropy"
    for column in columns.split(", "):
        shapes.add_column(column, justify="right")
    for moves in OPENING_LENGTHS:
        shapes.add_column(f"openings of {moves}", justify="right")
    for each in last:
        shape = each.shape
        spread = MISSING if shape.score_spread is None else f"{shape.score_spread:.1f}"
        shapes.add_row(
            *(str(each.generation), str(shape.num_games), f"{shape.mean_length:.1f}", f"{shape.length_spread:.1f}"),
            *(
                f"{shape.black_score:.1%}",
                f"{shape.start_value:+.2f}",
                f"{shape.resigned:.1%}",
                spread,
                f"{shape.target_entropy:.2f}",
            ),
            *(str(shape.unique_openings[moves]) for moves in OPENING_LENGTHS),
        )
    yield shapes


def _cell(found: Judgement | None) -> str:
    return f"{found.policy_accuracy:.1%} / {found.cross_entropy:.2f} / {found.value_error:.2f}" if found else MISSING
