"""Checks of what git holds: tags, ledger, dvc.lock, parameters, code, pinned packages."""

import hashlib
from collections.abc import Iterator
from pathlib import PurePosixPath

from zero.audit.findings import Mark, Mismatch, differs, restored
from zero.config.params import PARAMS_FILE, STAGE_SECTIONS, params_digest
from zero.record.generation import Generation
from zero.record.history import Line, LineageHistory, Repository, read_lines
from zero.record.ledger import FIRST_KINDS, FIRST_PREVIOUS, generation_tag
from zero.record.objects import Change
from zero.record.packages import differing_versions
from zero.storage.files import sha256_bytes
from zero.storage.layout import (
    CONSTRAINTS_FILE,
    DVC_LOCK,
    GENERATION_FILE,
    KEY_FILE,
    LEDGER_FILE,
    PIPELINE_FILE,
    PROVENANCE_FILE,
    STATE_DIRS,
)
from zero.storage.manifests import LedgerEntry
from zero.storage.vcs import git

RECORDED_FILES = (
    *(f"{out}.dvc" for out in STATE_DIRS),
    *(GENERATION_FILE, DVC_LOCK, LEDGER_FILE, PROVENANCE_FILE, KEY_FILE),
)
"""Files that the commit of a generation writes or removes, in addition to those in `RESULT_FOLDERS`.

All other files are as in its parent: the stages ran on that one, and only its hash is signed.
"""
RESULT_FOLDERS = ("metrics", "plots")
FIRST_FILES = (PARAMS_FILE, ".dvc/config", ".dvc/.gitignore")
"""Files that only the first commit of a lineage writes."""
RESTORE_LEDGER = f"restore {LEDGER_FILE} from the last tag at which `zero audit` passes"
HISTORY_REMEDY = "find the recorded commit with `git reflog`, and reset the branch to it"


def check_tag(generation: Generation) -> Iterator[Mismatch]:
    """The tag is at the commit that wrote the generation's entry, in the project and in the workspace."""
    history, tag, expected = generation.history, generation.tag, generation.commit
    for repository, name in ((history.project, "project"), (history.workspace, "workspace")):
        if repository is None:
            continue
        found = repository.tags.get(tag)
        if expected is None:
            yield from differs(
                f"{tag} in the {name}", "tag without an entry in the ledger", found, None, HISTORY_REMEDY
            )
            continue
        if found is None and (repository.head is None or _is_behind(history, repository)):
            continue  # this clone lacks the lineage, or its newest generations
        if found is None and _is_unpushed(history, expected):
            remedy = f"`zero prepare {history.lineage}`"
            yield Mismatch(f"{tag} in the {name}", "not pushed yet", "no tag", expected, remedy, Mark.MISSING)
            continue
        what = "tag at another commit" if found in history.commits or found is None else "tag at a foreign commit"
        yield from differs(
            f"{tag} in the {name}",
            "no tag" if found is None else what,
            found,
            expected,
            f"`git -C {repository.folder} tag -f {tag} {expected[:12]}`",
        )


def _is_behind(history: LineageHistory, repository: Repository) -> bool:
    """True for a workspace that lags behind another one."""
    return repository is history.workspace and repository.head != history.head


def _is_unpushed(history: LineageHistory, commit: str) -> bool:
    """True if the project lacks a commit of the workspace, because recording it was interrupted."""
    if not history.agreed or history.project.head is None:
        return False
    unpushed = f"{history.project.head}..{history.head}"
    return commit in git(history.reader.repository, "rev-list", "--first-parent", unpushed).split()


def check_branch(history: LineageHistory) -> Iterator[Mismatch]:
    """Project and workspace share one history: the project's branch is the workspace's, or an ancestor of it."""
    branch = f"lineage/{history.lineage}"
    if history.lost:
        remedy = f"fetch it, or `git -C {history.project.folder} branch {branch} {history.head[:12]}`"
        yield Mismatch(branch, "branch", "only its tags", history.head, remedy, mark=Mark.MISSING)
    if not history.agreed and history.project.head is not None:
        yield Mismatch(
            f"{branch} in the project",
            "history rewritten: it is not an ancestor of the workspace's",
            history.project.head,
            history.head,
            HISTORY_REMEDY,
        )


