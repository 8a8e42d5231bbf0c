"""The yardsticks of a lineage in its experiment on MLflow: metrics with step = generation, first moves as a picture."""

from collections.abc import Sequence

from zero.evaluation.probes import ALL_GAMES
from zero.evaluation.probes.picture import PICTURE_FILE, first_moves_png
from zero.evaluation.probes.table import GenerationYardsticks, Who
from zero.games.position import Rules
from zero.storage.files import canonical_json
from zero.tracking.ladder import track_summary
from zero.tracking.metrics import Point

STAGE = "yardsticks"
NOTE = "Yardsticks of `zero yardsticks`: the step is the generation; `later-1` are the games of the next one."
WHO: tuple[Who, ...] = ("challenger", "champion")


def track_yardsticks(uri: str, lineage: str, rules: Rules, yardsticks: Sequence[GenerationYardsticks]) -> str:
    """Writes the yardsticks to the MLflow server in place of those there; returns the address of their page.

    Raises:
      ServerError: the server does not answer; nothing is lost, and the call can be repeated.
    """
    points = [point for each in yardsticks for point in yardstick_points(each)]
    whole = {f"gen-{each.generation:04d}": each.model_dump(mode="json") for each in yardsticks}
    files = {"yardsticks.json": canonical_json(whole)}
    if yardsticks:
        files[PICTURE_FILE] = first_moves_png(rules, yardsticks)
    return track_summary(uri, lineage, STAGE, NOTE, points, files)


def yardstick_points(yardsticks: GenerationYardsticks) -> list[Point]:
    """One generation's metrics, such as `challenger/later-1/policy_accuracy` and `games/mean_length`."""
    shape = yardsticks.shape.model_dump(exclude={"first_moves", "unique_openings"}, exclude_none=True)
    numbers: dict[str, float] = {f"games/{name}": value for name, value in shape.items()}
    for moves, unique in yardsticks.shape.unique_openings.items():
        numbers[f"games/unique_openings_{moves}"] = unique
    numbers["games/first_move_share"] = max(yardsticks.shape.first_moves) / yardsticks.shape.num_games
    for who in WHO:
        for games in ALL_GAMES:
            if (found := yardsticks.find(who, games)) is not None:
                judged = found.model_dump(exclude={"num_positions"})
                numbers |= {f"{who}/{games}/{name}": value for name, value in judged.items()}
    return [Point(name, float(value), yardsticks.generation) for name, value in numbers.items()]
