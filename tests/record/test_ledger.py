"""Editing, removing or moving a line of the ledger is detected."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.project import git
from tests.made_generations import made_decision, made_entry
from zero.errors import LineageError
from zero.lineage.workspace import restore_lineage
from zero.record.history import check_known_tag, open_history
from zero.record.ledger import (
    FIRST_PREVIOUS,
    append_entry,
    entry_of,
    find_workspace,
    last_line_digest,
    line_digest,
    parse_ledger,
    read_ledger,
)
from zero.storage.files import canonical_line, sha256_bytes
from zero.storage.layout import LEDGER_FILE
from zero.storage.manifests import LedgerEntry, PromotionDecision, Source


def sha(number: int) -> str:
    return f"{number:064x}"


def decision(generation: int, promoted: bool) -> PromotionDecision:
    return made_decision("go9", generation, promoted, 240 if promoted else 160, 400, sha(100 + generation), sha(100))


def entry(generation: int, previous: str) -> LedgerEntry:
    """The start, a promotion, a rejection, a promotion, ..."""
    promoted = generation % 2 == 1
    return made_entry(
        generation,
        kind="decision" if generation else "start",
        decision=decision(generation, promoted) if generation else None,
        champion=sha(100 + generation),
        trainee=sha(200 + generation),
        previous=previous,
    )


def ledger(num_lines: int = 4) -> str:
    text = ""
    for generation in range(num_lines):
        text = append_entry(text, entry(generation, last_line_digest(text)))
    return text


def test_a_ledger_is_read_back_with_rejections():
    entries = parse_ledger(ledger(), "ledger")
    assert [e.generation for e in entries] == [0, 1, 2, 3]
    assert [e.decision.promoted for e in entries if e.decision] == [True, False, True]
    assert entries[2] == entry(2, entries[2].previous)


def test_each_line_holds_the_digest_of_the_line_before():
    lines = ledger().splitlines(keepends=True)
    assert json.loads(lines[0])["previous"] == FIRST_PREVIOUS == "0" * 64
    for before, line, entry in zip(lines, lines[1:], parse_ledger(ledger(), "ledger"), strict=False):
        assert json.loads(line)["previous"] == sha256_bytes(before.encode()) == line_digest(entry)


def test_the_ledger_is_read_from_its_workspace(tmp_path):
    path = tmp_path / LEDGER_FILE
    path.parent.mkdir()
    path.write_text(ledger())
    assert read_ledger(tmp_path) == parse_ledger(ledger(), "ledger")


def branch(previous: str = FIRST_PREVIOUS, generation: int = 4) -> LedgerEntry:
    source = Source(tag="go9/gen-0004", commit="c" * 40, line=sha(9))
    return entry(generation, previous).model_copy(update={"kind": "branch", "decision": None, "source": source})


def test_a_branch_continues_from_the_number_of_its_source():
    text = append_entry("", branch())
    text = append_entry(text, entry(5, last_line_digest(text)))
    entries = parse_ledger(text, "ledger")
    assert [e.generation for e in entries] == [4, 5]
    assert entry_of(entries, 5) is entries[1]
    for number in (0, 3, 6):
        with pytest.raises(LineageError, match=rf"go9 has no generation {number}; it has 4 to 5"):
            entry_of(entries, number)


def test_a_branch_in_the_middle_is_refused():
    text = ledger()
    with pytest.raises(LineageError, match="line 5 does not follow"):
        parse_ledger(append_entry(text, branch(last_line_digest(text))), "ledger")


def test_a_start_that_is_not_generation_0_is_refused():
    late = entry(0, FIRST_PREVIOUS).model_copy(update={"generation": 2})
    with pytest.raises(LineageError, match="line 1 does not follow"):
        parse_ledger(append_entry("", late), "ledger")


def test_a_broken_ledger_at_a_tag_has_a_remedy_that_works():
    with pytest.raises(LineageError, match=r"ledger\.jsonl is empty; `zero audit` reports more$"):
        parse_ledger("", "go9/gen-0003:record/ledger.jsonl")


def test_an_emptied_ledger_is_refused():
    with pytest.raises(LineageError, match="ledger is empty"):
        parse_ledger("", "ledger")
    assert last_line_digest("") == FIRST_PREVIOUS


Change = Callable[[list[str]], list[str]]

CHANGES: dict[str, tuple[Change, int]] = {
    "the first line taken out": (lambda x: x[1:], 1),
    "a line taken out": (lambda x: [*x[:1], *x[2:]], 2),
    "two lines moved": (lambda x: [x[0], x[2], x[1], x[3]], 2),
    "a line twice": (lambda x: [*x[:2], *x[1:]], 3),
    "the last line twice": (lambda x: [*x, x[-1]], 5),
    "a digit of the start altered": (lambda x: [x[0].replace(sha(200), sha(201)), *x[1:]], 2),
    "a decision turned round": (lambda x: [*x[:2], x[2].replace('"promoted": false', '"promoted": true'), x[3]], 4),
    "a space put in": (lambda x: [*x[:2], x[2].replace(": ", ":  ", 1), x[3]], 4),
    "the last line's chain altered": (lambda x: [*x[:3], x[3].replace(json.loads(x[3])["previous"], sha(7))], 4),
    "a line of another ledger": (lambda x: [*x[:3], canonical_line(entry(3, sha(7))).decode()], 4),
    "a generation skipped": (lambda x: [*x, canonical_line(entry(5, sha256_bytes(x[-1].encode()))).decode()], 5),
    "lines run together": (lambda x: [x[0].rstrip("\n"), *x[1:]], 1),
    "no end of the last line": (lambda x: [*x[:3], x[3].rstrip("\n")], 4),
    "half of the last line": (lambda x: [*x[:3], x[3][:80]], 4),
    "an empty line": (lambda x: [*x[:2], "\n", *x[2:]], 3),
    "a line that is no entry": (lambda x: [*x[:2], "{}\n", *x[2:]], 3),
    "a field more": (lambda x: [*x[:3], x[3].replace("{", '{"note": "fine", ', 1)], 4),
    "a letter beyond ASCII": (lambda x: [*x[:3], x[3].replace("go9", "gö9")], 4),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_tampered_ledger_is_refused_at_the_line(change):
    alter, line = CHANGES[change]
    lines = ledger().splitlines(keepends=True)
    altered = alter(lines)
    assert altered != lines
    with pytest.raises(
        LineageError, match=rf"^ledger, line {line} .*; restore it with `git -C \. checkout HEAD -- ledger`$"
    ):
        parse_ledger("".join(altered), "ledger")


def test_bytes_that_are_not_text_are_refused(tmp_path):
    (tmp_path / "record").mkdir()
    (tmp_path / LEDGER_FILE).write_bytes(ledger().encode().replace(b"go9", b"\xff", 1))
    with pytest.raises(LineageError, match=r"ledger.jsonl, line 1 "):
        read_ledger(tmp_path)


def open_lineage(home: Path, name: str) -> None:
    with open_history(home, name):
        pass


def test_a_folder_that_is_not_a_workspace_is_named(tmp_path):
    with pytest.raises(LineageError, match=rf"{tmp_path} is not a lineage's workspace, because .*`zero new`"):
        read_ledger(tmp_path)


@pytest.mark.parametrize("name", ["*", "g*", "../up", "go9\n", "x" * 300])
@pytest.mark.parametrize("resolve", [find_workspace, restore_lineage, open_lineage])
def test_what_cannot_be_a_name_is_not_a_lineage(
    tmp_path: Path, resolve: Callable[[Path, str], object], name: str
) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch", "lineage/go9")
    (tmp_path / LEDGER_FILE).parent.mkdir()
    (tmp_path / LEDGER_FILE).write_text(ledger())
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "made")
    git(tmp_path, "tag", "go9/gen-0003")
    with pytest.raises(LineageError, match=r"^unknown lineage .*; known are: .*; use up to 40 of a-z, 0-9"):
        resolve(tmp_path, name)


def test_a_pattern_is_not_a_known_tag(tmp_path: Path):
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "made")
    git(tmp_path, "tag", "go9/gen-0001")
    check_known_tag(tmp_path, "go9/gen-0001")
    with pytest.raises(LineageError, match=r"unknown generation 'go9/gen-\*'"):
        check_known_tag(tmp_path, "go9/gen-*")
