"""Walks the record of a lineage back and forth, and says what agrees and what has drifted.

From the registry's version to run, parameters, window, shards, parent, commit, match and signature, and back. Nothing
is cloned, fetched or written; without a server all but MLflow is audited, and no network is needed. What is where:
`objects` and `history` (git and DVC), `evidence` and `chains` (generations), `record`, `statements`, `data`, `play`,
`registry` (the checks), `screen` (what a person reads).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zero.audit.data import check_data, check_manifests
from zero.audit.findings import Check, Drift, Finding, Mark
from zero.audit.play import check_match, check_parent
from zero.audit.record import (
    check_branch,
    check_code,
    check_constraints,
    check_ledger,
    check_lock,
    check_params,
    check_tag,
)
from zero.audit.statements import check_signature, check_statement
from zero.errors import LineageError, ServerError
from zero.record.generation import Generation
from zero.record.history import History, known_lineages
from zero.record.ledger import generation_tag
from zero.record.lineages import Chains
from zero.storage.manifests import Manifest
from zero.tracking.audit import Catalogue, read_catalogue

__all__ = ["Audit", "Check", "Finding", "Mark", "audit"]

NOTHING: Mapping[str, Sequence[Check]] = {
    "": [check for check in Check if check not in (Check.TAG, Check.LEDGER)],
    "decision": (),
}
"""What there is nothing of, by the kind of the line; others than these have no stages."""


class Row(Manifest):
    """One generation of the table."""

    tag: str
    kind: str
    """Of its line in the ledger; empty where it has none."""
    commit: str
    """The commit that wrote the line."""
    marks: dict[Check, Mark]


class Audit(Manifest):
    """What an audit found."""

    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    mlflow: str
    """Address of the server that was asked; empty where none was."""

    @property
    def drifted(self) -> bool:
        """Whether something is not as the record says."""
        return any(finding.mark == Mark.DRIFTED for finding in self.findings)

    @property
    def incomplete(self) -> bool:
        """Whether something is not here to be looked at."""
        return any(finding.mark == Mark.MISSING for finding in self.findings)


class _Told(NamedTuple):
    """A drift with its place in the table."""

    tag: str
    check: Check
    drift: Drift


def audit(home: Path, target: str = "", uri: str = "", own_key: bytes | None = None) -> Audit:
    """Audits a lineage, or a generation and its ancestors, or all lineages of the project.

    Args:
      home: the project's folder.
      target: name of a lineage or a generation's tag; empty for all lineages.
      uri: address of an MLflow server; empty: none is asked.
      own_key: a public key (PEM) that every statement must be signed by, beside the lineage's own.

    Raises:
      LineageError: there is no such lineage or generation.
    """
    with Chains(home) as chains:
        chosen = _chosen(chains, home, target)
        histories = {each.lineage: each.history for each in chosen}
        told = list(_record_findings(chosen, own_key))
        for history in histories.values():
            told += _history_findings(history)
        asked: set[str] = set()
        for lineage in histories if uri else ():
            told += _registry_findings(chains.generations(lineage), lineage, uri)
            asked.add(lineage)
        tags = {each.tag for each in chosen}
        findings = [_finding(each) for each in told if each.tag in tags]
        unique = list({finding.line(): finding for finding in findings}.values())
        rows = tuple(_row(each, unique, each.lineage in asked) for each in chosen)
        order = {row.tag: place for place, row in enumerate(rows)}
        places = {check: place for place, check in enumerate(Check)}
        unique.sort(key=lambda finding: (order[finding.tag], places[finding.check]))
        return Audit(rows=rows, findings=tuple(unique), mlflow=uri)


def as_json(found: Audit) -> str:
    """The audit for a program."""
    tree: dict[str, Any] = found.model_dump(mode="json")
    return json.dumps(tree | {"drifted": found.drifted, "incomplete": found.incomplete}, indent=1, sort_keys=True)


def _chosen(chains: Chains, home: Path, target: str) -> list[Generation]:
    """The generations to audit, without repetition."""
    if not target:
        names = known_lineages(home)
        if not names:
            raise LineageError(f"no lineage in {home} yet; make one with `zero new go9`")
        found = [each for name in names for each in chains.ancestry(name)]
    else:
        lineage, slash, number = target.partition("/")
        digits = number.removeprefix("gen-")
        if slash and (not digits.isdigit() or generation_tag(lineage, int(digits)) != target):
            raise LineageError(f"{target!r} is no generation; name a lineage (go9) or a tag (go9/gen-0012)")
        found = chains.ancestry(lineage, int(digits) if slash else None)
    return list({each.tag: each for each in found}.values())


def _record_findings(chosen: Iterable[Generation], own_key: bytes | None) -> Iterator[_Told]:
    """All that needs no server, generation by generation."""
    for generation in chosen:
        for check, drifts in (
            (Check.TAG, check_tag(generation)),
            (Check.LOCK, check_lock(generation)),
            (Check.PARAMS, check_params(generation)),
            (Check.CODE, check_code(generation)),
            (Check.CONSTRAINTS, check_constraints(generation)),
            (Check.STATEMENT, check_signature(generation, own_key)),
            (Check.STATEMENT, check_statement(generation)),
            (Check.DATA, check_data(generation)),
            (Check.MANIFESTS, check_manifests(generation)),
            (Check.MATCH, check_match(generation)),
            (Check.PARENT, check_parent(generation)),
        ):
            for drift in drifts:
                yield _Told(generation.tag, check, drift)


def _history_findings(history: History) -> Iterator[_Told]:
    for number, drift in check_ledger(history):
        yield _Told(generation_tag(history.lineage, number), Check.LEDGER, drift)
    entries = [line.entry.generation for line in history.lines if line.entry is not None]
    for drift in check_branch(history):
        yield _Told(generation_tag(history.lineage, max(entries, default=0)), Check.TAG, drift)


def _registry_findings(generations: list[Generation], lineage: str, uri: str) -> Iterator[_Told]:
    from zero.audit.registry import Expected, check_aliases, check_ladder, check_registry, expected_of, untold

    catalogue: Catalogue | None
    try:
        catalogue = read_catalogue(lineage, uri)
    except ServerError as error:
        drift = Drift("MLflow", "server", "no answer", "an answer", str(error), missing=True)
        yield from (_Told(each.tag, Check.REGISTRY, drift) for each in generations)
        return
    expected: dict[str, Expected] = {}
    for generation in generations:
        if generation.entry is None:
            continue
        wanted = expected_of(generation)
        if wanted is None:
            yield _Told(generation.tag, Check.REGISTRY, untold(generation))
        else:
            expected[generation.tag] = wanted
            for drift in check_registry(generation, wanted, catalogue):
                yield _Told(generation.tag, Check.REGISTRY, drift)
    if catalogue is not None:
        for checked in (check_aliases(generations, catalogue), check_ladder(generations, expected, catalogue)):
            for generation, drift in checked:
                yield _Told(generation.tag, Check.REGISTRY, drift)


def _finding(told: _Told) -> Finding:
    drift = told.drift
    mark = Mark.MISSING if drift.missing else Mark.DRIFTED
    return Finding(
        tag=told.tag,
        check=told.check,
        mark=mark,
        where=drift.where,
        what=drift.what,
        found=drift.found,
        expected=drift.expected,
        remedy=drift.remedy,
    )


def _row(generation: Generation, findings: list[Finding], asked: bool) -> Row:
    marks: dict[Check, Mark] = {}
    kind = generation.entry.kind if generation.entry else ""
    nothing = NOTHING.get(kind, (Check.MANIFESTS, Check.MATCH))
    for check in Check:
        own = {finding.mark for finding in findings if (finding.tag, finding.check) == (generation.tag, check)}
        if own:
            marks[check] = Mark.DRIFTED if Mark.DRIFTED in own else Mark.MISSING
        elif check == Check.REGISTRY and not asked:
            marks[check] = Mark.NOT_ASKED
        elif check in nothing:
            marks[check] = Mark.NOTHING
        else:
            marks[check] = Mark.AGREES
    return Row(tag=generation.tag, kind=kind, commit=generation.commit or "", marks=marks)
