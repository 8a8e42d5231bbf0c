"""What an audit finds, in words."""

import re
from enum import StrEnum
from typing import NamedTuple

from zero.storage.manifests import Manifest

SHORT_DIGITS = 12
LONG_HEX = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")


class Check(StrEnum):
    """What is looked at, in the order of the table's columns."""

    TAG = "tag"
    LEDGER = "ledger"
    LOCK = "lock"
    PARAMS = "params"
    CODE = "code"
    CONSTRAINTS = "constraints"
    STATEMENT = "statement"
    DATA = "data"
    MANIFESTS = "manifests"
    MATCH = "match"
    PARENT = "parent"
    REGISTRY = "registry"


class Mark(StrEnum):
    """A cell of the table."""

    AGREES = "ok"
    DRIFTED = "DRIFT"
    MISSING = "not here"
    NOT_ASKED = "not asked"
    NOTHING = "-"
    """There is nothing of that kind in the generation."""


class Drift(NamedTuple):
    """One thing that is not as the record says, as a check tells it."""

    where: str
    """A file, a ref, a run: what a person would open."""
    what: str
    found: str
    expected: str
    remedy: str
    missing: bool = False
    """It is not here to be looked at, which is no drift."""


class Finding(Manifest):
    """One thing that is not as the record says, and where."""

    tag: str
    check: Check
    mark: Mark
    where: str
    what: str
    found: str
    expected: str
    remedy: str

    def line(self) -> str:
        """The finding as one line, digests shortened."""
        compared = f"found {self.found}" + (f", expected {self.expected}" if self.expected else "")
        return LONG_HEX.sub(r"\1", f"{self.tag} {self.check}: {self.where}: {self.what}: {compared}; {self.remedy}")


def differs(where: str, what: str, found: object, expected: object, remedy: str) -> list[Drift]:
    """A drift where two values differ, else nothing."""
    return [] if found == expected else [Drift(where, what, _shown(found), _shown(expected), remedy)]


def _shown(value: object) -> str:
    return "nothing" if value is None or value == "" else str(value)
