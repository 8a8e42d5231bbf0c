"""The JSON interface of the lineages: their list, their generations as a graph, reports, and ladders."""

from collections.abc import Iterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from zero.errors import ZeroError
from zero.evaluation.ladder import fit_lines
from zero.evaluation.ladder_output import ladder_lines
from zero.lineage.status import warning_lines
from zero.network.health import Verdict
from zero.record.generation import Generation
from zero.record.history import known_lineages, read_lines
from zero.record.ledger import line_digest, lineages_here
from zero.record.texts import match_interval
from zero.storage.layout import LEDGER_FILE, workspace_dir
from zero.storage.manifests import Manifest
from zero.web.ladders import read_ladders
from zero.web.report import Kind, generation_report, open_generations, training_values


class Node(Manifest):
    """A generation in the graph of its lineage."""

    generation: int
    tag: str
    kind: Kind
    promoted: bool | None
    """None without a decision."""
    champion_generation: int
    parent: str | None
    """Tag of the generation from which the training continued; None for a random network."""
    score: float | None
    interval: tuple[float, float] | None
    threshold: float | None
    verdict: Verdict | None
    """Health of the training."""
    value_loss: float | None
    constant_value_loss: float | None
    """Loss of the best constant value."""
    explained_variance: float | None
    games: int | None
    """Games of self-play."""
    game_length: float | None


class Summary(Manifest):
    """A lineage in the list."""

    lineage: str
    error: str | None
    """Why it cannot be read; the other values are then None."""
    num_generations: int | None = None
    """Number of entries of its ledger."""
    champion: str | None = None
    """SHA-256 of the champion's weights."""
    champion_generation: int | None = None
    last: Node | None = None
    """Its newest generation."""
    source: str | None = None
    """Generation from which it branched."""
    warnings: tuple[str, ...] = ()


class Summaries(Manifest):
    """All lineages of a project."""

    lineages: tuple[Summary, ...]


class Branch(Manifest):
    """A lineage that began with a generation of another one."""

    lineage: str
    source: str


class LineageGraph(Manifest):
    """The graph of a lineage."""

    lineage: str
    head: str
    """Digest of its newest line in the ledger: a lineage that goes on has another one."""
    game: str | None
    nodes: tuple[Node, ...]
    branches: tuple[Branch, ...]
    """Lineages that branched from it."""
    warnings: tuple[str, ...]


def routes(home: Path) -> list[Route]:
    """The routes of lineages and ladders.

    Args:
      home: the project's folder.
    """

    def all_lineages(_: Request) -> Response:
        return _json(Summaries(lineages=tuple(_summary(home, name) for name in known_lineages(home))))

    def one_lineage(request: Request) -> Response:
        return _json(lineage_graph(home, request.path_params["lineage"]))

    def one_generation(request: Request) -> Response:
        with open_generations(home, request.path_params["lineage"], offline=True) as generations:
            return _json(generation_report(home, generations, request.path_params["number"]))

    def all_ladders(_: Request) -> Response:
        found = read_ladders(home)
        # A ladder has thousands of results, which the page does not show.
        content = found.model_dump(mode="json", exclude={"ladders": {"__all__": {"results"}}})
        for shown, ladder in zip(content["ladders"], found.ladders, strict=True):
            shown["notes"] = list(ladder_lines(ladder))
        for shown, tournament in zip(content["tournaments"], found.tournaments, strict=True):
            shown["notes"] = list(fit_lines(tournament.fits))
        return JSONResponse(content)

    return [
        Route("/api/lineages", all_lineages),
        Route("/api/lineages/{lineage}", one_lineage),
        Route("/api/lineages/{lineage}/{number:number}", one_generation),
        Route("/api/ladder", all_ladders),
    ]


def lineage_graph(home: Path, lineage: str) -> LineageGraph:
    """The graph of a lineage.

    Raises:
      LineageError: the lineage is unknown, or its ledger is broken.
      StorageError: a file of the record is corrupt.
    """
    with open_generations(home, lineage, offline=True) as generations:
        last = generations[-1]
        return LineageGraph(
            lineage=lineage,
            head=line_digest(last.read_entry()),
            game=last.params.game.name if last.params else None,
            nodes=tuple(map(_node, generations, [None, *generations])),
            branches=tuple(_branches(home, lineage)),
            warnings=tuple(warning_lines(last)),
        )


def _node(generation: Generation, before: Generation | None) -> Node:
    """A generation in the graph; `before`: the one before it in its ledger."""
    entry = generation.read_entry()
    decision, match = entry.decision, entry.decision.match if entry.decision else None
    selfplay = generation.selfplay_metrics if decision else None
    training = training_values(generation) if decision else {}
    return Node(
        generation=generation.number,
        tag=generation.tag,
        kind=entry.kind,
        promoted=decision.promoted if decision else None,
        champion_generation=entry.champion_generation,
        parent=entry.source.tag if entry.source else before.tag if before else None,
        score=match.score if match else None,
        interval=match_interval(match) if match else None,
        threshold=decision.threshold if decision else None,
        verdict=generation.health.verdict if decision and generation.health else None,
        value_loss=training.get("value_loss"),
        constant_value_loss=training.get("constant_value_loss"),
        explained_variance=training.get("explained_variance"),
        games=selfplay.num_games if selfplay else None,
        game_length=selfplay.mean_length if selfplay else None,
    )


def _branches(home: Path, lineage: str) -> Iterator[Branch]:
    """The lineages with a workspace that branched from this one, by the first line of their ledger."""
    for name in lineages_here(home):
        try:
            with (workspace_dir(home, name) / LEDGER_FILE).open("rb") as file:
                line = read_lines(file.readline())
        except OSError:  # it was moved away since
            continue
        source = line[0].entry.source if line and line[0].entry else None
        if source and source.tag.startswith(f"{lineage}/"):
            yield Branch(lineage=name, source=source.tag)


def _summary(home: Path, lineage: str) -> Summary:
    try:
        with open_generations(home, lineage, offline=True) as generations:
            first, last = generations[0].read_entry(), generations[-1].read_entry()
            return Summary(
                lineage=lineage,
                error=None,
                num_generations=len(generations),
                champion=last.champion,
                champion_generation=last.champion_generation,
                last=_node(generations[-1], generations[-2] if len(generations) > 1 else None),
                source=first.source.tag if first.source else None,
                warnings=tuple(warning_lines(generations[-1])),
            )
    except ZeroError as error:  # the other lineages are shown
        return Summary(lineage=lineage, error=str(error))


def _json(model: Manifest) -> Response:
    return Response(model.model_dump_json(), media_type="application/json")
