"""The ledger: an append-only, hash-chained list of every decision, rollback and branch of a lineage.

The file is `record/ledger.jsonl`, one `LedgerEntry` on a line; refused challengers have entries too. Each entry holds
the SHA-256 of the line before, so that removing, editing or moving a line is detected. Every entry has one generation
number and one tag. The first number is 0, or that of the generation from which the lineage branched.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from zero.errors import LineageError
from zero.storage.files import canonical_line, sha256_bytes
from zero.storage.layout import LEDGER_FILE, workspace_dir, workspaces_dir
from zero.storage.manifests import LedgerEntry

FIRST_PREVIOUS = "0" * 64
FIRST_KINDS = ("start", "branch")
NAME_PATTERN = re.compile(r"^[a-z][a-z0-9-]{0,39}\Z")  # not `$`, which also matches before a last newline
"""Name of a lineage. Others must not become a path, or a pattern of git's references."""
NAME_RULE = "use up to 40 of a-z, 0-9 and '-', starting with a letter"
"""Remedy for a text that is not a name."""
TAG_PATTERN = re.compile(r"^([a-z][a-z0-9-]{0,39})/gen-(\d{4,9})$")


def generation_tag(lineage: str, number: int) -> str:
    """Tag of a generation, such as `go9/gen-0012`."""
    return f"{lineage}/gen-{number:04d}"


def parse_tag(tag: str) -> tuple[str, int] | None:
    """Lineage and number of a generation's tag; None if the text is not such a tag."""
    match = TAG_PATTERN.match(tag)
    return (match[1], int(match[2])) if match and generation_tag(match[1], int(match[2])) == tag else None


def parse_ledger(text: str, source: str) -> tuple[LedgerEntry, ...]:
    """Entries of a ledger, after a check of the chain.

    Args:
      text: content of the file.
      source: its name in errors.

    Raises:
      LineageError: a line is not an entry, does not follow the line before, or repeats or skips a generation.
    """
    entries: list[LedgerEntry] = []
    previous = FIRST_PREVIOUS
    if not text:
        raise LineageError(f"{source} is empty; {_restore(source)}")
    # With their ends: the digests cover them.
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        try:
            entry = LedgerEntry.model_validate_json(line)
        except ValidationError:
            raise LineageError(f"{source}, line {number} is not a ledger entry; {_restore(source)}") from None
        # Canonical JSON is ASCII: other characters come from bytes that were damaged and replaced when decoded.
        if not (line.endswith("\n") and line.isascii()):
            raise LineageError(f"{source}, line {number} is truncated or corrupt; {_restore(source)}")
        first = entries[0].generation if entries else entry.generation
        misplaced = (entry.kind in FIRST_KINDS) != (number == 1) or (entry.kind == "start" and entry.generation != 0)
        if entry.previous != previous or entry.generation != first + number - 1 or misplaced:
            raise LineageError(f"{source}, line {number} does not follow the line before it; {_restore(source)}")
        previous = sha256_bytes(line.encode())
        entries.append(entry)
    return tuple(entries)


def read_ledger(folder: Path) -> tuple[LedgerEntry, ...]:
    """Entries of a workspace's ledger.

    Raises:
      LineageError: the workspace has no ledger, or its chain is broken.
    """
    path = folder / LEDGER_FILE
    try:
        # Damaged bytes become characters that `parse_ledger` reports with the number of their line.
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        raise LineageError(
            f"{folder} is not a lineage's workspace, because it has no {LEDGER_FILE}; make one with `zero new`"
        ) from None
    return parse_ledger(text, str(path))


def entry_of(ledger: Sequence[LedgerEntry], generation: int) -> LedgerEntry:
    """Entry of a generation.

    Raises:
      LineageError: the ledger has no such entry.
    """
    index = generation - ledger[0].generation
    if not 0 <= index < len(ledger):
        raise LineageError(
            f"lineage {ledger[0].lineage} has no generation {generation}; it has {ledger[0].generation} to "
            f"{ledger[-1].generation}"
        )
    return ledger[index]


def line_digest(entry: LedgerEntry) -> str:
    """SHA-256 (hex) of an entry's line, which the next entry holds as `previous`."""
    return sha256_bytes(canonical_line(entry))


def append_entry(text: str, entry: LedgerEntry) -> str:
    """Text of the ledger with one more entry."""
    return text + canonical_line(entry).decode()


def last_line_digest(text: str) -> str:
    """SHA-256 of the last line, which the next entry must hold as `previous`."""
    lines = text.splitlines(keepends=True)
    return sha256_bytes(lines[-1].encode()) if lines else FIRST_PREVIOUS


def _restore(source: str) -> str:
    if source.endswith(f":{LEDGER_FILE}"):  # at a tag, which no checkout changes
        return "`zero audit` reports more"
    path = Path(source)
    return f"restore it with `git -C {path.parent} checkout HEAD -- {path.name}`"


def lineages_here(home: Path) -> list[str]:
    """Names of the lineages with a workspace in this project; `known_lineages` has all that it knows."""
    folder = workspaces_dir(home)
    names = [p.name for p in folder.iterdir() if (p / LEDGER_FILE).exists()] if folder.is_dir() else []
    return sorted(name for name in names if NAME_PATTERN.match(name))


def find_workspace(home: Path, lineage: str) -> Path:
    """Workspace of a lineage.

    Raises:
      LineageError: this project has no workspace of the lineage.
    """
    folder = workspace_dir(home, lineage)
    if not (NAME_PATTERN.match(lineage) and (folder / LEDGER_FILE).exists()):
        raise unknown_lineage(lineage, lineages_here(home))
    return folder


def unknown_lineage(lineage: str, known: Sequence[str]) -> LineageError:
    """The error for the name of a lineage that is not among the known ones."""
    remedy = f"make it with `zero new {lineage}`" if NAME_PATTERN.match(lineage) else NAME_RULE
    return LineageError(f"unknown lineage {lineage!r}; known are: {', '.join(known) or 'none yet'}; {remedy}")
