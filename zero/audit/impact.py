"""What a shard, a network, a commit, a set of packages or a worker touched: every generation that used it.

Read from the signed statements in git alone, so it needs no data. A generation uses something directly (it is among
what went in), or by descent: its network was trained from what was touched, on games that were, or its champion was
chosen by a match that was.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from zero.audit.subjects import Subject, names_of, resolve
from zero.record.attestation import PLAYER
from zero.record.generation import Generation
from zero.record.history import known_lineages
from zero.record.lineages import Chains
from zero.record.provenance import Resource
from zero.storage.layout import CONSTRAINTS_FILE, GAMES_DIR, MATCH_DIR, WINDOW_DIR
from zero.storage.manifests import Manifest
from zero.storage.store import Store

SHOWN_NAMES = 3


class Use(Manifest):
    """A generation that was touched."""

    tag: str
    how: Literal["directly", "by descent"]
    reasons: tuple[str, ...]


class Impact(Manifest):
    """What something touched."""

    subject: str
    """Its full name."""
    what: str
    """What it is."""
    uses: tuple[Use, ...]


class _Touched(NamedTuple):
    """Everything that is touched so far."""

    digests: set[str]
    decisions: set[str]
    """Tags of generations whose champion was chosen by a match that was touched."""


def impact(home: Path, asked: str, store: Store | None = None) -> Impact:
    """Every generation of every lineage of the project that used something.

    Args:
      home: the project's folder.
      asked: at least 7 digits of a SHA-256 or of a commit, or the name of a worker.
      store: where receipts say which shards a worker played; without them all shards of its stages count.

    Raises:
      ZeroError: nothing of that name is known, or several things are.
    """
    with Chains(home) as chains:
        generations = _in_order(chains, known_lineages(home))
        subject = resolve(home, asked, generations, store)
        touched = _Touched(set(subject.digests), set())
        uses = []
        for generation in generations:
            direct, descent = _follow(generation, subject, touched)
            if direct or descent:
                how: Literal["directly", "by descent"] = "directly" if direct else "by descent"
                uses.append(Use(tag=generation.tag, how=how, reasons=(*direct, *descent)))
        return Impact(subject=subject.name, what=subject.what, uses=tuple(uses))


def _in_order(chains: Chains, lineages: Iterable[str]) -> list[Generation]:
    """All recorded generations, each after those it comes from."""
    found: dict[str, Generation] = {}
    for lineage in lineages:
        found |= {each.tag: each for each in chains.ancestry(lineage) if each.line is not None}
    return list(found.values())


def _follow(generation: Generation, subject: Subject, touched: _Touched) -> tuple[list[str], list[str]]:
    """Why a generation is touched: directly, and by descent. Adds what it made to what is touched."""
    direct, descent = _inputs(generation, subject, touched)
    stages = subject.stages.get(generation.tag, ())
    direct += [f"{stage} ran on it" for stage in stages]
    if generation.parent in subject.commits:
        direct.append(f"ran on its code (commit {(generation.parent or '')[:12]})")
    if generation.commit == subject.name:
        direct.append("is recorded by it")
    statement = generation.envelope.statement if generation.envelope else None
    if statement is None or generation.entry is None:
        return direct, descent
    if generation.entry.decision is None:
        restored = [each.name for each in statement.subject if _is_touched(each, touched)]
        if restored and not direct:
            descent.append(f"goes on from {_listed(restored)}, which come from it")
        if generation.parent in subject.commits and generation.entry.kind == "start":
            _touch(statement.subject, touched)
        return direct, descent
    packages = statement.dependencies.get(CONSTRAINTS_FILE)
    everything = generation.parent in subject.commits or (packages is not None and packages.sha256 in subject.digests)
    by_name = {name: _is_touched(each, touched) for name, each in statement.dependencies.items()}
    champion = by_name.get("champion", False) or _chosen_by(generation) in touched.decisions
    window = any(found for name, found in by_name.items() if name.startswith(f"{WINDOW_DIR}/"))
    trainee = by_name.get("trainee", False) or by_name.get("trainee-optimizer", False)
    games = [each for name, each in statement.dependencies.items() if name.startswith(f"{GAMES_DIR}/")]
    match = [each for name, each in statement.dependencies.items() if name.startswith(f"{MATCH_DIR}/")]
    player = by_name[PLAYER] or _chosen_by(generation, PLAYER) in touched.decisions if PLAYER in by_name else champion
    if everything or player:
        _touch(games, touched)
    if everything or window or trainee or any(_is_touched(each, touched) for each in games):
        _touch(statement.subject, touched)
    played = any(_is_touched(each, touched) for each in (*statement.subject, *match))
    if everything or champion or played:
        _touch(match, touched)
        touched.decisions.add(generation.tag)
    return direct, descent


def _inputs(generation: Generation, subject: Subject, touched: _Touched) -> tuple[list[str], list[str]]:
    """What went into a generation, or came out of it, that is asked for or touched."""
    statement = generation.envelope.statement if generation.envelope else None
    direct: list[str] = []
    descent: list[str] = []
    if statement is None:
        return direct, descent
    made = "goes on from" if generation.source is not None else "made"
    for word, resources in (
        ("uses", statement.dependencies.values()),
        (made, (*statement.subject, *statement.byproducts.values())),
    ):
        named = [each.name for each in resources if not subject.digests.isdisjoint(names_of(each))]
        if named:
            direct.append(f"{word} {_listed(named)}")
    inherited = [
        each.name
        for each in statement.dependencies.values()
        if _is_touched(each, touched) and subject.digests.isdisjoint(names_of(each))
    ]
    if inherited:
        descent.append(f"uses {_listed(inherited)}, which come from it")
    for name in ("champion", PLAYER) if PLAYER in statement.dependencies else ("champion",):
        chosen = _chosen_by(generation, name)
        if chosen in touched.decisions:
            descent.append(f"its {name} was chosen by {chosen}")
    return direct, descent


def _chosen_by(generation: Generation, name: str = "champion") -> str | None:
    """Tag of the generation whose decision left the champion that this one starts with; PLAYER: the earlier one."""
    start = generation.source or generation.before
    if start is None:
        return None
    while start.source is not None:  # a rollback decides nothing
        start = start.source
    return _chosen_by(start) if name == PLAYER else start.tag


def _touch(resources: Iterable[Resource], touched: _Touched) -> None:
    for each in resources:
        touched.digests.update(names_of(each))


def _is_touched(resource: Resource, touched: _Touched) -> bool:
    return not touched.digests.isdisjoint(names_of(resource))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN_NAMES]) + (
        f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    )
