"""Impact: every generation that a shard, network, commit, package lock or worker affected.

It is read from the attestations in git alone, so it needs no data. A generation uses something directly if it is among
its inputs. It uses it by descent if its network was trained from something affected or on affected games, or if an
affected match chose its champion.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from zero.errors import LineageError, ZeroError
from zero.record.generation import Generation
from zero.record.history import known_lineages
from zero.record.lineages import ProjectRecord
from zero.record.provenance import DATASET, PLAYER, Resource
from zero.stages.spec import read_receipts
from zero.storage.layout import (
    CHALLENGER_DIR,
    CONSTRAINTS_FILE,
    GAMES_DIR,
    GATING_METRICS,
    MATCH_DIR,
    OLD_WINDOW_DIR,
    SHARD_DIRS,
    WINDOW_DIR,
)
from zero.storage.manifests import Manifest
from zero.storage.store import Store
from zero.storage.vcs import git

HEX = re.compile(r"^[0-9a-f]{7,64}$")
COMMIT, COMMIT_DIGITS = "commit", 40
LISTED_NAMES, LISTED_MATCHES = 3, 8


class Use(Manifest):
    """An affected generation."""

    tag: str
    how: Literal["directly", "by descent"]
    reasons: tuple[str, ...]


class Impact(Manifest):
    """What something affected."""

    subject: str
    """Its full name."""
    what: str
    """Its kind, such as `commit`, or its name in an attestation."""
    uses: tuple[Use, ...]


class Subject(NamedTuple):
    """The thing whose impact is requested, resolved from a user's text."""

    name: str
    what: str
    digests: frozenset[str]
    """SHA-256 of objects, or keys of shards, that are affected from the start."""
    commits: frozenset[str]
    """Commits whose code is affected."""
    stages: Mapping[str, tuple[str, ...]]
    """Stages that a worker ran, by tag."""


def impact(home: Path, text: str, store: Store | None = None) -> Impact:
    """Every generation, in all lineages of a project, that used something.

    Args:
      home: the project's folder.
      text: at least 7 digits of a SHA-256 or of a commit, or the name of a worker.
      store: where receipts name the worker of a shard; without them all shards of its stages count.

    Raises:
      ZeroError: nothing, or more than one thing, matches the text.
    """
    with ProjectRecord(home) as record:
        found = {each.tag: each for name in known_lineages(home) for each in record.ancestry(name) if each.line}
        generations = list(found.values())  # each after its ancestors
        subject = resolve(home, text, generations, store)
        affected = {*subject.digests, *subject.commits}
        uses = []
        for generation in generations:
            direct, descent = _reasons(generation, subject, affected)
            for inputs, outputs in _steps(generation):
                if not affected.isdisjoint(inputs):
                    affected |= outputs
            if direct or descent:
                how: Literal["directly", "by descent"] = "directly" if direct else "by descent"
                uses.append(Use(tag=generation.tag, how=how, reasons=(*direct, *descent)))
        return Impact(subject=subject.name, what=subject.what, uses=tuple(uses))


def resolve(home: Path, text: str, generations: list[Generation], store: Store | None) -> Subject:
    """Finds the object, commit or worker that a text names.

    Raises:
      ZeroError: nothing, or more than one thing, matches.
    """
    if HEX.match(text):
        commits = dict.fromkeys(_commits(home, text, generations), COMMIT)
        found = only_match(text, _known_digests(generations) | commits)
        if found is not None:
            name, what = found
            if what == COMMIT:
                return Subject(name, what, frozenset(), _descendants(name, generations), {})
            return Subject(name, what, frozenset({name}), frozenset(), {})
    worker = _worker(text, generations, store)
    if worker is not None:
        return worker
    if len(text) < 7 and re.match(r"^[0-9a-f]+$", text):
        raise ZeroError(f"{text!r} is too short for a digest; give at least 7 digits")
    raise ZeroError(
        f"no attestation of any lineage in {home} names {text!r}; give 7 or more digits of a shard's, a network's, a "
        "window's or a package lock's SHA-256, of a shard's key, of a commit, or the name of a worker or its host"
    )


