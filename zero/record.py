"""The record in git: the ledger of decisions and the provenance of a generation. Values in, values out.

The ledger is `record/ledger.jsonl`, one `LedgerEntry` a line, refusals included; each line holds the SHA-256 of the
line before, so that none can be taken out, altered or moved unseen.
"""

from pathlib import Path

from pydantic import ValidationError

from zero.artifacts import LedgerEntry, canonical_line, sha256_bytes
from zero.errors import LineageError

LEDGER_FILE = "record/ledger.jsonl"
PROVENANCE_FILE = "record/provenance.json"
FIRST_PREVIOUS = "0" * 64


def parse_ledger(text: str, source: str) -> tuple[LedgerEntry, ...]:
    """The entries of a ledger, its chain checked.

    Raises:
      LineageError: a line is no entry, does not follow the line before, or repeats or skips a generation.
    """
    entries: list[LedgerEntry] = []
    previous = FIRST_PREVIOUS
    if not text:
        raise LineageError(f"{source} is empty; {_restore(source)}")
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        try:
            entry = LedgerEntry.model_validate_json(line)
        except ValidationError:
            raise LineageError(f"{source}, line {number} is no ledger entry; {_restore(source)}") from None
        if not (line.endswith("\n") and line.isascii()):
            raise LineageError(f"{source}, line {number} is cut short or altered; {_restore(source)}")
        if entry.previous != previous or entry.generation != number - 1:
            raise LineageError(f"{source}, line {number} does not follow the line before it; {_restore(source)}")
        previous = sha256_bytes(line.encode())
        entries.append(entry)
    return tuple(entries)


def read_ledger(folder: Path) -> tuple[LedgerEntry, ...]:
    """The ledger of a workspace.

    Raises:
      LineageError: there is none, or its chain is broken.
    """
    path = folder / LEDGER_FILE
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        raise LineageError(
            f"{folder} is no lineage's workspace: it has no {LEDGER_FILE}; make one with `zero new`"
        ) from None
    return parse_ledger(text, str(path))


def append_entry(text: str, entry: LedgerEntry) -> str:
    """The ledger with one line more."""
    return text + canonical_line(entry).decode()


def last_line_digest(text: str) -> str:
    """What the next entry's `previous` must be."""
    lines = text.splitlines(keepends=True)
    return sha256_bytes(lines[-1].encode()) if lines else FIRST_PREVIOUS


def _restore(source: str) -> str:
    return f"restore it with `git checkout HEAD -- {source}`"
