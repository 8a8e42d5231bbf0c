"""What an audit reports: marks in a table, and a finding for each mismatch."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from zero.storage.manifests import Manifest

LONG_HEX = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")
"""A digest, of which a line shows the first 12 digits."""


class AuditCheck(StrEnum):
    """A check, in the order in which they are shown."""

    TAG = "tag"
    LEDGER = "ledger"
    LOCK = "lock"
    PARAMS = "params"
    CODE = "code"
    CONSTRAINTS = "constraints"
    ATTESTATION = "attestation"
    DATA = "data"
    MANIFESTS = "manifests"
    MATCH = "match"
    PARENT = "parent"
    REGISTRY = "registry"


class Mark(StrEnum):
    """Result of a check for one generation."""

    OK = "ok"
    MISMATCH = "MISMATCH"
    MISSING = "missing"
    NOT_CHECKED = "not checked"
    NOT_APPLICABLE = "-"
    """The generation has nothing that this check looks at."""


class Mismatch(NamedTuple):
    """A difference between what is stored and what the record says, as a check reports it."""

    where: str
    """The file, ref or run to open."""
    what: str
    """The compared property."""
    found: str
    expected: str
    remedy: str
    mark: Mark = Mark.MISMATCH
    """MISSING if the object is not on this machine and could not be compared."""


class Finding(Manifest):
    """A mismatch, or a missing object, of one generation, or of a lineage without any."""

    tag: str
    """Its tag; the lineage's name if that has no generation."""
    check: AuditCheck
    mark: Mark
    where: str
    what: str
    found: str
    expected: str
    remedy: str

    def line(self) -> str:
        """The finding as one line, with shortened digests."""
        compared = f"found {self.found}" + (f", expected {self.expected}" if self.expected else "")
        return LONG_HEX.sub(r"\1", f"{self.tag} {self.check}: {self.where}: {self.what}: {compared}; {self.remedy}")


class AuditRow(Manifest):
    """One generation of the table."""

    tag: str
    kind: str
    """Kind of its ledger entry; empty without an entry."""
    commit: str
    """The commit that wrote the entry."""
    marks: dict[AuditCheck, Mark]


class Audit(Manifest):
    """Result of an audit."""

    rows: tuple[AuditRow, ...]
    findings: tuple[Finding, ...]
    mlflow: str
    """Address of the MLflow server that was checked; empty if none was."""

    @property
    def has_mismatch(self) -> bool:
        """True if something differs from the record."""
        return any(finding.mark == Mark.MISMATCH for finding in self.findings)

    @property
    def incomplete(self) -> bool:
        """True if something is missing, so that it could not be checked."""
        return any(finding.mark == Mark.MISSING for finding in self.findings)


def restored(tag: str, path: str) -> str:
    """The remedy for a file that git tracks."""
    return f"restore it from the recorded tag: `git checkout {tag} -- {path}`"


def differs(where: str, what: str, found: object, expected: object, remedy: str) -> list[Mismatch]:
    """A mismatch if two values differ, otherwise nothing."""
    if found == expected:
        return []
    has, wanted = ("nothing" if value is None or value == "" else str(value) for value in (found, expected))
    return [Mismatch(where, what, has, wanted, remedy)]


def differing_fields(
    where: str, what: str, found: object, expected: object, names: Iterable[str], remedy: str
) -> list[Mismatch]:
    """A mismatch for each named field in which two values differ. `what`: text after the name of the field."""
    return [
        mismatch
        for name in names
        for mismatch in differs(where, name + what, getattr(found, name, None), getattr(expected, name), remedy)
    ]
