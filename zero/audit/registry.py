"""Checks of MLflow: each run, version and alias equals what `zero.tracking.pages` makes of the generation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from zero.audit.findings import Mark, Mismatch, differs
from zero.errors import ZeroError
from zero.record.generation import PULL, Generation
from zero.tracking import pages
from zero.tracking.audit import Catalogue, FoundRun, FoundVersion
from zero.tracking.pages import MetricPoint

OWN_PREFIX = "zero."
"""Prefix of this program's tags. Others, such as notes by a person, are not compared."""
NOT_RECORDED = (f"{pages.COST_GROUP}/", f"{pages.SYSTEM_GROUP}/")
"""Prefixes of metrics that are not compared: costs are notes of git, which may come later."""
FINISHED = "FINISHED"
REBUILD = "write it again from git and DVC: `zero track --rebuild {lineage}`"


class Expected(NamedTuple):
    """What MLflow should have of a generation."""

    pages: tuple[pages.Page, ...]
    """Runs of the generation and its stages; empty for the first network."""
    version: pages.ModelVersion | None
    ladder: frozenset[MetricPoint]
    """Its points; the total of games is its own, without those of earlier generations."""


def check_registry(
    generations: Sequence[Generation], catalogue: Catalogue | None
) -> Iterator[tuple[Generation, Mismatch]]:
    """Runs, versions, aliases and ladder of a lineage.

    Args:
      generations: all generations of the lineage, oldest first.
      catalogue: what the server has of it; None if it has nothing.
    """
    expected: dict[str, Expected] = {}
    for generation in generations:
        if generation.entry is None:
            continue
        wanted = _expected_of(generation)
        if wanted is None:
            remedy = PULL.format(tag=generation.tag)
            where, found = f"MLflow, {generation.tag}", "no record to compare with"
            yield generation, Mismatch(where, "not compared", found, "", remedy, Mark.MISSING)
        else:
            expected[generation.tag] = wanted
            yield from ((generation, mismatch) for mismatch in _check_generation(generation, wanted, catalogue))
    if catalogue is not None and generations:
        yield from _check_aliases(generations, catalogue)
        yield from _check_ladder(generations, expected, catalogue)


def _expected_of(generation: Generation) -> Expected | None:
    """What MLflow should have of a generation; None if its files are missing or cannot be read.

    The code that writes MLflow makes the pages here too, from the same view of the generation.
    """
    if generation.commit is None or generation.entry is None:
        return None
    try:
        version = pages.challenger_version(generation)
        if generation.entry.kind == "start":  # registered as the champion of the first generation, without a run
            return Expected((), version, frozenset())
        shown = (pages.generation_page(generation), *pages.stage_pages(generation))
        return Expected(shown, version, frozenset(pages.ladder_points(generation, 0.0)))
    except ZeroError:
        return None


def _check_generation(generation: Generation, expected: Expected, catalogue: Catalogue | None) -> Iterator[Mismatch]:
    # generations are tracked in order: one without any run, older than a tracked one, was deleted
    if catalogue is None or _newest(catalogue) < generation.number:
        if expected.pages:
            where, track = f"MLflow, {generation.tag}", f"`zero track {generation.lineage}`"
            yield Mismatch(where, "not tracked", "nothing", "a run", track, Mark.MISSING)
        return
    remedy = REBUILD.format(lineage=generation.lineage)
    for page in expected.pages:
        yield from _check_run(page, catalogue, remedy)
    if expected.version is not None:
        yield from _check_version(expected.version, catalogue, remedy)


def _check_aliases(generations: Sequence[Generation], catalogue: Catalogue) -> Iterator[tuple[Generation, Mismatch]]:
    """`champion` and `challenger` point at the versions that the newest tracked generation gives."""
    numbers = {version.version: version.tags.get("generation") for version in catalogue.versions}
    tracked = [each for each in generations if each.entry and each.entry.kind != "start" and _traces(each, catalogue)]
    made = [each.number for each in tracked if each.entry and each.entry.kind != "rollback"]
    if not made:
        return
    newest, first = tracked[-1], generations[0].number
    assert newest.entry is not None
    remedy = REBUILD.format(lineage=newest.lineage)
    # the champion of a branch's source is registered under the branch's first number
    for alias, wanted in (("champion", max(newest.entry.champion_generation, first)), ("challenger", made[-1])):
        version = catalogue.aliases.get(alias)
        found = None if version is None else numbers.get(version, "no version")
        for mismatch in differs(f"MLflow, alias {alias}", "generation", found, str(wanted), remedy):
            yield newest, mismatch