def check_ledger(history: LineageHistory) -> Iterator[tuple[int, Mismatch]]:
    """The newest ledger is a chain and holds every entry that was ever committed, unchanged.

    Yields:
      Number of the generation, and the mismatch.
    """
    lines = history.lines
    yield from _chain(lines, history.lineage)
    reported: set[tuple[int, str]] = set()
    for version in (*history.versions[:-1], *history.tagged):
        for number, mismatch in _kept(version.lines, lines, f"{LEDGER_FILE} at {version.commit[:12]}"):
            if (number, mismatch.what) not in reported:
                yield number, mismatch
            reported.add((number, mismatch.what))
    committed = b"".join(line.text for line in lines)
    draft, workspace = history.draft, history.workspace
    if draft is None or workspace is None or draft == committed or _is_committed_now(history, draft, committed):
        return
    remedy = f"`git -C {workspace.folder} checkout HEAD -- {LEDGER_FILE}`"
    digests = sha256_bytes(draft), sha256_bytes(committed)
    edited = Mismatch(LEDGER_FILE, "file in the workspace edited", *digests, remedy)
    number = lines[-1].entry.generation if lines and lines[-1].entry else 0
    yield number, _unrecorded(history, draft) or edited


def check_lock(generation: Generation) -> Iterator[Mismatch]:
    """dvc.lock has the digest in the ledger and the attestation; the small files that it names have their MD5."""
    entry = generation.entry
    if entry is None:
        return
    remedy = restored(generation.tag, DVC_LOCK)
    yield from differs(DVC_LOCK, "SHA-256 against the ledger", generation.lock_digest, entry.lock_digest, remedy)
    if generation.attestation:
        signed = generation.attestation.internal.lock
        yield from differs(DVC_LOCK, "SHA-256 against the attestation", generation.lock_digest, signed, remedy)
    for out in generation.outs.values():
        if not out.cached:
            content = generation.file(out.path)
            found = hashlib.md5(content, usedforsecurity=False).hexdigest() if content is not None else None
            yield from differs(out.path, "MD5 against dvc.lock", found, out.md5, restored(generation.tag, out.path))


def check_params(generation: Generation) -> Iterator[Mismatch]:
    """params.yaml has the digest in the ledger, the attestation and the manifest of every stage."""
    params, entry = generation.params, generation.entry
    remedy = restored(generation.tag, PARAMS_FILE)
    if params is None or entry is None:
        if entry is not None:
            yield Mismatch(PARAMS_FILE, "parameters", "none that this version can read", "parameters", remedy)
        return
    digest = params_digest(params)
    yield from differs(PARAMS_FILE, "digest against the ledger", digest, entry.params_digest, remedy)
    if generation.attestation:
        signed, found = generation.attestation.external.parameters, params.model_dump(mode="json")
        for name in sorted(signed.keys() | found.keys()):
            what = f"{name} against the attestation"
            yield from differs(PARAMS_FILE, what, found.get(name), signed.get(name), remedy)
    for stage, origin in generation.origins.items():
        if stage in STAGE_SECTIONS:
            what, digest = f"digest of {stage}'s parameters against its manifest", params_digest(params, stage)
            yield from differs(PARAMS_FILE, what, digest, origin.params_digest, remedy)


def check_code(generation: Generation) -> Iterator[Mismatch]:
    """The stages ran on the sources of the record.

    The commit of the generation changed nothing but its results. At its parent, the sources have the code digests in
    manifests and attestation.
    """
    if generation.commit is None or generation.parent is None:
        return
    what = "changed by the commit that recorded the generation"
    changes = generation.history.reader.changes(generation.parent, generation.commit)
    if changes is None:
        remedy = "fetch it: `git fetch --unshallow`"
        yield Mismatch(f"parent of {generation.tag}", "commit", "nothing", generation.parent, remedy, Mark.MISSING)
        return
    for path, change in changes.items():
        if not _is_of_the_record(generation, path, change):
            remedy = f"see `git diff {generation.parent[:12]} {generation.commit[:12]} -- {path}`"
            yield from differs(path, what, change.new, change.old, remedy)
    signed = generation.attestation.internal.engine if generation.attestation else {}
    for stage, found in generation.code_digests.items():
        remedy = f"see `git diff {generation.tag} -- zero` in the workspace, and `zero reproduce {generation.tag}`"
        where = f"sources of {stage} at {generation.parent[:12]}"
        if stage in generation.origins:
            yield from differs(
                where, "code digest against the manifest", found, generation.origins[stage].engine, remedy
            )
        if stage in signed:
            yield from differs(where, "code digest against the attestation", found, signed[stage], remedy)


def check_constraints(generation: Generation) -> Iterator[Mismatch]:
    """constraints.txt has the digest in the attestation, and pins the versions in the signed execution profile."""
    if generation.attestation is None or generation.commit is None:
        return
    content = generation.file(CONSTRAINTS_FILE)
    signed = generation.attestation.dependencies.get(CONSTRAINTS_FILE)
    digests = sha256_bytes(content) if content is not None else None, signed.sha256 if signed else None
    remedy = restored(generation.tag, CONSTRAINTS_FILE)
    yield from differs(CONSTRAINTS_FILE, "SHA-256 against the attestation", *digests, remedy)
    text, profile = (content or b"").decode(errors="replace"), generation.attestation.internal.profile
    remedy = f"{generation.tag} ran with other packages than it pins; take what follows from another generation"
    for name, (found, pinned) in differing_versions(text, profile).items():
        yield from differs(CONSTRAINTS_FILE, f"{name} against the signed execution profile", pinned, found, remedy)


