"""Rollback and branch: a lineage goes on from an earlier generation, or a new one begins there.

Both are recorded as a decision is: a line of the ledger that names its source, a signed statement, a commit, a tag.
They restore what the source generation left to the next one: champion, trainee, window, threshold of resignation, and
who plays where self-play overlaps.
A rollback keeps the code and the parameters of the lineage's head and takes the next number; a branch takes code,
parameters and number of its source, so that its next generation has the random streams that the source's had.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

from zero.config.params import load_params, params_digest
from zero.errors import LineageError
from zero.lineage.registry import Advanced, commit_record, finish, roll_forward
from zero.lineage.workspace import (
    check_workspace,
    checkout_generation,
    committed_ledger,
    current_generation,
    restore_lineage,
)
from zero.record.attestation import PARENT, SOURCE, check_key, state_statement, write_statement
from zero.record.ledger import (
    FIRST_PREVIOUS,
    NAME_PATTERN,
    append_entry,
    entry_of,
    generation_tag,
    last_line_digest,
    line_digest,
    parse_ledger,
    read_ledger,
)
from zero.record.provenance import Resource
from zero.stages.training import check_trainee
from zero.storage.files import read_manifest, sha256_bytes, sha256_file, write_atomic, write_manifest
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    DVC_LOCK_FILE,
    GENERATION_FILE,
    LEDGER_FILE,
    METRICS_DIR,
    PLOTS_DIR,
    REPLAY_DIR,
    STATE_OUTS,
    TRAINEE_DIR,
    WINDOW_DIR,
    workspace_dir,
)
from zero.storage.manifests import Checkpoint, GenerationId, LedgerEntry, Origin, Source, Window
from zero.storage.vcs import dvc, git

STAGE_FILES = (DVC_LOCK_FILE, METRICS_DIR, PLOTS_DIR)
"""What the stages of the generation before left in git; a commit without stages has none of it."""


class Left(NamedTuple):
    """What a generation left to the next one, with its data in the folder it was restored in."""

    entry: LedgerEntry
    source: Source
    next_generation: GenerationId
    """Its threshold of resignation, and who plays its games."""


def rollback(home: Path, workspace: Path, tag: str) -> Advanced:
    """Records that a lineage goes on from its earlier generation `tag`, and sets up the next generation.

    What the generation in the making has done so far is given up. Can be repeated after a crash.

    Raises:
      LineageError: the tag is unknown, of another lineage or not older than the head, or the workspace is dirty.
      ParamsError: the parameters of the head are not those of the network that is restored.
    """
    check_workspace(workspace)
    check_key(workspace)
    text = committed_ledger(workspace)
    head = parse_ledger(text, LEDGER_FILE)[-1]
    if head.source is not None and head.source.tag == tag and head.kind == "rollback":
        return _recorded(workspace, head)
    number = _check_older(head, tag)
    known = entry_of(parse_ledger(text, LEDGER_FILE), number)
    if (workspace / GENERATION_FILE).exists() and _number(workspace) <= head.generation:
        finish(workspace, head)
    with tempfile.TemporaryDirectory(prefix="zero-rollback-") as scratch:
        left = restore_left(home, tag, Path(scratch) / "source")
        if left.entry != known:
            raise LineageError(f"tag {tag} is not of the history of {head.lineage}; `zero audit` says more")
        check_trainee(read_manifest(Path(scratch) / "source" / TRAINEE_DIR, Checkpoint), load_params(workspace))
        for out in STATE_OUTS:
            shutil.copyfile(Path(scratch) / "source" / f"{out}.dvc", workspace / f"{out}.dvc")
    dvc(workspace, "checkout", "--quiet", "--force", *STATE_OUTS)
    entry = _write_record(workspace, "rollback", head.lineage, head.generation + 1, left, head, text)
    commit_record(workspace, f"{head.lineage}: generation {entry.generation}, rolled back to {tag}")
    return _recorded(workspace, entry)


def branch(home: Path, tag: str, lineage: str) -> Advanced:
    """Makes lineage `lineage`, which begins with what generation `tag` left. There whole or not at all.

    Raises:
      LineageError: the tag is unknown, or the name is not usable or taken.
    """
    if not NAME_PATTERN.match(lineage):
        raise LineageError(f"{lineage!r} is no name for a lineage; use up to 40 of a-z, 0-9 and '-', a letter first")
    target = workspace_dir(home, lineage)
    if (made := _branched_before(home, tag, lineage, target)) is not None:
        return made
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{lineage}-", dir=target.parent))
    try:
        left = restore_left(home, tag, building)
        git(building, "checkout", "--quiet", "-b", f"lineage/{lineage}")
        own_window(building, lineage, left)
        entry = _write_record(building, "branch", lineage, left.entry.generation, left, None, "")
        commit_record(building, f"{lineage}: generation {entry.generation}, branched from {tag}")
        finish(building, entry)
        for folder in ("data", "models"):
            shutil.rmtree(building / folder, ignore_errors=True)  # the source's; DVC keeps them
        os.rename(building, target)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return _recorded(target, entry)


def restore_left(home: Path, tag: str, folder: Path) -> Left:
    """Clones the project at a tag into `folder` and puts into its `state` what that generation left to the next one.

    Raises:
      LineageError: there is no such tag, or its data are neither here nor on the remote.
    """
    entry = entry_at(home, tag)
    # Out paths only: DVC passes over those that follow a name such as state/champion.dvc.
    needed = (CHALLENGER_DIR, WINDOW_DIR, CHAMPION_DIR) if entry.kind == "decision" else STATE_OUTS
    checkout_generation(home, tag, folder, needed)
    if missing := [out for out in needed if not (folder / out / "manifest.json").exists()]:
        dvc(folder, "pull", "--quiet", *missing)
    if entry.kind == "decision":
        roll_forward(folder, entry)
    commit = git(folder, "rev-parse", "HEAD").strip()
    return Left(entry, Source(tag=tag, commit=commit, line=line_digest(entry)), current_generation(folder))


def entry_at(home: Path, tag: str) -> LedgerEntry:
    """The line of the ledger of a tag.

    Raises:
      LineageError: there is no such tag, or it was moved to another generation.
    """
    if not git(home, "tag", "--list", tag).strip():
        raise LineageError(f"unknown generation {tag!r}; `git tag --list '*/gen-*'` shows those there are")
    entry = parse_ledger(git(home, "show", f"{tag}:{LEDGER_FILE}"), f"{tag}:{LEDGER_FILE}")[-1]
    found = generation_tag(entry.lineage, entry.generation)
    if found != tag:
        raise LineageError(f"tag {tag} was moved to the commit of {found}; `zero audit` says more")
    return entry


def _check_older(head: LedgerEntry, tag: str) -> int:
    """Number of `tag`, which must be a generation of the lineage before its head."""
    lineage, _, digits = tag.rpartition("/gen-")
    newest = generation_tag(head.lineage, head.generation)
    if not digits.isdigit() or generation_tag(lineage, int(digits)) != tag:
        raise LineageError(f"{tag!r} is no generation; name it as its tag, such as {newest}")
    if lineage != head.lineage:
        raise LineageError(
            f"{tag} is of lineage {lineage!r}, not of {head.lineage!r}; to go on from it elsewhere: "
            f"`zero branch {lineage} {tag} NEW`"
        )
    if int(digits) == head.generation:
        raise LineageError(f"{tag} is where {head.lineage} stands; there is nothing to roll back")
    if int(digits) > head.generation:
        raise LineageError(f"{tag} is newer than the head of {head.lineage}, {newest}; name an older generation")
    return int(digits)


def _number(workspace: Path) -> int:
    return current_generation(workspace).number


def _recorded(workspace: Path, entry: LedgerEntry) -> Advanced:
    """Does what is left to be done after the commit of the last line."""
    if _number(workspace) <= entry.generation:
        finish(workspace, entry)
    tag = generation_tag(entry.lineage, entry.generation)
    return Advanced(entry, tag, git(workspace, "rev-parse", f"{tag}^{{commit}}").strip())


def _write_record(
    folder: Path,
    kind: Literal["rollback", "branch"],
    lineage: str,
    number: int,
    left: Left,
    before: LedgerEntry | None,
    text: str,
) -> LedgerEntry:
    """Writes number, statement and ledger line of a commit whose state is there already."""
    for name in STAGE_FILES:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    current = left.next_generation.model_copy(update={"lineage": lineage, "number": number})
    write_manifest(folder, current, GENERATION_FILE)
    inputs = [Resource(name=SOURCE, digest={"sha256": left.entry.provenance}, annotations={"tag": left.source.tag})]
    if before is not None:
        inputs.append(Resource(name=PARENT, digest={"sha256": before.provenance}))
    statement = state_statement(folder, kind, generation_tag(lineage, number), tuple(inputs))
    entry = LedgerEntry(
        lineage=lineage,
        generation=number,
        kind=kind,
        decision=None,
        source=left.source,
        champion=left.entry.champion,
        champion_generation=left.entry.champion_generation,
        trainee=left.entry.trainee,
        params_digest=params_digest(load_params(folder)),
        lock_digest=sha256_bytes(b""),
        provenance=write_statement(folder, statement),
        previous=last_line_digest(text) if before is not None else FIRST_PREVIOUS,
    )
    write_atomic(folder / LEDGER_FILE, append_entry(text, entry).encode())
    return entry


def own_window(folder: Path, lineage: str, left: Left) -> None:
    """Makes the window of the source one of the new lineage: the same games under a manifest of its own."""
    window = read_manifest(folder / REPLAY_DIR, Window)
    origin = Origin(
        stage="branch",
        lineage=lineage,
        generation=left.entry.generation,
        seed=window.origin.seed,
        params_digest=window.origin.params_digest,
        engine=window.origin.engine,
        inputs={left.source.tag: sha256_file(folder / REPLAY_DIR / "manifest.json")},
    )
    write_manifest(folder / REPLAY_DIR, window.model_copy(update={"origin": origin}))
    dvc(folder, "add", "--quiet", REPLAY_DIR)


def _branched_before(home: Path, tag: str, lineage: str, target: Path) -> Advanced | None:
    """The branch where an earlier call made it and was killed or is repeated; None where the name is free.

    Raises:
      LineageError: the name is taken by something else.
    """
    taken = git(home, "for-each-ref", f"refs/heads/lineage/{lineage}").strip()
    if not target.exists() and not taken:
        tags = git(home, "tag", "--list", f"{lineage}/gen-*").split()
        if tags:
            raise LineageError(f"tag {tags[0]} is of an earlier lineage {lineage!r}; choose another name")
        return None
    if not target.exists():
        ledger = parse_ledger(git(home, "show", f"lineage/{lineage}:{LEDGER_FILE}"), LEDGER_FILE)
        if _is_branch(ledger, tag):
            restore_lineage(home, lineage)
    elif not (target / LEDGER_FILE).exists() or not _is_branch(read_ledger(target), tag):
        ledger = ()
    else:
        ledger = read_ledger(target)
    if not _is_branch(ledger, tag):
        raise LineageError(f"lineage {lineage!r} is there already; choose another name")
    return _recorded(target, ledger[0])


def _is_branch(ledger: tuple[LedgerEntry, ...], tag: str) -> bool:
    """True where a lineage is the branch of that tag and nothing more."""
    return len(ledger) == 1 and ledger[0].source is not None and ledger[0].source.tag == tag
