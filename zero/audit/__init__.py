"""Audits a record: recomputes digests and decisions, and compares them with the signed attestations and the ledger.

The audit follows MLflow's version to run, parameters, window, shards, parent, commit, match and signature, and back. It
clones, fetches and writes nothing and needs no network. Without an MLflow server it checks everything else. It does not
apply the data contract to games of self-play again; the stage `replay` did that. The view of a generation is
`zero.record.generation`; the checks are in `record` (git), `attestation`, `data` (DVC), `match` and `registry`
(MLflow). `reproduce` computes a generation again; `impact` follows the attestations from input to output.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from zero.audit.attestation import check_attestation, check_signature
from zero.audit.data import check_data, check_manifests
from zero.audit.findings import Audit, AuditCheck, AuditRow, Finding, Mark, Mismatch
from zero.audit.match import check_match, check_parent
from zero.audit.record import (
    HISTORY_REMEDY,
    check_branch,
    check_code,
    check_constraints,
    check_ledger,
    check_lock,
    check_params,
    check_tag,
)
from zero.audit.registry import check_registry
from zero.errors import LineageError, ServerError
from zero.progress import Progress
from zero.record.generation import Generation
from zero.record.history import LineageHistory, known_lineages
from zero.record.ledger import generation_tag, parse_tag
from zero.record.lineages import ProjectRecord
from zero.storage.layout import LEDGER_FILE
from zero.tracking.audit import read_catalogue

__all__ = ["Audit", "AuditCheck", "Finding", "Mark", "audit"]

Found = Iterator[tuple[str, AuditCheck, Mismatch]]
"""Tag of a generation (or name of a lineage without any), the check, and what it found."""
OF_STAGES = (AuditCheck.MANIFESTS, AuditCheck.MATCH)
"""Checks that do not apply to a generation without stages."""


def audit(
    home: Path, target: str = "", uri: str = "", own_key: bytes | None = None, progress: Progress | None = None
) -> Audit:
    """Audits a lineage, a generation with its ancestors, or all lineages of a project.

    Args:
      home: the project's folder.
      target: name of a lineage or tag of a generation; empty for all lineages.
      uri: address of an MLflow server; empty to leave MLflow out.
      own_key: a public key (PEM) that must have signed every attestation, in addition to the lineage's own.
      progress: receives (generations done, all generations).

    Raises:
      LineageError: the lineage or generation is unknown.
    """
    with ProjectRecord(home, offline=True) as record:
        names, last = _named(home, target)
        by_tag: dict[str, Generation] = {}  # without duplicates: lineages share ancestors
        empty = []
        for name in names:
            try:
                by_tag |= {each.tag: each for each in record.ancestry(name, last)}
                if not record.generations(name):
                    empty.append(name)
            except LineageError:
                if target:
                    raise
                empty.append(name)  # the others are audited
        chosen = [*by_tag.values()]
        histories = {each.lineage: each.history for each in chosen}
        found = [*_of_generations(chosen, own_key, progress or (lambda done, total: None))]
        for lineage, history in histories.items():
            generations = record.generations(lineage)
            found += _of_history(history, generations)
            found += _of_registry(generations, lineage, uri) if uri else ()
        found += [(name, AuditCheck.LEDGER, _no_generation(name)) for name in empty]
        # the checks of a history and of MLflow cover complete lineages, the target may be a part of one
        places = {tag: place for place, tag in enumerate((*(each.tag for each in chosen), *empty))}
        findings = {
            finding.line(): finding
            for finding in (Finding(tag=tag, check=check, **each._asdict()) for tag, check, each in found)
            if finding.tag in places
        }
        order = sorted(findings.values(), key=lambda each: (places[each.tag], [*AuditCheck].index(each.check)))
        return Audit(rows=tuple(_row(each, order, bool(uri)) for each in chosen), findings=tuple(order), mlflow=uri)


def _named(home: Path, target: str) -> tuple[list[str], int | None]:
    """The lineages to audit, and the number of the last generation; None for the newest."""
    if not target:
        names = known_lineages(home)
        if not names:
            raise LineageError(f"no lineage in {home} yet; make one with `zero new go9`")
        return names, None
    lineage, last = parse_tag(target) or (target, None)
    if "/" in lineage:
        raise LineageError(f"{target!r} is not a generation; name a lineage (go9) or a tag (go9/gen-0012)")
    return [lineage], last


def _no_generation(lineage: str) -> Mismatch:
    """The mismatch of a lineage with a branch that has neither an entry of its ledger nor a tag."""
    where = f"{LEDGER_FILE} of lineage/{lineage}"
    return Mismatch(where, "generations", "none", "at least one", HISTORY_REMEDY)


def _of_generations(chosen: Sequence[Generation], own_key: bytes | None, progress: Progress) -> Found:
    """Findings of all checks that look at one generation and need no server."""
    progress(0, len(chosen))
    for done, generation in enumerate(chosen, start=1):
        for check, mismatches in (
            (AuditCheck.TAG, check_tag(generation)),
            (AuditCheck.LOCK, check_lock(generation)),
            (AuditCheck.PARAMS, check_params(generation)),
            (AuditCheck.CODE, check_code(generation)),
            (AuditCheck.CONSTRAINTS, check_constraints(generation)),
            (AuditCheck.ATTESTATION, check_signature(generation, own_key)),
            (AuditCheck.ATTESTATION, check_attestation(generation)),
            (AuditCheck.DATA, check_data(generation)),
            (AuditCheck.MANIFESTS, check_manifests(generation)),
            (AuditCheck.MATCH, check_match(generation)),
            (AuditCheck.PARENT, check_parent(generation)),
        ):
            for mismatch in mismatches:
                yield generation.tag, check, mismatch
        progress(done, len(chosen))


def _of_history(history: LineageHistory, generations: Sequence[Generation]) -> Found:
    tags, newest = {each.tag for each in generations}, generations[-1].tag
    for number, mismatch in check_ledger(history):
        # a forged line can name a generation that does not exist
        tag = generation_tag(history.lineage, number)
        yield tag if tag in tags else newest, AuditCheck.LEDGER, mismatch
    for mismatch in check_branch(history):
        yield newest, AuditCheck.TAG, mismatch


def _of_registry(generations: list[Generation], lineage: str, uri: str) -> Found:
    try:
        catalogue = read_catalogue(lineage, uri)
    except ServerError as error:
        mismatch = Mismatch("MLflow", "server", "no answer", "an answer", str(error), Mark.MISSING)
        yield from ((each.tag, AuditCheck.REGISTRY, mismatch) for each in generations)
        return
    for generation, mismatch in check_registry(generations, catalogue):
        yield generation.tag, AuditCheck.REGISTRY, mismatch


def _row(generation: Generation, findings: list[Finding], has_server: bool) -> AuditRow:
    marks: dict[AuditCheck, Mark] = {}
    kind = generation.entry.kind if generation.entry else ""
    for check in AuditCheck:
        own = {finding.mark for finding in findings if (finding.tag, finding.check) == (generation.tag, check)}
        if own:
            marks[check] = Mark.MISMATCH if Mark.MISMATCH in own else Mark.MISSING
        elif check == AuditCheck.REGISTRY and not has_server:
            marks[check] = Mark.NOT_CHECKED
        elif (not kind and check not in (AuditCheck.TAG, AuditCheck.LEDGER)) or (
            kind != "decision" and check in OF_STAGES
        ):
            marks[check] = Mark.NOT_APPLICABLE
        else:
            marks[check] = Mark.OK
    return AuditRow(tag=generation.tag, kind=kind, commit=generation.commit or "", marks=marks)
