"""Stage 6, the registry: a finished generation becomes part of the record, and the next one is set up.

Outside DVC's graph. `advance` = ledger line and provenance, commit, tag, `dvc push`, `git push`, state rolled forward;
each step finds out by itself whether it was done, so that after a crash it is enough to call it again.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import yaml

from zero.config.params import PARAMS_FILE, load_params, overlap_of, params_digest
from zero.errors import LineageError, ZeroError
from zero.lineage.recovery import clear_debris
from zero.lineage.workspace import check_workspace, committed_ledger, current_generation
from zero.record.attestation import check_key, decision_statement, write_statement
from zero.record.costs import notes_ref, write_note
from zero.record.ledger import append_entry, entry_of, generation_tag, last_line_digest, parse_ledger
from zero.record.metrics import SelfplayMetrics, following_threshold
from zero.stages.costs import generation_costs
from zero.stages.selfplay import player_of
from zero.storage.files import checked_path, link_or_copy, read_manifest, sha256_file, write_atomic, write_manifest
from zero.storage.layout import (
    CHALLENGER_DIR,
    CHAMPION_DIR,
    DVC_LOCK_FILE,
    GATING_METRICS,
    GENERATION_FILE,
    LEDGER_FILE,
    PLAYER_DIR,
    REPLAY_DIR,
    SELFPLAY_METRICS,
    STATE_OUTS,
    TRAINEE_DIR,
    WINDOW_DIR,
)
from zero.storage.manifests import (
    MANIFEST_FILE,
    Champion,
    Checkpoint,
    GenerationId,
    LedgerEntry,
    PromotionDecision,
    Window,
)
from zero.storage.store import open_store
from zero.storage.vcs import dvc, git

UP_TO_DATE = "Data and pipelines are up to date."
"""What `dvc status` says where nothing is left to run."""


log = logging.getLogger(__name__)


class Advanced(NamedTuple):
    """What `advance` recorded."""

    entry: LedgerEntry
    tag: str
    commit: str


def prepare(workspace: Path) -> GenerationId:
    """Checks a workspace, restores what it lacks, and sets up the generation that is next.

    Raises:
      LineageError: it is dirty, diverged, or its state is not what the ledger says.
    """
    check_workspace(workspace)
    check_key(workspace)
    entry = parse_ledger(committed_ledger(workspace), LEDGER_FILE)[-1]
    if not (workspace / GENERATION_FILE).exists():
        git(workspace, "checkout", "HEAD", "--", GENERATION_FILE)
    if current_generation(workspace).number <= entry.generation:
        finish(workspace, entry)
    if not all((workspace / out / "manifest.json").exists() for out in STATE_OUTS):
        dvc(workspace, "checkout", "--quiet", *(f"{out}.dvc" for out in STATE_OUTS))
    _check_state(workspace, entry)
    current = current_generation(workspace)
    if current.player is not None:
        player = player_of(workspace, load_params(workspace), current)
        checked_path(player.champion.weights, player.folder)
    return current


def advance(workspace: Path, number: int | None = None) -> Advanced:
    """Records generation `number` (default: the one the workspace is making) and sets up the next.

    Raises:
      LineageError: that generation is not finished, or is not the next.
    """
    check_workspace(workspace)
    current = current_generation(workspace)
    number = current.number if number is None else number
    ledger = parse_ledger(committed_ledger(workspace), LEDGER_FILE)
    if number > ledger[-1].generation + 1 or number < 0:
        raise LineageError(f"generation {number} of {current.lineage} is not the next; {ledger[-1].generation + 1} is")
    if number == ledger[-1].generation + 1:
        check_key(workspace)
        _commit(workspace, current.lineage, number)
        ledger = parse_ledger(committed_ledger(workspace), LEDGER_FILE)
    entry = entry_of(ledger, number)
    tag = generation_tag(entry.lineage, number)
    if current.number <= ledger[-1].generation:
        finish(workspace, ledger[-1])
    return Advanced(entry, tag, git(workspace, "rev-parse", f"{tag}^{{commit}}").strip())


def roll_forward(workspace: Path, entry: LedgerEntry) -> None:
    """Makes the state at the start of the generation after `entry`. Can be repeated after a crash.

    Raises:
      LineageError: the result is not what the ledger says.
    """
    if entry.kind == "start":
        raise LineageError(
            f"the state of {entry.lineage} is older than its ledger; restore it with `dvc checkout --force`"
        )
    if entry.decision is None:  # a rollback or a branch, whose commit has the state as it is to be
        dvc(workspace, "checkout", "--quiet", "--force", *STATE_OUTS)
        _check_state(workspace, entry)
        restored = current_generation(workspace)
        write_manifest(workspace, restored.model_copy(update={"number": entry.generation + 1}), GENERATION_FILE)
        return
    if not _holds(workspace, entry):
        git(workspace, "checkout", "HEAD", "--", DVC_LOCK_FILE)
        dvc(workspace, "checkout", "--quiet", "--force", CHALLENGER_DIR, WINDOW_DIR)
    if not _holds(workspace, entry):
        raise LineageError(f"{workspace} does not hold the data of generation {entry.generation}; try `dvc pull` there")
    player = _roll_champion(workspace, entry, entry.decision)
    for source, target in ((CHALLENGER_DIR, TRAINEE_DIR), (WINDOW_DIR, REPLAY_DIR)):
        with _replacing(workspace / target) as building:
            for path in sorted((workspace / source).iterdir()):
                link_or_copy(path, building / path.name)
    _check_state(workspace, entry)
    dvc(workspace, "add", "--quiet", *STATE_OUTS)
    recorded = git(workspace, "show", f"{_commit_of_last_entry(workspace)}:{SELFPLAY_METRICS}")
    next_id = GenerationId(
        lineage=entry.lineage,
        number=entry.generation + 1,
        resign_threshold=following_threshold(SelfplayMetrics.model_validate_json(recorded)),
        player=player,
    )
    write_manifest(workspace, next_id, GENERATION_FILE)


def _roll_champion(workspace: Path, entry: LedgerEntry, decision: PromotionDecision) -> str | None:
    """Sets up `state/champion`; the weights of who plays the next games, where self-play overlaps.

    Whether it does is for the parameters that were recorded: a commit on top of them is the next generation's.
    """
    overlap = overlap_of(git(workspace, "show", f"{_commit_of_last_entry(workspace)}:{PARAMS_FILE}"))
    promoted = entry.champion_generation == entry.generation
    alone = (workspace / CHAMPION_DIR / "manifest.json").exists() and not (workspace / PLAYER_DIR).exists()
    if alone and not promoted and not overlap:
        return None
    before = None if promoted and not overlap else _champion_before(workspace, entry, decision)
    if promoted:
        challenger = read_manifest(workspace / CHALLENGER_DIR, Checkpoint)
        champion = Champion(generation=entry.generation, network=challenger.network, weights=challenger.weights)
    else:
        assert before is not None
        champion = before
    with _replacing(workspace / CHAMPION_DIR) as building:
        _put_champion(champion, workspace / (CHALLENGER_DIR if promoted else CHAMPION_DIR), building)
        if overlap and before is not None:
            _put_champion(before, workspace / CHAMPION_DIR, building / Path(PLAYER_DIR).name)
    return decision.champion if overlap else None


def _champion_before(workspace: Path, entry: LedgerEntry, decision: PromotionDecision) -> Champion:
    """The champion that the generation began with; put back where a killed call has replaced it."""
    if (workspace / CHAMPION_DIR / "manifest.json").exists():
        champion = read_manifest(workspace / CHAMPION_DIR, Champion)
        if champion.weights.sha256 == decision.champion and champion.generation < entry.generation:
            return champion
    git(workspace, "checkout", _commit_of_last_entry(workspace), "--", f"{CHAMPION_DIR}.dvc")
    dvc(workspace, "checkout", "--quiet", "--force", CHAMPION_DIR)
    return read_manifest(workspace / CHAMPION_DIR, Champion)


def _put_champion(champion: Champion, source: Path, target: Path) -> None:
    link_or_copy(checked_path(champion.weights, source), target / champion.weights.path)
    write_manifest(target, champion)


def finish(workspace: Path, entry: LedgerEntry) -> None:
    """Does what follows the commit of the last ledger line, up to the setting up of the next generation."""
    tag = generation_tag(entry.lineage, entry.generation)
    clear_debris(workspace, entry.lineage)
    if not git(workspace, "tag", "--list", tag).strip():
        git(workspace, "tag", tag, _commit_of_last_entry(workspace))
    elif git(workspace, "rev-parse", f"{tag}^{{commit}}").strip() != _commit_of_last_entry(workspace):
        raise LineageError(f"tag {tag} is not of this lineage's commit; delete it with `git tag -d {tag}`")
    dvc(workspace, "push", "--quiet")
    refs = [f"lineage/{entry.lineage}", tag, *_note_costs(workspace, entry)]
    git(workspace, "push", "--quiet", "--atomic", "origin", *refs)
    roll_forward(workspace, entry)


def _note_costs(workspace: Path, entry: LedgerEntry) -> list[str]:
    """Notes what a generation cost on its commit; what to push of it. A generation is recorded without it, too."""
    if entry.kind != "decision" or current_generation(workspace).number != entry.generation:
        return []
    try:
        with open_store(workspace) as store:
            costs = generation_costs(workspace, store, entry.generation)
        write_note(workspace, generation_tag(entry.lineage, entry.generation), costs)
    except ZeroError as error:
        log.warning("generation %d: its costs are not noted: %s", entry.generation, error)
        return []
    return [f"+{notes_ref(entry.lineage)}"]


def _commit(workspace: Path, lineage: str, number: int) -> None:
    """Checks that a generation is finished and commits it with its ledger line and provenance."""
    if current_generation(workspace).number != number or not (workspace / GATING_METRICS).exists():
        raise LineageError(f"generation {number} of {lineage} is not finished; run `dvc repro` in {workspace}")
    decision = read_manifest(workspace, PromotionDecision, GATING_METRICS)
    if decision.generation != number or dvc(workspace, "status").strip() != UP_TO_DATE:
        raise LineageError(f"generation {number} of {lineage} is not finished; run `dvc repro` in {workspace}")
    text = committed_ledger(workspace)
    before = parse_ledger(text, LEDGER_FILE)[-1]
    if decision.champion != before.champion:
        raise LineageError(
            f"the match of generation {number} was against {decision.champion[:12]}, but the champion of {lineage} is "
            f"{before.champion[:12]}; restore it with `git checkout HEAD -- state dvc.lock && dvc checkout --force`"
        )
    params = load_params(workspace)
    challenger = read_manifest(workspace / CHALLENGER_DIR, Checkpoint)
    entry = LedgerEntry(
        lineage=lineage,
        generation=number,
        kind="decision",
        decision=decision,
        champion=decision.challenger if decision.promoted else before.champion,
        champion_generation=number if decision.promoted else before.champion_generation,
        trainee=challenger.trainee.sha256,
        params_digest=params_digest(params),
        lock_digest=sha256_file(workspace / DVC_LOCK_FILE),
        source=None,
        provenance=write_statement(workspace, decision_statement(workspace, decision, before)),
        previous=last_line_digest(text),
    )
    write_atomic(workspace / LEDGER_FILE, append_entry(text, entry).encode())
    word = "promoted" if decision.promoted else "refused"
    commit_record(workspace, f"{lineage}: generation {number}, challenger {word} ({decision.match.score:.1%})")


def commit_record(workspace: Path, message: str) -> None:
    """Commits all that a ledger line belongs to."""
    git(workspace, "add", "--all")
    git(workspace, "commit", "--quiet", "-m", message)


def _check_state(workspace: Path, entry: LedgerEntry) -> None:
    """Checks that champion and trainee are what the last line of the ledger left, the trainee in all it consists of."""
    champion = read_manifest(workspace / CHAMPION_DIR, Champion)
    trainee = read_manifest(workspace / TRAINEE_DIR, Checkpoint)
    checked_path(champion.weights, workspace / CHAMPION_DIR)
    files = {checked_path(ref, workspace / TRAINEE_DIR) for ref in trainee.files}
    files.add(workspace / TRAINEE_DIR / MANIFEST_FILE)
    for name, found, wanted, by in (
        ("champion", champion.weights.sha256, entry.champion, "the ledger"),
        ("trainee", trainee.trainee.sha256, entry.trainee, "the ledger"),
        ("trainee", _dvc_md5(files), _md5_left(workspace, entry), "the record"),
    ):
        if found != wanted:
            raise LineageError(
                f"the {name} in {workspace}/state is {found[:12]}, {by} says {wanted[:12]}; "
                "restore it with `git checkout HEAD -- state dvc.lock && dvc checkout --force`"
            )


def _md5_left(workspace: Path, entry: LedgerEntry) -> str:
    """What DVC calls the trainee that the last line left: its challenger, or where no stage ran its own trainee."""
    name, out = (DVC_LOCK_FILE, CHALLENGER_DIR) if entry.decision else (f"{TRAINEE_DIR}.dvc", Path(TRAINEE_DIR).name)
    tree = yaml.load(git(workspace, "show", f"{_commit_of_last_entry(workspace)}:{name}"), yaml.CSafeLoader)
    outs = (each for stage in tree.get("stages", {"": tree}).values() for each in stage.get("outs", ()))
    return next((str(each["md5"]) for each in outs if each["path"] == out), "nothing")


def _dvc_md5(files: Iterable[Path]) -> str:
    """What DVC calls a folder of those files: the MD5 of its list of them."""
    named = sorted((path.name, hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()) for path in files)
    listing = json.dumps([{"md5": md5, "relpath": name} for name, md5 in named], sort_keys=True)
    return hashlib.md5(listing.encode(), usedforsecurity=False).hexdigest() + ".dir"


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A folder to fill, which then takes the place of `target`; after a crash a second call completes it."""
    building = target.with_name(f".{target.name}.next")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    yield building
    shutil.rmtree(target, ignore_errors=True)
    building.rename(target)


def _holds(workspace: Path, entry: LedgerEntry) -> bool:
    """True where the challenger and the window in the workspace are those of a recorded generation."""
    if not all((workspace / out / "manifest.json").exists() for out in (CHALLENGER_DIR, WINDOW_DIR)):
        return False
    challenger = read_manifest(workspace / CHALLENGER_DIR, Checkpoint)
    window = read_manifest(workspace / WINDOW_DIR, Window)
    return challenger.trainee.sha256 == entry.trainee and window.origin.generation == entry.generation


def _commit_of_last_entry(workspace: Path) -> str:
    """The commit that wrote the last line of the ledger."""
    return git(workspace, "log", "-1", "--format=%H", "--", LEDGER_FILE).strip()