def only_match(digits: str, known: Mapping[str, str]) -> tuple[str, str] | None:
    """The only name that starts with some digits, and its kind; None if there is none.

    Raises:
      ZeroError: there is more than one.
    """
    found = {name: what for name, what in known.items() if name.startswith(digits)}
    if len(found) > 1:
        listed = ", ".join(f"{name[:16]} ({what})" for name, what in sorted(found.items())[:LISTED_MATCHES])
        raise ZeroError(f"{digits!r} is ambiguous: {listed}; give more digits")
    return next(iter(found.items()), None)


def _known_digests(generations: Iterable[Generation]) -> dict[str, str]:
    """Kind of every digest in the attestations."""
    known: dict[str, str] = {}
    for generation in generations:
        attestation = generation.attestation
        if attestation is None:
            continue
        for resource in (*attestation.subject, *attestation.dependencies.values(), *attestation.byproducts.values()):
            for name in names_of(resource):
                known.setdefault(name, f"{resource.name} of {generation.tag}")
    return known


def _commits(home: Path, digits: str, generations: Iterable[Generation]) -> set[str]:
    """Commits that start with some digits."""
    found = {each for one in generations for each in (one.commit, one.parent) if each and each.startswith(digits)}
    if len(digits) <= COMMIT_DIGITS:
        for name in git(home, "rev-parse", f"--disambiguate={digits}").split():
            if git(home, "cat-file", "-t", name).strip() == "commit":
                found.add(name)
    return found


def _descendants(commit: str, generations: Iterable[Generation]) -> frozenset[str]:
    """A commit and its descendants in the lineages."""
    found = {commit}
    for history in {each.lineage: each.history for each in generations}.values():
        try:
            listed = git(history.reader.repository, "rev-list", "--ancestry-path", f"{commit}..{history.head}")
        except LineageError:
            continue  # this clone lacks the commit
        found.update(listed.split())
    return frozenset(found)


def _worker(name: str, generations: Iterable[Generation], store: Store | None) -> Subject | None:
    """The stages that a worker ran, by the cost notes; None if no note names it."""
    digests: set[str] = set()
    stages: dict[str, tuple[str, ...]] = {}
    for generation in generations:
        spent = generation.costs.stages if generation.costs else {}
        ran = [stage for stage, costs in spent.items() if any(_is_worker(name, each) for each in costs.workers)]
        if ran:
            stages[generation.tag] = tuple(ran)
            digests |= _made_by(name, generation, ran, store)
    return Subject(name, "worker", frozenset(digests), frozenset(), stages) if stages else None


def _is_worker(wanted: str, name: str) -> bool:
    """True for the wanted worker, or a worker on the wanted host: by default a name is `host:process`."""
    return name == wanted or name.startswith(f"{wanted}:")


def _made_by(worker: str, generation: Generation, stages: list[str], store: Store | None) -> set[str]:
    """Digests of a worker's outputs: the shards with its receipts, or all shards of a stage without receipts."""
    attestation = generation.attestation
    made: set[str] = set()
    if attestation is None:
        return made
    for stage in stages:
        folder = SHARD_DIRS.get(stage)
        if stage == "training":
            made.update(each.sha256 for each in attestation.subject)
        elif folder is not None:
            shards = [each for name, each in attestation.dependencies.items() if name.startswith(f"{folder}/")]
            own = [each for each in shards if _played_by(worker, each, store)]
            made.update(each.sha256 for each in own or shards)
    return made


def _played_by(worker: str, shard: Resource, store: Store | None) -> bool:
    key = (shard.annotations or {}).get("key")
    receipts = read_receipts(store.get_receipts(key)) if store is not None and key is not None else ()
    return any(_is_worker(worker, each.worker) for each in receipts)