def _check_ladder(
    generations: Sequence[Generation], expected: Mapping[str, Expected], catalogue: Catalogue
) -> Iterator[tuple[Generation, Mismatch]]:
    """The ladder has the points of each tracked generation."""
    key = pages.ladder_page(generations[0].lineage).key
    ladders = [run for run in catalogue.runs_of(key) if not run.deleted]
    found = ladders[0].points if ladders else frozenset()
    remedy = REBUILD.format(lineage=generations[0].lineage)
    games = 0.0
    has_all_games = True
    for generation in generations:
        wanted = expected.get(generation.tag)
        if wanted is None:  # its data is not here, so later totals are unknown
            has_all_games = False
        if wanted is None or not wanted.pages or not _traces(generation, catalogue):
            continue
        own = {point.name: point for point in wanted.ladder}
        here = frozenset(point for point in found if point.step == generation.number)
        if not has_all_games:
            own.pop(pages.LADDER_GAMES, None)
            here = frozenset(point for point in here if point.name != pages.LADDER_GAMES)
        elif (total := own.get(pages.LADDER_GAMES)) is not None:
            games += total.value
            own[total.name] = total._replace(value=games)
        for mismatch in _points("MLflow, run ladder", here, frozenset(own.values()), remedy):
            yield generation, mismatch


def _traces(generation: Generation, catalogue: Catalogue) -> list[FoundRun | FoundVersion]:
    """All runs and versions of a generation on the server."""
    key = {"zero.lineage": generation.lineage, "zero.generation": str(generation.number)}
    return [*catalogue.runs_of(key), *_versions_of(generation.number, catalogue)]


def _newest(catalogue: Catalogue) -> int:
    """Number of the newest generation on the server; -1 if there is none."""
    numbers = [run.tags.get("zero.generation", "") for run in catalogue.runs]
    numbers += [version.tags.get("generation", "") for version in catalogue.versions]
    return max((int(number) for number in numbers if number.isdecimal()), default=-1)


def _versions_of(number: int, catalogue: Catalogue) -> list[FoundVersion]:
    return [each for each in catalogue.versions if each.tags.get("generation") == str(number)]


def _check_run(page: pages.Page, catalogue: Catalogue, remedy: str) -> Iterator[Mismatch]:
    where = f"MLflow, run {page.key['zero.stage']} of {page.tags['zero.tag']}"
    found = catalogue.runs_of(page.key)
    active = [run for run in found if not run.deleted and not catalogue.deleted]
    if not active:
        what = "run deleted"
        state = f"a deleted run ({found[0].run_id})" if found else "nothing"
        yield Mismatch(where, what, state, "a run", f"restore it in MLflow, or {remedy}")
        return
    yield from differs(where, "runs of that stage", len(active), 1, remedy)
    run = active[0]
    where = f"{where} ({run.run_id})"
    yield from differs(where, "status", run.status, FINISHED, remedy)
    for kind, has, wanted in (
        ("tag", {name: value for name, value in run.tags.items() if name.startswith(OWN_PREFIX)}, _own(page)),
        ("parameter", run.params, page.params),
    ):
        for name in sorted(has.keys() | wanted.keys()):
            yield from differs(where, f"{kind} {name}", has.get(name), wanted.get(name), remedy)
    recorded = frozenset(point for point in run.points if not point.name.startswith(NOT_RECORDED))
    wanted_points = frozenset(point for point in page.points if not point.name.startswith(NOT_RECORDED))
    yield from _points(where, recorded, wanted_points, remedy)


def _own(page: pages.Page) -> dict[str, str]:
    return {name: value for name, value in (page.tags | page.key).items() if name.startswith(OWN_PREFIX)}


def _points(
    where: str, found: frozenset[MetricPoint], wanted: frozenset[MetricPoint], remedy: str
) -> Iterator[Mismatch]:
    """One mismatch for each metric with other values."""
    for name in sorted({point.name for point in found ^ wanted}):
        has = sorted((point.step, point.value) for point in found - wanted if point.name == name)
        lacks = sorted((point.step, point.value) for point in wanted - found if point.name == name)
        yield Mismatch(where, f"metric {name}", _steps(has), _steps(lacks), remedy)


def _steps(points: list[tuple[int, float]]) -> str:
    shown = ", ".join(f"{value:g} at step {step}" for step, value in points[:3])
    return (shown + ("" if len(points) <= 3 else f" and {len(points) - 3} more")) or "nothing else"


def _check_version(expected: pages.ModelVersion, catalogue: Catalogue, remedy: str) -> Iterator[Mismatch]:
    where = f"MLflow, version of {expected.tags['git_tag']}"
    found = _versions_of(expected.generation, catalogue)
    if not found:
        yield Mismatch(where, "version deleted", "nothing", f"weights {expected.weights.sha256}", remedy)
        return
    yield from differs(where, "versions of that generation", len(found), 1, remedy)
    version = found[0]
    where = f"MLflow, version {version.version} ({expected.tags['git_tag']})"
    yield from differs(where, "SHA-256 of its weights", version.sha256, expected.weights.sha256, remedy)
    for name in sorted(expected.tags):
        yield from differs(where, f"tag {name}", version.tags.get(name), expected.tags[name], remedy)
    alias = expected.alias
    yield from differs(f"MLflow, alias {alias}", "version", catalogue.aliases.get(alias), version.version, remedy)
