"""The registry, which records a finished generation and sets up the next one.

It runs outside DVC's graph. `advance` signs the attestation, appends the ledger entry, commits, tags, pushes with DVC
and git, and rolls the state forward. Each step finds out by itself whether it was done: after a crash, call it again.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from zero.config.params import params_digest
from zero.config.settings import home_dir
from zero.errors import LineageError, StorageError, ZeroError
from zero.lineage.recovery import recover_from_crash, remove_drafts
from zero.lineage.workspace import GENERATED, check_workspace, committed_ledger, current_generation
from zero.record.attestation import check_key, decision_attestation, write_attestation
from zero.record.costs import notes_ref, read_note, write_note
from zero.record.generation import Generation, in_progress, required
from zero.record.history import Line
from zero.record.ledger import append_entry, entry_of, generation_tag, last_line_digest
from zero.record.lineages import data_cache
from zero.record.metrics import following_threshold
from zero.record.objects import CommittedFiles, GitReader
from zero.record.packages import differing_versions, installed_versions
from zero.record.texts import decision_word
from zero.stages.costs import generation_costs
from zero.stages.inputs import read_inputs
from zero.storage.files import canonical_line, checked_path, link_or_copy, write_atomic, write_manifest
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    CONSTRAINTS_FILE,
    DVC_LOCK,
    GATING_METRICS,
    GENERATION_FILE,
    LEDGER_FILE,
    OLD_WINDOW_DIR,
    PIPELINE_FILE,
    PLAYER_DIR,
    RESTORE_STATE,
    SELFPLAY_METRICS,
    STATE_DIRS,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import MANIFEST_FILE, Champion, GenerationId, LedgerEntry, PromotionDecision
from zero.storage.store import open_store
from zero.storage.vcs import WITHOUT_USERS_IGNORES, dvc, git

log = logging.getLogger(__name__)


class Recorded(NamedTuple):
    """A recorded generation, with its tag and commit."""

    entry: LedgerEntry
    tag: str
    commit: str


def prepare(workspace: Path) -> GenerationId:
    """Checks a workspace, restores what it lacks, and sets up the next generation.

    Raises:
      LineageError: the workspace is dirty or has diverged, or its state is not the one in the ledger.
    """
    check_workspace(workspace)
    check_key(workspace)
    check_packages(workspace)
    entry = committed_ledger(workspace)[1][-1]
    if not (workspace / GENERATION_FILE).exists():
        git(workspace, "checkout", "HEAD", "--", GENERATION_FILE)
    finish_last(workspace, entry)
    if not all((workspace / out / MANIFEST_FILE).exists() for out in STATE_DIRS):
        dvc(workspace, "checkout", "--quiet", *(f"{out}.dvc" for out in STATE_DIRS))
    _check_state(workspace, entry)
    current = current_generation(workspace)
    if current.player is not None:
        inputs = read_inputs(workspace)  # `_check_state` checks the champion's weights, but not the player's
        checked_path(inputs.player.weights, inputs.player_dir)
    return current


def check_packages(workspace: Path) -> None:
    """Checks that the packages that compute are those of the workspace's `constraints.txt`, which is attested.

    Raises:
      LineageError: another version is installed.
    """
    text = (workspace / CONSTRAINTS_FILE).read_text(errors="replace")
    for name, (found, pinned) in differing_versions(text, installed_versions()).items():
        raise LineageError(
            f"{workspace / CONSTRAINTS_FILE} pins {name} {pinned}, but {found} is installed; take the project's newer "
            f"code and pins: `cd {workspace} && git fetch && git merge --no-ff origin/main`, or use an environment "
            "with the lineage's packages"
        )


def advance(workspace: Path, number: int | None = None) -> Recorded:
    """Records generation `number` (default: the one in progress) and sets up the next.

    Raises:
      LineageError: that generation is not finished, or is not the next one.
    """
    check_workspace(workspace)
    current = current_generation(workspace)
    number = current.number if number is None else number
    _, ledger = committed_ledger(workspace)
    if number > ledger[-1].generation + 1 or number < 0:
        raise LineageError(
            f"generation {number} of {current.lineage} is not the next one, which is {ledger[-1].generation + 1}; "
            "record that one first"
        )
    if number == ledger[-1].generation + 1:
        check_key(workspace)
        _commit(workspace, current.lineage, number)
        _, ledger = committed_ledger(workspace)
    finish_last(workspace, ledger[-1])
    return recorded_at(workspace, entry_of(ledger, number))


def recorded_at(workspace: Path, entry: LedgerEntry) -> Recorded:
    """The generation of a ledger entry that `finish` has tagged."""
    tag = generation_tag(entry.lineage, entry.generation)
    return Recorded(entry, tag, git(workspace, "rev-parse", f"refs/tags/{tag}^{{commit}}").strip())


def roll_forward(workspace: Path, entry: LedgerEntry) -> None:
    """Sets up the state of the generation after `entry`. Can be repeated after a crash.

    Raises:
      LineageError: the result is not the state in the ledger.
    """
    if entry.decision is None:  # the commit of a rollback or a branch holds the state of the next generation already
        dvc(workspace, "checkout", "--quiet", "--force", *STATE_DIRS)
        _check_state(workspace, entry)
        restored = current_generation(workspace)
        next_id = restored.model_copy(update={"number": entry.generation + 1})
        write_manifest(workspace, next_id, GENERATION_FILE)
        return
    if not _holds(workspace, entry):
        git(workspace, "checkout", "HEAD", "--", DVC_LOCK)
        dvc(workspace, "checkout", "--quiet", "--force", CHALLENGER_DIR, WINDOW_DIR)
    if not _holds(workspace, entry):
        raise LineageError(f"{workspace} lacks the data of generation {entry.generation}; run `dvc pull` there")
    with _last_recorded(workspace, entry) as recorded:
        metrics = required(recorded.selfplay_metrics, f"{SELFPLAY_METRICS} of {recorded.tag}")
        overlap = recorded.overlap  # as recorded: a newer params.yaml is for the next generation
    player = _roll_champion(workspace, entry, entry.decision, overlap)
    for source, target in ((CHALLENGER_DIR, TRAINEE_DIR), (WINDOW_DIR, OLD_WINDOW_DIR)):
        with _replacing(workspace / target) as building:
            for path in sorted((workspace / source).iterdir()):
                link_or_copy(path, building / path.name)  # a window can have gigabytes
    _check_state(workspace, entry)
    # The number comes last and marks the state as complete. After a crash before it, all of this is repeated.
    dvc(workspace, "add", "--quiet", *STATE_DIRS)
    remove_drafts(workspace)
    next_id = GenerationId(
        lineage=entry.lineage, number=entry.generation + 1, resign_threshold=following_threshold(metrics), player=player
    )
    write_manifest(workspace, next_id, GENERATION_FILE)


def _roll_champion(workspace: Path, entry: LedgerEntry, decision: PromotionDecision, overlap: bool) -> str | None:
    """Sets up `state/champion`. If self-play overlaps, returns the digest of the weights that play the next games."""
    promoted = entry.champion_generation == entry.generation
    alone = (workspace / CHAMPION_DIR / MANIFEST_FILE).exists() and not (workspace / PLAYER_DIR).exists()
    if alone and not promoted and not overlap:
        return None
    previous = None if promoted and not overlap else _previous_champion(workspace, entry, decision)
    if promoted:
        challenger = required(in_progress(workspace).challenger, workspace / CHALLENGER_DIR)
        champion = Champion(generation=entry.generation, network=challenger.network, weights=challenger.weights)
    else:
        assert previous is not None
        champion = previous
    with _replacing(workspace / CHAMPION_DIR) as building:
        _put_champion(champion, workspace / (CHALLENGER_DIR if promoted else CHAMPION_DIR), building)
        if overlap and previous is not None:
            _put_champion(previous, workspace / CHAMPION_DIR, building / Path(PLAYER_DIR).name)
    return decision.champion if overlap else None


def _previous_champion(workspace: Path, entry: LedgerEntry, decision: PromotionDecision) -> Champion:
    """The champion that the generation started with. Restored if a call that was killed has replaced it."""
    champion = in_progress(workspace).champion
    if champion and champion.weights.sha256 == decision.champion and champion.generation < entry.generation:
        with suppress(StorageError):  # a call that was killed while it removed or restored the folder left a part of it
            checked_path(champion.weights, workspace / CHAMPION_DIR)
            return champion
    git(workspace, "checkout", _commit_of_last_entry(workspace), "--", f"{CHAMPION_DIR}.dvc")
    dvc(workspace, "checkout", "--quiet", "--force", CHAMPION_DIR)
    return required(in_progress(workspace).champion, workspace / CHAMPION_DIR)


def _put_champion(champion: Champion, source: Path, target: Path) -> None:
    # The manifest follows its file: a folder with a manifest is complete.
    link_or_copy(checked_path(champion.weights, source), target / champion.weights.path)
    write_manifest(target, champion)


def finish_last(workspace: Path, last: LedgerEntry) -> None:
    """Calls `finish` for the last ledger entry, unless an earlier call has finished it."""
    if current_generation(workspace).number <= last.generation:
        finish(workspace, last)


def finish(workspace: Path, entry: LedgerEntry) -> None:
    """Does what follows the commit of the last ledger entry: tag, pushes, the state of the next generation."""
    tag = generation_tag(entry.lineage, entry.generation)
    recover_from_crash(workspace, entry.lineage)
    if not git(workspace, "tag", "--list", tag).strip():
        git(workspace, "tag", tag, _commit_of_last_entry(workspace))
    elif git(workspace, "rev-parse", f"refs/tags/{tag}^{{commit}}").strip() != _commit_of_last_entry(workspace):
        raise LineageError(f"tag {tag} is not at the commit of its ledger entry; delete it with `git tag -d {tag}`")
    # The data before the refs: whoever sees the tag can fetch what it names.
    dvc(workspace, "push", "--quiet")
    refs = [f"lineage/{entry.lineage}", tag, *_note_costs(workspace, entry)]
    # All refs or none, so that the project never has a tag without its branch.
    git(workspace, "push", "--quiet", "--atomic", "origin", *refs)
    roll_forward(workspace, entry)


def _note_costs(workspace: Path, entry: LedgerEntry) -> list[str]:
    """Notes the costs of a generation on its commit and returns the refs to push. A failure only costs the note."""
    if entry.kind != "decision" or current_generation(workspace).number != entry.generation:
        return []
    tag = generation_tag(entry.lineage, entry.generation)
    try:
        # An existing note stays: a restored workspace no longer has the costs of its processes.
        if read_note(workspace, entry.lineage, tag) is None:
            with open_store(workspace) as store:
                costs = generation_costs(workspace, store, entry.lineage, entry.generation)
            write_note(workspace, tag, costs)
    except ZeroError as error:
        log.warning("generation %d: cannot note its costs: %s", entry.generation, error)
        return []
    return [f"+{notes_ref(entry.lineage)}"]


def _commit(workspace: Path, lineage: str, number: int) -> None:
    """Commits a finished generation with its ledger entry and attestation."""
    generation = in_progress(workspace)
    text, ledger = committed_ledger(workspace)
    previous = ledger[-1]
    message = f"generation {number} of {lineage} is not finished; run `dvc repro` in {workspace}"
    if previous.kind != "start":
        message += (
            f" (if the last call was killed: generation {previous.generation} is recorded, and `zero track {lineage}` "
            "writes it to MLflow)"
        )
    unfinished = LineageError(message)
    if generation.number != number or not (workspace / GATING_METRICS).exists():
        raise unfinished
    decision = required(generation.decision, workspace / GATING_METRICS)
    # `dvc status` finds stages that ran with other code, parameters or inputs than the commit would contain. Other data
    # of the project, such as a dataset, need not be in the workspace.
    status = dvc(workspace, "status", "--json", PIPELINE_FILE, *(f"{out}.dvc" for out in STATE_DIRS))
    if decision.generation != number or json.loads(status):
        raise unfinished
    if decision.champion != previous.champion:
        raise LineageError(
            f"the match of generation {number} was against {decision.champion[:12]}, but the champion of {lineage} is "
            f"{previous.champion[:12]}; {RESTORE_STATE}"
        )
    entry = LedgerEntry(
        lineage=lineage,
        generation=number,
        kind="decision",
        decision=decision,
        champion=decision.challenger if decision.promoted else previous.champion,
        champion_generation=number if decision.promoted else previous.champion_generation,
        trainee=required(generation.challenger, workspace / CHALLENGER_DIR).continued_weights.sha256,
        params_digest=params_digest(generation.read_params()),
        lock_digest=generation.lock_digest,
        source=None,
        provenance=write_attestation(workspace, decision_attestation(generation, decision, previous)),
        previous=last_line_digest(text),
    )
    # A crash before the commit leaves changed files in record/, which `check_workspace` allows and the next call
    # overwrites.
    write_atomic(workspace / LEDGER_FILE, append_entry(text, entry).encode())
    message = f"{lineage}: generation {number}, challenger {decision_word(entry)} ({decision.match.score:.1%})"
    # Only what a generation changes: another file may have changed after the check of the workspace.
    commit_record(workspace, message, *GENERATED, "record")


def commit_record(workspace: Path, message: str, *paths: str) -> None:
    """Commits a ledger entry with all that belongs to it. `paths`: the changed ones; without any, all."""
    # Somebody may have staged other files. `git commit PATH` would leave an index file if it were killed.
    git(workspace, "reset", "--quiet")
    git(workspace, *WITHOUT_USERS_IGNORES, "add", "--all", "--", *paths)
    git(workspace, "commit", "--quiet", "-m", message)


def _check_state(workspace: Path, entry: LedgerEntry) -> None:
    """Checks that champion and trainee, with all files of the trainee, are those that the last entry left."""
    generation = in_progress(workspace)
    champion = required(generation.champion, workspace / CHAMPION_DIR)
    trainee = required(generation.trainee, workspace / TRAINEE_DIR)
    checked_path(champion.weights, workspace / CHAMPION_DIR)
    files = {checked_path(ref, workspace / TRAINEE_DIR) for ref in trainee.files}
    files.add(workspace / TRAINEE_DIR / MANIFEST_FILE)
    with _last_recorded(workspace, entry) as recorded:
        # After a decision the trainee is a copy of `models/challenger`.
        left = recorded.next_state.md5.get(TRAINEE_DIR, "nothing") if recorded.next_state else "nothing"
    for name, found, wanted, by in (
        ("champion", champion.weights.sha256, entry.champion, "the ledger"),
        ("trainee", trainee.continued_weights.sha256, entry.trainee, "the ledger"),
        ("trainee", _dvc_md5(files), left, "the record"),
    ):
        if found != wanted:
            raise LineageError(
                f"the {name} in {workspace}/state is {found[:12]}, but {by} has {wanted[:12]}; {RESTORE_STATE}"
            )


def _dvc_md5(files: Iterable[Path]) -> str:
    """The MD5 that DVC gives a folder of those files: that of its list of them."""
    named = sorted((path.name, hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()) for path in files)
    # The bytes of DVC's `.dir` objects: sorted by path, sorted keys, the default separators of `json`.
    listing = json.dumps([{"md5": md5, "relpath": name} for name, md5 in named], sort_keys=True)
    return hashlib.md5(listing.encode(), usedforsecurity=False).hexdigest() + ".dir"


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A folder to fill, which then replaces `target`. After a crash, a second call completes the replacement."""
    building = target.with_name(f".{target.name}.next")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    yield building
    # A crash between these two leaves no `target`; the next call fills and renames the folder again.
    shutil.rmtree(target, ignore_errors=True)
    building.rename(target)


def _holds(workspace: Path, entry: LedgerEntry) -> bool:
    """True if the challenger and the window in the workspace are those of a recorded generation."""
    generation = in_progress(workspace)
    if generation.challenger is None or generation.window is None:
        return False
    found = (generation.challenger.continued_weights.sha256, generation.window.origin.generation)
    return found == (entry.trainee, entry.generation)


@contextmanager
def _last_recorded(workspace: Path, entry: LedgerEntry) -> Iterator[Generation]:
    """The generation of the last ledger entry, read from the commit that wrote it."""
    with GitReader(workspace) as reader:
        files = CommittedFiles(reader, data_cache(home_dir(workspace)), _commit_of_last_entry(workspace))
        yield Generation(entry.lineage, entry.generation, files, Line(canonical_line(entry), entry))


def _commit_of_last_entry(workspace: Path) -> str:
    """The commit that wrote the last ledger entry."""
    return git(workspace, "log", "-1", "--format=%H", "--", LEDGER_FILE).strip()
