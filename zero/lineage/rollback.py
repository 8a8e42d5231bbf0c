"""Rollback and branch: a lineage continues from an earlier generation, or a new lineage starts there.

Both are recorded like a decision: a ledger entry that names its source, a signed attestation, a commit, a tag. They
restore what the source generation left to the next one: champion, trainee, window, resignation threshold, and the
player of overlapping self-play.

A rollback keeps the code and parameters of the lineage's head and takes the next number. A branch takes code,
parameters and number of its source, so that its next generation uses the same random streams as the source's next one.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Literal, NamedTuple

from zero.config.params import load_params, params_digest
from zero.errors import LineageError
from zero.lineage.registry import Recorded, commit_record, finish, finish_last, recorded_at, roll_forward
from zero.lineage.workspace import (
    STAGE_FILES,
    check_name,
    check_state_folder,
    check_workspace,
    checkout_generation,
    committed_ledger,
    current_generation,
    new_folder,
    remove_stage_files,
    restore_lineage,
)
from zero.record.attestation import check_key, state_attestation, write_attestation
from zero.record.generation import in_progress
from zero.record.history import entry_at
from zero.record.ledger import (
    append_entry,
    entry_of,
    generation_tag,
    last_line_digest,
    line_digest,
    parse_ledger,
    parse_tag,
    read_ledger,
)
from zero.record.provenance import PARENT, SOURCE, Resource
from zero.stages.inputs import check_trainee
from zero.storage.files import read_manifest, sha256_bytes, sha256_file, write_atomic, write_manifest
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    GENERATION_FILE,
    LEDGER_FILE,
    OLD_WINDOW_DIR,
    STATE_DIRS,
    TRAINEE_DIR,
    WINDOW_DIR,
    workspace_dir,
)
from zero.storage.manifests import MANIFEST_FILE, Checkpoint, GenerationId, LedgerEntry, Origin, Source, Window
from zero.storage.vcs import dvc, git


class RestoredState(NamedTuple):
    """What a generation left to the next one. The data is in the folder in which it was restored."""

    entry: LedgerEntry
    source: Source
    next_generation: GenerationId
    """Resignation threshold and player of the next generation."""


def rollback(home: Path, workspace: Path, tag: str) -> Recorded:
    """Records that a lineage continues from its earlier generation `tag`, and sets up the next generation.

    Work of the generation in progress is discarded. Can be repeated after a crash.

    Raises:
      LineageError: the tag is unknown, of another lineage, or not older than the head; or the workspace is dirty.
      ParamsError: the head's parameters do not fit the restored network.
    """
    check_workspace(workspace)
    check_key(workspace)
    text, ledger = committed_ledger(workspace)
    head = ledger[-1]
    # An earlier call made this commit and was killed afterwards, so only the rest is left to do.
    if head.source is not None and head.source.tag == tag and head.kind == "rollback":
        finish_last(workspace, head)
        return recorded_at(workspace, head)
    known = entry_of(ledger, _check_older(head, tag))
    if (workspace / GENERATION_FILE).exists():
        finish_last(workspace, head)
    with tempfile.TemporaryDirectory(prefix="zero-rollback-") as scratch:
        restored = restore_next_state(home, tag, Path(scratch) / "source")
        if restored.entry != known:
            raise LineageError(f"tag {tag} is not part of the history of {head.lineage}; `zero audit` reports why")
        # Checked before anything in the workspace changes.
        check_trainee(read_manifest(Path(scratch) / "source" / TRAINEE_DIR, Checkpoint), load_params(workspace))
        for out in STATE_DIRS:
            shutil.copyfile(Path(scratch) / "source" / f"{out}.dvc", workspace / f"{out}.dvc")
    dvc(workspace, "checkout", "--quiet", "--force", *STATE_DIRS)
    entry = _write_record(workspace, "rollback", head.lineage, head.generation + 1, restored, head, text)
    # Only what a rollback changes: another file may have changed after the check of the workspace.
    changed = git(workspace, "ls-tree", "--name-only", "HEAD", "--", *STAGE_FILES, "state", "record").split()
    commit_record(workspace, f"{head.lineage}: generation {entry.generation}, rolled back to {tag}", *changed)
    finish_last(workspace, entry)
    return recorded_at(workspace, entry)


def branch(home: Path, tag: str, new: str) -> Recorded:
    """Makes a lineage that starts from what generation `tag` left. A failed call leaves nothing behind.

    Raises:
      LineageError: the tag is unknown, or the name is invalid or taken.
    """
    check_name(new)
    target = workspace_dir(home, new)
    if (made := _branched_before(home, tag, new)) is not None:
        return made
    check_state_folder(home, target)
    with new_folder(target) as building:
        restored = restore_next_state(home, tag, building)
        git(building, "checkout", "--quiet", "-b", f"lineage/{new}")
        rewrite_window_manifest(building, new, restored)
        entry = _write_record(building, "branch", new, restored.entry.generation, restored, None, "")
        commit_record(building, f"{new}: generation {entry.generation}, branched from {tag}")
        # Pushed before the folder gets its name. After a crash in between, `_branched_before` restores it from the
        # branch.
        finish(building, entry)
        for folder in ("data", "models"):
            shutil.rmtree(building / folder, ignore_errors=True)  # the source's, which DVC's cache keeps
    finish_last(target, entry)
    return recorded_at(target, entry)


def restore_next_state(home: Path, tag: str, folder: Path) -> RestoredState:
    """Clones the project at a tag, and restores into the clone's `state` what that generation left to the next one.

    Raises:
      LineageError: the tag is unknown, or its data is neither in the cache nor on the remote.
    """
    entry = entry_at(home, tag)
    # paths of outs only: after a name such as state/champion.dvc, DVC ignores the rest
    needed = (CHALLENGER_DIR, WINDOW_DIR, CHAMPION_DIR) if entry.kind == "decision" else STATE_DIRS
    checkout_generation(home, tag, folder, needed)
    if missing := [out for out in needed if not (folder / out / MANIFEST_FILE).exists()]:
        dvc(folder, "pull", "--quiet", *missing)
    # The commit of a decision has the state that its stages began with; other commits have the next state already.
    if entry.kind == "decision":
        roll_forward(folder, entry)
    commit = git(folder, "rev-parse", "HEAD").strip()
    return RestoredState(entry, Source(tag=tag, commit=commit, line=line_digest(entry)), current_generation(folder))


def _check_older(head: LedgerEntry, tag: str) -> int:
    """Number of `tag`, which must be a generation of the lineage older than its head."""
    parsed, newest = parse_tag(tag), generation_tag(head.lineage, head.generation)
    if parsed is None:
        raise LineageError(f"{tag!r} is not a tag of a generation; name one such as {newest}")
    lineage, number = parsed
    if lineage != head.lineage:
        raise LineageError(
            f"{tag} belongs to lineage {lineage!r}, not to {head.lineage!r}; to start a lineage there: "
            f"`zero branch {lineage} {tag} NEW`"
        )
    if number == head.generation:
        raise LineageError(f"{tag} is the head of {head.lineage}; there is nothing to roll back")
    if number > head.generation:
        raise LineageError(f"{tag} is newer than the head of {head.lineage}, {newest}; name an older generation")
    return number


def _write_record(
    folder: Path,
    kind: Literal["rollback", "branch"],
    lineage: str,
    number: int,
    restored: RestoredState,
    previous: LedgerEntry | None,
    text: str,
) -> LedgerEntry:
    """Writes number, attestation and ledger entry of a commit whose state is in place already."""
    remove_stage_files(folder)
    current = restored.next_generation.model_copy(update={"lineage": lineage, "number": number})
    write_manifest(folder, current, GENERATION_FILE)
    source = restored.source
    inputs = [Resource(name=SOURCE, digest={"sha256": restored.entry.provenance}, annotations={"tag": source.tag})]
    if previous is not None:
        inputs.append(Resource(name=PARENT, digest={"sha256": previous.provenance}))
    generation = in_progress(folder)
    attestation = state_attestation(generation, kind, lineage, number, tuple(inputs))
    entry = LedgerEntry(
        lineage=lineage,
        generation=number,
        kind=kind,
        decision=None,
        source=source,
        champion=restored.entry.champion,
        champion_generation=restored.entry.champion_generation,
        trainee=restored.entry.trainee,
        params_digest=params_digest(generation.read_params()),
        lock_digest=sha256_bytes(b""),
        provenance=write_attestation(folder, attestation),
        previous=last_line_digest(text),
    )
    write_atomic(folder / LEDGER_FILE, append_entry(text, entry).encode())
    return entry


def rewrite_window_manifest(folder: Path, lineage: str, restored: RestoredState) -> None:
    """Writes the new lineage's manifest of the source's window; the games are the same."""
    window = read_manifest(folder / OLD_WINDOW_DIR, Window)
    origin = Origin(
        stage="branch",
        lineage=lineage,
        generation=restored.entry.generation,
        seed=window.origin.seed,
        params_digest=window.origin.params_digest,
        engine=window.origin.engine,
        inputs={restored.source.tag: sha256_file(folder / OLD_WINDOW_DIR / MANIFEST_FILE)},
    )
    write_manifest(folder / OLD_WINDOW_DIR, window.model_copy(update={"origin": origin}))
    dvc(folder, "add", "--quiet", OLD_WINDOW_DIR)


def _branched_before(home: Path, tag: str, new: str) -> Recorded | None:
    """The branch, if an earlier call that was killed, or is repeated, has made it; None if the name is free.

    Raises:
      LineageError: another lineage has the name.
    """
    target = workspace_dir(home, new)
    taken = git(home, "for-each-ref", f"refs/heads/lineage/{new}").strip()
    if not target.exists() and not taken:
        tags = git(home, "tag", "--list", f"{new}/gen-*").split()
        if tags:
            raise LineageError(f"tag {tags[0]} belongs to an earlier lineage {new!r}; choose another name")
        return None
    if target.exists():
        ledger = read_ledger(target) if (target / LEDGER_FILE).exists() else ()
    else:
        ledger = parse_ledger(git(home, "show", f"lineage/{new}:{LEDGER_FILE}"), LEDGER_FILE)
    # The branch has no generations of its own yet; otherwise it is a lineage that is in use.
    if not (len(ledger) == 1 and ledger[0].source is not None and ledger[0].source.tag == tag):
        raise LineageError(f"lineage {new!r} exists already; choose another name")
    if not target.exists():
        restore_lineage(home, new)
    finish_last(target, ledger[0])
    return recorded_at(target, ledger[0])
