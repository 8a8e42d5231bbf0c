"""A lineage in git: its branch, its tags, and every version of its ledger."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from zero.errors import LineageError
from zero.record.ledger import (
    FIRST_KINDS,
    NAME_PATTERN,
    generation_tag,
    lineages_here,
    parse_ledger,
    parse_tag,
    unknown_lineage,
)
from zero.record.objects import GitReader
from zero.storage.files import sha256_bytes
from zero.storage.layout import KEY_FILE, LEDGER_FILE, workspace_dir
from zero.storage.manifests import LedgerEntry
from zero.storage.vcs import git

BRANCH_PATTERN = re.compile(r"^refs/(?:heads|remotes/[^/]+)/lineage/([a-z][a-z0-9-]{0,39})$")


class Line(NamedTuple):
    """One line of a ledger file."""

    text: bytes
    entry: LedgerEntry | None
    """None if the line is not an entry."""

    @property
    def digest(self) -> str:
        """SHA-256 of the line, which the next entry holds as `previous`."""
        return sha256_bytes(self.text)


class LedgerVersion(NamedTuple):
    """The ledger at one commit."""

    commit: str
    lines: tuple[Line, ...]


class Repository(NamedTuple):
    """The refs of a lineage in one clone."""

    folder: Path
    head: str | None
    """Commit of the branch; None without a branch."""
    tags: dict[str, str]
    """Commits by tag."""


class LineageHistory(NamedTuple):
    """A lineage in git."""

    lineage: str
    project: Repository
    workspace: Repository | None
    reader: GitReader
    head: str
    """Newest known commit of the branch: the workspace's, unless the project is ahead."""
    lost: bool
    """True if there is no branch; `head` is then the newest tag's commit."""
    agreed: bool
    """True if the project's branch is an ancestor of `head`, or `head` itself."""
    commits: frozenset[str]
    """All commits up to `head`, along first parents."""
    versions: tuple[LedgerVersion, ...]
    """Every version of the ledger from the lineage's first commit on, oldest first."""
    tagged: tuple[LedgerVersion, ...]
    """Ledgers at tags whose commits are not among `versions`."""
    draft: bytes | None
    """Content of the workspace's ledger file; None without a workspace, or if the project is ahead of it."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """Lines of the newest ledger."""
        return self.versions[-1].lines

    @property
    def key(self) -> bytes | None:
        """The lineage's public key (PEM), from its first commit.

        A key file of a later commit is not used: whoever replaces an attestation can replace that file too.
        """
        return self.reader.read(f"{self.versions[0].commit}:{KEY_FILE}")


def known_lineages(home: Path) -> list[str]:
    """Names of all lineages that have a branch, a workspace or a tag in the project."""
    names = git(home, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes").split()
    branches = {match[1] for match in map(BRANCH_PATTERN.match, names) if match}
    tags = git(home, "for-each-ref", "--format=%(refname:strip=2)", "refs/tags/*/gen-*").split()
    branches |= {parsed[0] for parsed in map(parse_tag, tags) if parsed}
    return sorted(branches | set(lineages_here(home)))


def check_known_tag(home: Path, tag: str) -> None:
    """Checks that the project has a tag.

    Raises:
      LineageError: it has not.
    """
    # Only the name of a generation: git would take `go9/gen-*` for a pattern.
    if parse_tag(tag) is None or not git(home, "tag", "--list", tag).strip():
        raise LineageError(f"unknown generation {tag!r}; `git tag --list '*/gen-*'` lists the known ones")


def entry_at(home: Path, tag: str) -> LedgerEntry:
    """The last ledger entry at a tag.

    Raises:
      LineageError: the tag is unknown, or was moved to another generation.
    """
    check_known_tag(home, tag)
    entry = parse_ledger(git(home, "show", f"refs/tags/{tag}:{LEDGER_FILE}"), f"{tag}:{LEDGER_FILE}")[-1]
    found = generation_tag(entry.lineage, entry.generation)
    if found != tag:
        raise LineageError(f"tag {tag} was moved to the commit of {found}; `zero audit` reports where it belongs")
    return entry


@contextmanager
def open_history(home: Path, lineage: str) -> Iterator[LineageHistory]:
    """History of a lineage, with a process that reads its objects.

    Raises:
      LineageError: the lineage has neither a branch nor tags (it needs no workspace), or no ledger.
    """
    if not NAME_PATTERN.match(lineage):
        raise unknown_lineage(lineage, known_lineages(home))
    folder = workspace_dir(home, lineage)
    project = _repository(home, lineage)
    workspace = _repository(folder, lineage) if (folder / ".git").exists() else None
    source = workspace if workspace is not None and workspace.head and not _is_behind(workspace, project) else project
    tags = [tag for tag in project.tags if parse_tag(tag)]
    lost = source.head is None and bool(tags)
    if lost:
        # By length first: as text, gen-10000 sorts before gen-9999.
        newest = max(tags, key=lambda tag: (len(tag), tag))
        source = project = project._replace(head=project.tags[newest])
    if source.head is None:
        raise unknown_lineage(lineage, known_lineages(home))
    # First parents only: merges bring in commits of the project's code, which are not the lineage's history.
    commits = git(source.folder, "rev-list", "--first-parent", source.head).split()
    with ExitStack() as stack:
        reader = stack.enter_context(GitReader(source.folder, also=home))
        versions = _versions(reader, source, lineage)
        tagged = set(project.tags.values()) | set(workspace.tags.values() if workspace else ())
        yield LineageHistory(
            lineage=lineage,
            project=project,
            workspace=workspace,
            reader=reader,
            head=source.head,
            lost=lost,
            agreed=project.head is None or project.head in commits,
            commits=frozenset(commits),
            versions=versions,
            # Sorted, because a set has no order and the audit must report the same twice.
            tagged=tuple(_version(reader, each) for each in sorted(tagged - {each.commit for each in versions})),
            draft=_draft(folder) if source is workspace else None,
        )


def read_lines(text: bytes) -> tuple[Line, ...]:
    """Lines of a ledger file, entries or not."""
    return tuple(Line(line, _entry(line)) for line in text.splitlines(keepends=True))


def _entry(line: bytes) -> LedgerEntry | None:
    try:
        return LedgerEntry.model_validate_json(line)
    except ValidationError:
        return None


def _versions(reader: GitReader, source: Repository, lineage: str) -> tuple[LedgerVersion, ...]:
    """Every version of the ledger from this lineage's first one on.

    Older commits belong to the code that the lineage began with; of a branch, to its source's ledger.
    """
    assert source.head
    commits = git(source.folder, "rev-list", "--first-parent", source.head, "--", LEDGER_FILE).split()
    versions: list[LedgerVersion] = []
    for commit in commits:
        versions.insert(0, _version(reader, commit))
        lines = versions[0].lines
        first = lines[0].entry if len(lines) == 1 else None
        if first is not None and first.kind in FIRST_KINDS and first.lineage == lineage:
            break
    if not versions:
        raise LineageError(
            f"lineage {lineage} in {source.folder} has no {LEDGER_FILE}; look for it with `git log` there"
        )
    return tuple(versions)


def _version(reader: GitReader, commit: str) -> LedgerVersion:
    return LedgerVersion(commit, read_lines(reader.read(f"{commit}:{LEDGER_FILE}") or b""))


def _repository(folder: Path, lineage: str) -> Repository:
    names = git(folder, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/remotes")
    branches = dict(line.split() for line in names.splitlines())
    head = branches.get(f"refs/heads/lineage/{lineage}")
    if head is None:
        # A branch that was only fetched exists as that of a remote.
        found = ((BRANCH_PATTERN.match(name), commit) for name, commit in branches.items())
        head = next((commit for match, commit in found if match and match[1] == lineage), None)
    listed = git(
        folder, "for-each-ref", "--format=%(refname:strip=2) %(objectname) %(*objectname)", f"refs/tags/{lineage}/gen-*"
    )
    # The third field is the commit of an annotated tag, and empty for a plain one: the last word is the commit of both.
    tags = {words[0]: words[-1] for words in map(str.split, listed.splitlines())}
    return Repository(folder, head, tags)


def _is_behind(workspace: Repository, project: Repository) -> bool:
    """True if the project's branch is ahead of the workspace's, because another machine pushed to it."""
    if project.head is None or project.head == workspace.head:
        return False
    return workspace.head in git(project.folder, "rev-list", "--first-parent", project.head).split()


def _draft(folder: Path) -> bytes:
    try:
        return (folder / LEDGER_FILE).read_bytes()
    except OSError:
        return b""
