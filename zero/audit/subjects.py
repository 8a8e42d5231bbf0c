"""What a person asks the impact of: found among the statements, the commits and the notes of costs."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from zero.errors import LineageError, ZeroError
from zero.record.costs import GenerationCosts, notes_ref
from zero.record.generation import Generation
from zero.record.provenance import Resource
from zero.stages.costs import receipts_of
from zero.storage.layout import CHALLENGER_DIR, GAMES_DIR, MATCH_DIR
from zero.storage.store import Store
from zero.storage.vcs import git

HEX = re.compile(r"^[0-9a-f]{7,64}$")
COMMIT, COMMIT_DIGITS = "commit", 40
STAGE_OUTS = {"selfplay": GAMES_DIR, "training": CHALLENGER_DIR, "gating": MATCH_DIR}
"""What of a stage's work another generation can use."""
SHOWN_NAMES = 8


class Subject(NamedTuple):
    """What is asked for, resolved."""

    name: str
    what: str
    digests: frozenset[str]
    """SHA-256 of objects, or keys of shards, that are touched from the start."""
    commits: frozenset[str]
    """Commits whose code is touched."""
    stages: Mapping[str, tuple[str, ...]]
    """Stages that are touched by tag: a worker's."""


def resolve(home: Path, asked: str, generations: list[Generation], store: Store | None) -> Subject:
    """What a digest, a commit or a worker's name means among those generations.

    Raises:
      ZeroError: nothing, or several things.
    """
    if HEX.match(asked):
        commits = dict.fromkeys(_commits(home, asked, generations), COMMIT)
        found = only_match(asked, _known_digests(generations) | commits)
        if found is not None:
            name, what = found
            if what == COMMIT:
                return Subject(name, what, frozenset(), _descendants(name, generations), {})
            return Subject(name, what, frozenset({name}), frozenset(), {})
    worker = _worker(asked, generations, store)
    if worker is not None:
        return worker
    if len(asked) < 7 and re.match(r"^[0-9a-f]+$", asked):
        raise ZeroError(f"{asked!r} is too short for a digest; give at least 7 digits")
    raise ZeroError(
        f"no statement of any lineage in {home} knows {asked!r}; give 7 or more digits of a shard's, a network's, a "
        "window's or a package lock's SHA-256, of a shard's key, of a commit, or the name of a worker or its host"
    )


def only_match(digits: str, known: Mapping[str, str]) -> tuple[str, str] | None:
    """The one name that begins with those digits, and what it is; None where there is none.

    Raises:
      ZeroError: there are several.
    """
    found = {name: what for name, what in known.items() if name.startswith(digits)}
    if len(found) > 1:
        listed = ", ".join(f"{name[:16]} ({what})" for name, what in sorted(found.items())[:SHOWN_NAMES])
        raise ZeroError(f"{digits!r} is ambiguous: {listed}; give more digits")
    return next(iter(found.items()), None)


def _known_digests(generations: Iterable[Generation]) -> dict[str, str]:
    """What every digest in the statements is."""
    known: dict[str, str] = {}
    for generation in generations:
        statement = generation.envelope.statement if generation.envelope else None
        if statement is None:
            continue
        everything = (*statement.subject, *statement.dependencies.values(), *statement.byproducts.values())
        for resource in everything:
            for name in names_of(resource):
                known.setdefault(name, f"{resource.name} of {generation.tag}")
    return known


def _commits(home: Path, digits: str, generations: Iterable[Generation]) -> set[str]:
    """Commits that begin with those digits."""
    found = {each for one in generations for each in (one.commit, one.parent) if each and each.startswith(digits)}
    if len(digits) <= COMMIT_DIGITS:
        for name in git(home, "rev-parse", f"--disambiguate={digits}").split():
            if git(home, "cat-file", "-t", name).strip() == "commit":
                found.add(name)
    return found


def _descendants(commit: str, generations: Iterable[Generation]) -> frozenset[str]:
    """A commit and all commits of the lineages that come from it."""
    found = {commit}
    for history in {each.lineage: each.history for each in generations}.values():
        try:
            listed = git(history.reader.repository, "rev-list", "--ancestry-path", f"{commit}..{history.head}")
        except LineageError:
            continue  # a commit that this clone does not have
        found.update(listed.split())
    return frozenset(found)


def _worker(name: str, generations: Iterable[Generation], store: Store | None) -> Subject | None:
    """What a worker did, by the notes of costs; None where no note knows it."""
    digests: set[str] = set()
    stages: dict[str, tuple[str, ...]] = {}
    for lineage, own in _by_lineage(generations).items():
        notes = _notes(own[0], lineage)
        for generation in own:
            costs = notes.get(generation.commit or "")
            did = (
                [
                    stage
                    for stage, spent in costs.stages.items()
                    if any(_is_worker(name, each) for each in spent.workers)
                ]
                if costs
                else []
            )
            if did:
                stages[generation.tag] = tuple(did)
                digests |= _made_by(name, generation, did, store)
    return Subject(name, "worker", frozenset(digests), frozenset(), stages) if stages else None


def _is_worker(asked: str, name: str) -> bool:
    """Whether that is the worker asked for, or one on the host asked for: by default a name is `host:process`."""
    return name == asked or name.startswith(f"{asked}:")


def _by_lineage(generations: Iterable[Generation]) -> dict[str, list[Generation]]:
    found: dict[str, list[Generation]] = {}
    for generation in generations:
        found.setdefault(generation.lineage, []).append(generation)
    return found


def _notes(generation: Generation, lineage: str) -> dict[str, GenerationCosts]:
    """Costs by commit."""
    history, ref = generation.history, notes_ref(lineage)
    for folder in (history.reader.repository, history.project.folder):
        listed = git(folder, "for-each-ref", ref).strip() and git(folder, "notes", f"--ref={ref}", "list")
        if listed:
            rows = [line.split() for line in listed.splitlines()]
            return {
                commit: GenerationCosts.model_validate_json(git(folder, "cat-file", "blob", note))
                for note, commit in rows
            }
    return {}


def _made_by(worker: str, generation: Generation, stages: list[str], store: Store | None) -> set[str]:
    """Digests of what a worker made: the shards that its receipts name, or all of a stage without receipts."""
    statement = generation.envelope.statement if generation.envelope else None
    if statement is None:
        return set()
    made: set[str] = set()
    for stage in stages:
        folder = STAGE_OUTS.get(stage)
        if stage == "training":
            made.update(each.sha256 for each in statement.subject)
        elif folder is not None:
            shards = [each for name, each in statement.dependencies.items() if name.startswith(f"{folder}/")]
            own = [each for each in shards if _played_by(worker, each, store)]
            made.update(each.sha256 for each in own or shards)
    return made


def _played_by(worker: str, shard: Resource, store: Store | None) -> bool:
    key = (shard.annotations or {}).get("key")
    return (
        store is not None
        and key is not None
        and any(_is_worker(worker, each.worker) for each in receipts_of(store, key))
    )


def names_of(resource: Resource) -> list[str]:
    """Digest of a resource, and the key of the shard that it is."""
    key = (resource.annotations or {}).get("key")
    return [name for name in (resource.sha256, key) if name]
