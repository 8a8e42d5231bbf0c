"""Checks of MLflow: each run, version and alias is what `zero.tracking.pages` makes of the generation's tag."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from zero.audit.data import PULL
from zero.audit.findings import Drift, differs
from zero.errors import ZeroError
from zero.record.generation import Generation
from zero.storage.layout import CHALLENGER_DIR, CHAMPION_DIR, CONSTRAINTS_FILE, DVC_LOCK_FILE
from zero.storage.manifests import MANIFEST_FILE
from zero.tracking import pages
from zero.tracking.audit import Catalogue, FoundRun, FoundVersion
from zero.tracking.files import Point, read_generation

FILES = ("params.yaml", CONSTRAINTS_FILE, DVC_LOCK_FILE)
FOLDERS = ("record", "metrics", "plots")
OWN_PREFIX = "zero."
"""Tags of this program; others, as notes that a person wrote, are nobody's drift."""
NOT_RECORDED = "cost/"
"""Metrics that are not recomputed from a tag: what a stage cost is in git's notes."""
TOTAL_GAMES = "ladder/total_games"
"""Missing where a generation before was tracked later."""
FINISHED = "FINISHED"
REBUILD = "`zero track --rebuild {lineage}` writes all of it again from git and DVC"


class Expected(NamedTuple):
    """What MLflow should have of a generation."""

    pages: tuple[pages.Page, ...]
    """The run of the generation and those of its stages; none for the first network of all."""
    version: pages.Version | None
    ladder: frozenset[Point]
    num_games: float


def expected_of(generation: Generation) -> Expected | None:
    """What the files of its tag make of a generation; None where they are not here or cannot be read.

    They are put into a passing folder, so that the very code that writes MLflow says what should be there.
    """
    if generation.commit is None or generation.entry is None:
        return None
    with tempfile.TemporaryDirectory(prefix="zero-audit-") as scratch:
        folder = Path(scratch)
        for name in FILES:
            _put(folder / name, generation.file(name))
        for below in FOLDERS:
            for name, blob in generation.history.reader.files(f"{generation.commit}:{below}").items():
                _put(folder / below / name, generation.history.reader.read(blob))
        for out in (CHALLENGER_DIR, CHAMPION_DIR):
            _put(folder / out / MANIFEST_FILE, generation.manifest_bytes(out))
        try:
            read = read_generation(folder, generation.tag)
            version = pages.challenger_version(read)
            if read.entry.kind == "start":  # it is registered as the champion of the first generation, without a run
                return Expected((), version, frozenset(), 0.0)
            shown = (pages.generation_page(read), *pages.stage_pages(read))
            ladder = frozenset(pages.ladder_points(read, None))
        except ZeroError:
            return None
        return Expected(shown, version, ladder, read.selfplay.get("num_games", 0.0))


def untold(generation: Generation) -> Drift:
    """What is told of a generation whose tag does not say what MLflow should have."""
    remedy = PULL.format(tag=generation.tag)
    found = "nothing that tells what should be there"
    return Drift(f"MLflow, {generation.tag}", "not compared", found, "", remedy, missing=True)


def check_registry(generation: Generation, expected: Expected, catalogue: Catalogue | None) -> Iterator[Drift]:
    """Runs, version and alias of one generation."""
    version = expected.version
    track = f"`zero track {generation.lineage}`"
    # generations are tracked in their order, so one that lacks all while a later one is there was deleted
    if catalogue is None or _newest(catalogue) < generation.number:
        if expected.pages:
            yield Drift(f"MLflow, {generation.tag}", "not tracked", "nothing", "a run", track, missing=True)
        return
    remedy = REBUILD.format(lineage=generation.lineage)
    for page in expected.pages:
        yield from _check_run(page, catalogue, remedy)
    if version is not None:
        yield from _check_version(version, catalogue, remedy)


def check_aliases(generations: Sequence[Generation], catalogue: Catalogue) -> Iterator[tuple[Generation, Drift]]:
    """`champion` and `challenger` point where the newest generation that is tracked says."""
    numbers = {version.version: version.tags.get("generation") for version in catalogue.versions}
    tracked = [each for each in generations if each.entry and each.entry.kind != "start" and _traces(each, catalogue)]
    made = [each.number for each in tracked if each.entry and each.entry.kind != "rollback"]
    if not made:
        return
    newest, first = tracked[-1], generations[0].number
    assert newest.entry is not None
    # the champion that a lineage branched with is registered under the branch's own number
    for alias, wanted in (("champion", max(newest.entry.champion_generation, first)), ("challenger", made[-1])):
        found = catalogue.aliases.get(alias)
        remedy = REBUILD.format(lineage=newest.lineage)
        for drift in differs(
            f"MLflow, alias {alias}",
            "generation it points at",
            numbers.get(found, "no version") if found is not None else None,
            str(wanted),
            remedy,
        ):
            yield newest, drift