def _is_of_the_record(generation: Generation, path: str, change: Change) -> bool:
    """True if recording a generation can make this change. Other checks compare the content of what it writes."""
    place, kind = PurePosixPath(path), generation.entry.kind if generation.entry else ""
    if not change.new and (path in RECORDED_FILES or place.parts[0] in RESULT_FOLDERS):
        return True  # a commit without stages removes the results of the one before
    if not change.new.startswith("100644 "):
        return False  # a link, a submodule or a program
    if path in RECORDED_FILES:
        return True
    if kind in FIRST_KINDS:
        # DVC adds the folder of the dataset to the list beside it.
        dataset = generation.params.dataset if generation.params else ""
        if path in FIRST_FILES or (dataset and place == PurePosixPath(dataset).parent / ".gitignore"):
            return True
    # The commit takes what lies in these folders. DVC and git would read files of their own there.
    read = place.name.startswith((".dvc", ".git")) or place.suffix == ".dvc" or place.name == PIPELINE_FILE
    is_data = any(place.is_relative_to(out) for out in STATE_DIRS)  # of DVC, not of git
    return place.parts[0] in (*RESULT_FOLDERS, "state") and not (read or is_data)


def _is_committed_now(history: LineageHistory, draft: bytes, committed: bytes) -> bool:
    """True if a running command has committed the further entries of a draft after the history was read."""
    now = history.reader.read(f"refs/heads/lineage/{history.lineage}:{LEDGER_FILE}")
    return now is not None and draft.startswith(committed) and now.startswith(draft)


def _unrecorded(history: LineageHistory, draft: bytes) -> Mismatch | None:
    """The finding for a ledger with one more entry, whose commit is still to be made; None for any other ledger.

    A command that runs at this moment, or was killed, leaves such a ledger.
    """
    lines = read_lines(draft)
    entry = lines[-1].entry if lines else None
    if entry is None or lines[:-1] != history.lines or any(_chain(lines, history.lineage)):
        return None
    tag = generation_tag(history.lineage, entry.generation)
    again = f"rollback {history.lineage} {entry.source.tag}" if entry.source else f"advance {history.lineage}"
    what = f"entry of {tag} in the workspace"
    return Mismatch(LEDGER_FILE, what, "not committed yet", "", f"`zero {again}`", Mark.MISSING)


def _chain(lines: tuple[Line, ...], lineage: str) -> Iterator[tuple[int, Mismatch]]:
    previous, expected = FIRST_PREVIOUS, None
    for index, line in enumerate(lines):
        where, entry = f"{LEDGER_FILE}, line {index + 1}", line.entry
        if entry is None:
            yield (
                expected or 0,
                Mismatch(where, "not an entry", line.text.decode(errors="replace")[:80], "", RESTORE_LEDGER),
            )
            previous, expected = line.digest, (expected or 0) + 1
            continue
        for what, found, wanted in (
            ("SHA-256 of the line before", entry.previous, previous),
            ("lineage", entry.lineage, lineage),
            ("generation", entry.generation, entry.generation if expected is None else expected),
            ("kind of the entry", entry.kind in FIRST_KINDS, index == 0),
        ):
            for mismatch in differs(where, what, found, wanted, RESTORE_LEDGER):
                yield entry.generation, mismatch
        previous, expected = line.digest, entry.generation + 1


def _kept(old: tuple[Line, ...], new: tuple[Line, ...], where: str) -> Iterator[tuple[int, Mismatch]]:
    """The lines of an older version are in the newest one, unchanged and in their order."""
    places = {line.text: index for index, line in enumerate(new)}
    numbers = {line.entry.generation: line for line in new if line.entry}
    order = [places[line.text] for line in old if line.text in places]
    if order != sorted(order):
        moved = next(line for line, a, b in zip(old, order, sorted(order), strict=False) if a != b)
        number = moved.entry.generation if moved.entry else 0
        yield number, Mismatch(where, "entries reordered", f"{order}", f"{sorted(order)}", RESTORE_LEDGER)
    for line in old:
        if line.text in places or line.entry is None:
            continue
        now = numbers.get(line.entry.generation)
        if now is None or now.entry is None:
            yield line.entry.generation, Mismatch(where, "entry removed", "nothing", line.digest, RESTORE_LEDGER)
        else:
            fields = LedgerEntry.model_fields
            changed = [name for name in fields if getattr(line.entry, name) != getattr(now.entry, name)]
            what = f"entry edited ({', '.join(changed) or 'formatting'})"
            yield line.entry.generation, Mismatch(where, what, now.digest, line.digest, RESTORE_LEDGER)
