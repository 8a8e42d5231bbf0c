"""All lineages of a project, each as its generations in order."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from zero.config.settings import home_dir
from zero.errors import LineageError
from zero.record.generation import Generation
from zero.record.history import Line, LineageHistory, open_history
from zero.record.ledger import generation_tag, parse_tag, read_ledger
from zero.record.objects import CommittedFiles, DataCache, GitReader
from zero.storage.files import canonical_line
from zero.storage.layout import DVC_CACHE_DIR


class ProjectRecord:
    """The lineages of a project, read on first use. A context manager, because each lineage keeps a git process."""

    def __init__(self, home: Path, offline: bool = False) -> None:
        """Reads nothing yet.

        Args:
          home: the project's folder.
          offline: True if missing cost notes are not fetched.
        """
        self._home, self._offline = home, offline
        self._cache = data_cache(home)
        self._stack = ExitStack()
        self._read: dict[str, list[Generation]] = {}

    def __enter__(self) -> "ProjectRecord":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def generations(self, lineage: str) -> list[Generation]:
        """Every generation that the ledger, an older version of it, or a tag names; oldest first.

        Raises:
          LineageError: the lineage is unknown.
        """
        if lineage not in self._read:
            history = self._stack.enter_context(open_history(self._home, lineage))
            made = self._read[lineage] = []  # first, because the source of a rollback is one of these generations
            self._fill(history, made)
        return self._read[lineage]

    def generation(self, tag: str) -> Generation:
        """The generation of a tag.

        Raises:
          LineageError: the lineage or generation is unknown.
        """
        for generation in self.generations(tag.partition("/")[0]):
            if generation.tag == tag:
                return generation
        raise LineageError(f"unknown generation {tag!r}; `git tag --list '*/gen-*'` lists the known ones")

    def ancestry(self, lineage: str, last: int | None = None) -> list[Generation]:
        """The generations of a lineage up to number `last`, preceded by those from which it branched; oldest first.

        Raises:
          LineageError: the lineage or generation is unknown.
        """
        own = self.generations(lineage)
        if last is not None and last not in {each.number for each in own}:
            raise LineageError(f"lineage {lineage} has no generation {last}; `git tag -l '{lineage}/gen-*'` lists them")
        chosen = [each for each in own if last is None or each.number <= last]
        first = chosen[0].entry if chosen else None
        source = chosen[0].source if first is not None and first.kind == "branch" else None
        return [*(self.ancestry(source.lineage, source.number) if source else ()), *chosen]

    def _fill(self, history: LineageHistory, made: list[Generation]) -> None:
        written = commits_of_lines(history)
        lines: dict[int, Line] = {}
        for line in history.lines:
            if line.entry is not None and line.entry.lineage == history.lineage:
                # The first of two lines with the same number; the audit reports the other one.
                lines.setdefault(line.entry.generation, line)
        tags = (*history.project.tags, *(history.workspace.tags if history.workspace else ()))
        numbers = {parsed[1] for parsed in map(parse_tag, tags) if parsed}
        for number in sorted(lines.keys() | written.keys() | numbers):
            own = lines.get(number)
            # A generation that only a tag knows has no place in the chain.
            recorded = [each for each in made if each.line is not None]
            made.append(
                Generation(
                    history.lineage,
                    number,
                    CommittedFiles(history.reader, self._cache, written.get(number)),
                    own,
                    previous=recorded[-1] if recorded else None,
                    source=self._source(own),
                    history=history,
                    offline=self._offline,
                )
            )

    def _source(self, line: Line | None) -> Generation | None:
        entry = line.entry if line else None
        try:
            return self.generation(entry.source.tag) if entry and entry.source else None
        except LineageError:
            return None  # the audit reports a source that the project lacks


@contextmanager
def workspace_generations(workspace: Path) -> Iterator[list[Generation]]:
    """The generations in a workspace's ledger, oldest first, each read from its tag.

    Unlike `ProjectRecord` this trusts the newest ledger and does not read its older versions, which saves much time in
    a long lineage. A generation's `commit` is its tag here. It has neither `source` nor `history`, so the `next_state`
    of a rollback or a branch lacks what was restored.

    Raises:
      LineageError: the workspace has no ledger, or its chain is broken.
    """
    ledger, cache = read_ledger(workspace), data_cache(home_dir(workspace))
    with GitReader(workspace) as reader:
        found: list[Generation] = []
        for entry in ledger:
            files = CommittedFiles(reader, cache, generation_tag(entry.lineage, entry.generation))
            line = Line(canonical_line(entry), entry)
            previous = found[-1] if found else None
            found.append(Generation(entry.lineage, entry.generation, files, line, previous=previous))
        yield found


def data_cache(home: Path) -> DataCache:
    """DVC's cache, which all workspaces of a project share."""
    return DataCache(home / DVC_CACHE_DIR)


def commits_of_lines(history: LineageHistory) -> dict[int, str]:
    """The commit that wrote each generation's entry: the first one whose ledger ends with it."""
    written: dict[int, str] = {}
    for version in history.versions:
        last = version.lines[-1].entry if version.lines else None
        if last is not None and last.lineage == history.lineage:
            written.setdefault(last.generation, version.commit)
    return written


def champion_maker(record: ProjectRecord, lineage: str, number: int) -> Generation:
    """The generation that trained the champion after generation `number`.

    It is the first one with this champion, possibly in the lineage that this one was branched from.
    """
    ancestry = record.ancestry(lineage, number)
    last = ancestry[-1].entry
    return next(each for each in ancestry if each.entry and last and each.entry.champion == last.champion)