def check_ladder(
    generations: Sequence[Generation], expected: Mapping[str, Expected], catalogue: Catalogue
) -> Iterator[tuple[Generation, Drift]]:
    """The ladder has the points of each generation that is tracked, and no others."""
    if not generations:
        return
    ladders = [run for run in catalogue.runs_of(pages.ladder_key(generations[0].lineage)) if not run.deleted]
    found = ladders[0].points if ladders else frozenset()
    remedy = REBUILD.format(lineage=generations[0].lineage)
    total = 0.0
    for generation in generations:
        wanted = expected.get(generation.tag)
        if wanted is None or not wanted.pages or not _traces(generation, catalogue):
            continue
        total += wanted.num_games
        here = {point for point in found if point.step == generation.number and point.name != TOTAL_GAMES}
        for drift in _points("MLflow, run ladder", frozenset(here), wanted.ladder, remedy):
            yield generation, drift
        for point in found:
            if point.name == TOTAL_GAMES and point.step == generation.number:
                for drift in differs("MLflow, run ladder", point.name, point.value, total, remedy):
                    yield generation, drift


def _traces(generation: Generation, catalogue: Catalogue) -> list[FoundRun | FoundVersion]:
    """All that the server has of a generation."""
    key = {"zero.lineage": generation.lineage, "zero.generation": str(generation.number)}
    return [*catalogue.runs_of(key), *_versions_of(generation.number, catalogue)]


def _newest(catalogue: Catalogue) -> int:
    """Number of the newest generation that the server has anything of; -1 where there is none."""
    numbers = [run.tags.get("zero.generation", "") for run in catalogue.runs]
    numbers += [version.tags.get("generation", "") for version in catalogue.versions]
    return max((int(number) for number in numbers if number.isdigit()), default=-1)


def _versions_of(number: int, catalogue: Catalogue) -> list[FoundVersion]:
    return [each for each in catalogue.versions if each.tags.get("generation") == str(number)]


def _check_run(page: pages.Page, catalogue: Catalogue, remedy: str) -> Iterator[Drift]:
    where = f"MLflow, run {page.key['zero.stage']} of {page.tags['zero.tag']}"
    found = catalogue.runs_of(page.key)
    alive = [run for run in found if not run.deleted and not catalogue.deleted]
    if not alive:
        what = "run deleted"
        state = f"in the bin ({found[0].run_id})" if found else "nothing"
        yield Drift(where, what, state, "a run", f"take it out of MLflow's bin, or {remedy}")
        return
    yield from differs(where, "runs of that stage", len(alive), 1, remedy)
    run = alive[0]
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


def _points(where: str, found: frozenset[Point], wanted: frozenset[Point], remedy: str) -> Iterator[Drift]:
    """One drift for each metric that has other values."""
    for name in sorted({point.name for point in found ^ wanted}):
        has = sorted((point.step, point.value) for point in found - wanted if point.name == name)
        lacks = sorted((point.step, point.value) for point in wanted - found if point.name == name)
        yield Drift(where, f"metric {name}", _steps(has), _steps(lacks), remedy)


def _steps(points: list[tuple[int, float]]) -> str:
    shown = ", ".join(f"{value:g} at step {step}" for step, value in points[:3])
    return (shown + ("" if len(points) <= 3 else f" and {len(points) - 3} more")) or "nothing else"


def _check_version(expected: pages.Version, catalogue: Catalogue, remedy: str) -> Iterator[Drift]:
    where = f"MLflow, version of {expected.tags['git_tag']}"
    found = _versions_of(expected.generation, catalogue)
    if not found:
        yield Drift(where, "version deleted", "nothing", f"weights {expected.weights.sha256}", remedy)
        return
    yield from differs(where, "versions of that generation", len(found), 1, remedy)
    version = found[0]
    where = f"MLflow, version {version.version} ({expected.tags['git_tag']})"
    yield from differs(where, "SHA-256 of its weights", version.sha256, expected.weights.sha256, remedy)
    for name in sorted(expected.tags):
        yield from differs(where, f"tag {name}", version.tags.get(name), expected.tags[name], remedy)
    alias = expected.alias
    yield from differs(f"MLflow, alias {alias}", "version", catalogue.aliases.get(alias), version.version, remedy)


def _put(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
