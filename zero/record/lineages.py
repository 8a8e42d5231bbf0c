"""The generations of lineages in order, each knowing the one before it and the one it goes back to."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from zero.config.settings import STATE_FOLDER
from zero.errors import LineageError
from zero.record.generation import Generation
from zero.record.history import History, Line, open_history
from zero.record.objects import DataCache


class Chains:
    """Lineages of a project, read when they are asked for; a context, for each keeps a process of git."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._cache = DataCache(home / STATE_FOLDER / "dvc-cache")
        self._stack = ExitStack()
        self._read: dict[str, tuple[History, list[Generation]]] = {}

    def __enter__(self) -> "Chains":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def history(self, lineage: str) -> History:
        """A lineage in git.

        Raises:
          LineageError: there is no such lineage.
        """
        return self._lineage(lineage)[0]

    def generations(self, lineage: str) -> list[Generation]:
        """Every generation that the ledger, its older versions or a tag know of, oldest first.

        Raises:
          LineageError: there is no such lineage.
        """
        return self._lineage(lineage)[1]

    def ancestry(self, lineage: str, last: int | None = None) -> list[Generation]:
        """The generations of a lineage up to number `last`, after those that it branched from, oldest first.

        Raises:
          LineageError: there is no such lineage or generation.
        """
        own = self.generations(lineage)
        if last is not None and last not in {each.number for each in own}:
            raise LineageError(f"lineage {lineage} has no generation {last}; `git tag -l '{lineage}/gen-*'` shows them")
        chosen = [each for each in own if last is None or each.number <= last]
        first = chosen[0].entry if chosen else None
        source = chosen[0].source if first is not None and first.kind == "branch" else None
        return [*(self.ancestry(source.lineage, source.number) if source else ()), *chosen]

    def _lineage(self, lineage: str) -> tuple[History, list[Generation]]:
        if lineage not in self._read:
            history = self._stack.enter_context(open_history(self._home, lineage))
            made: list[Generation] = []
            self._read[lineage] = history, made  # before its generations: a rollback asks for those before it
            self._fill(history, made)
        return self._read[lineage]

    def _fill(self, history: History, made: list[Generation]) -> None:
        written = commits_of_lines(history)
        lines: dict[int, Line] = {}
        for line in history.lines:
            if line.entry is not None and line.entry.lineage == history.lineage:
                lines.setdefault(line.entry.generation, line)
        tags = (*history.project.tags, *(history.workspace.tags if history.workspace else ()))
        numbers = {int(tag.rpartition("gen-")[2]) for tag in tags if tag.rpartition("gen-")[2].isdigit()}
        for number in sorted(lines.keys() | written.keys() | numbers):
            own = lines.get(number)
            recorded = [each for each in made if each.line is not None]
            made.append(
                Generation(
                    history=history,
                    cache=self._cache,
                    number=number,
                    line=own,
                    commit=written.get(number),
                    before=recorded[-1] if recorded else None,
                    source=self._source(own),
                )
            )

    def _source(self, line: Line | None) -> Generation | None:
        entry = line.entry if line else None
        if entry is None or entry.source is None:
            return None
        lineage, _, digits = entry.source.tag.rpartition("/gen-")
        try:
            known = self.generations(lineage)
        except LineageError:
            return None
        return next((each for each in known if digits.isdigit() and each.number == int(digits)), None)


def commits_of_lines(history: History) -> dict[int, str]:
    """The commit that wrote each generation's line: the first one whose ledger ends with it."""
    written: dict[int, str] = {}
    for version in history.versions:
        last = version.lines[-1].entry if version.lines else None
        if last is not None and last.lineage == history.lineage:
            written.setdefault(last.generation, version.commit)
    return written