def _steps(generation: Generation) -> list[tuple[set[str], set[str]]]:
    """Names of the inputs and outputs of each step of a generation.

    A name is a digest, the key of a shard, a commit, or a tag, which stands for the decision of that generation.
    """
    attestation, entry = generation.attestation, generation.entry
    if attestation is None or entry is None:
        return []
    code, subject = {generation.parent or ""}, _names(attestation.subject)
    known = attestation.dependencies | attestation.byproducts  # the byproducts are manifests and metrics

    def below(folder: str) -> set[str]:
        return _names(each for name, each in known.items() if name.startswith(f"{folder}/"))

    def named(*names: str) -> set[str]:
        return _names(known[name] for name in names if name in known)

    if entry.decision is None:
        # A rollback or a branch has the digests of its source.
        return [(code, subject), (named(DATASET), below(OLD_WINDOW_DIR))] if entry.kind == "start" else []
    code |= named(CONSTRAINTS_FILE)
    champion = named("champion") | {_chosen_by(generation)}
    player = named(PLAYER) | {_chosen_by(generation, PLAYER)} if PLAYER in known else champion
    games, match = below(GAMES_DIR), below(MATCH_DIR)
    return [
        (code | player, games),
        (code | games | below(WINDOW_DIR) | named("trainee", "trainee-optimizer"), subject),
        (below(CHALLENGER_DIR), subject),  # its manifest, by which the weights are read from here on
        (code | champion | subject | match | named(GATING_METRICS), match | {generation.tag}),
    ]


def _reasons(generation: Generation, subject: Subject, affected: set[str]) -> tuple[list[str], list[str]]:
    """Reasons why a generation is affected: directly, and by descent."""
    attestation = generation.attestation
    direct: list[str] = []
    descent: list[str] = []
    if attestation is not None:
        inputs, made = attestation.dependencies.values(), (*attestation.subject, *attestation.byproducts.values())
        for verb, resources in (("uses", inputs), ("made" if generation.source is None else "continues from", made)):
            named = [each.name for each in resources if not subject.digests.isdisjoint(names_of(each))]
            direct += [f"{verb} {_listed(named)}"] if named else []
        inherited = [each.name for each in inputs if names_of(each) & affected and not names_of(each) & subject.digests]
        descent += [f"uses {_listed(inherited)}, which come from it"] if inherited else []
        for name in ("champion", PLAYER) if PLAYER in attestation.dependencies else ("champion",):
            if (chosen := _chosen_by(generation, name)) in affected:
                descent.append(f"its {name} was chosen by {chosen}")
    direct += [f"{stage} ran on it" for stage in subject.stages.get(generation.tag, ())]
    if generation.parent and generation.parent in subject.commits:
        direct.append(f"ran on its code (commit {generation.parent[:12]})")
    if generation.commit == subject.name:
        direct.append("is recorded by it")
    if attestation is not None and generation.entry and generation.entry.decision is None and not direct:
        restored = [each.name for each in attestation.subject if names_of(each) & affected]
        descent += [f"continues from {_listed(restored)}, which come from it"] if restored else []
    return direct, descent


def _chosen_by(generation: Generation, name: str = "champion") -> str:
    """Tag of the generation whose decision chose this one's champion; with PLAYER, its player. Empty if none did."""
    start = generation.source or generation.previous
    if start is None:
        return ""
    while start.source is not None:  # a rollback makes no decision
        start = start.source
    return _chosen_by(start) if name == PLAYER else start.tag


def _names(resources: Iterable[Resource]) -> set[str]:
    return {name for each in resources for name in names_of(each)}


def _listed(names: list[str]) -> str:
    more = len(names) - LISTED_NAMES
    return ", ".join(names[:LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")


def names_of(resource: Resource) -> set[str]:
    """Digest of a resource, and its key if it is a shard."""
    key = (resource.annotations or {}).get("key")
    return {name for name in (resource.sha256, key) if name}
