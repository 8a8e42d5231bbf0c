"""Lineages and their workspaces: making, restoring, checking and locking them.

A lineage `go9` is the branch `lineage/go9` with one tag per generation. Its workspace is a clone of the project in
`<home>/.zero/workspaces/go9`, which runs committed code. Branch and tags are pushed back to the project.
"""

import fcntl
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from zero.config.params import PARAMS_FILE, Params, params_digest, params_text, parse_params
from zero.config.settings import STATE_FOLDER, home_dir
from zero.errors import LineageError
from zero.lineage.imported import copy_dataset, write_first_window
from zero.lineage.recovery import recover_from_crash
from zero.players.spec import KINDS
from zero.progress import Progress
from zero.record.costs import fetch_notes
from zero.record.history import check_known_tag, known_lineages
from zero.record.ledger import (
    FIRST_PREVIOUS,
    NAME_PATTERN,
    NAME_RULE,
    append_entry,
    generation_tag,
    parse_ledger,
    read_ledger,
    unknown_lineage,
)
from zero.storage.files import file_ref, locked, read_manifest, sha256_bytes, write_atomic, write_manifest
from zero.storage.layout import (
    CHAMPION_DIR,
    DATA_DIRS,
    DVC_CACHE_DIR,
    DVC_LOCK,
    GENERATION_FILE,
    LEDGER_FILE,
    OPTIMIZER_FILE,
    PIPELINE_FILE,
    STATE_DIRS,
    TRAINEE_DIR,
    WEIGHTS_FILE,
    workspace_dir,
)
from zero.storage.manifests import NO_RESIGNATION, Champion, Checkpoint, GenerationId, LedgerEntry, Origin
from zero.storage.vcs import WITHOUT_USERS_IGNORES, configure_dvc, dvc, dvc_cache_dir, git

STAGE_FILES = ("dvc.lock", "metrics", "plots")
GENERATED = ("state/", "metrics/", "plots/", "dvc.lock")
"""Paths that a generation in progress changes in the workspace. Files in `record/`, which the registry writes, may
differ too. All other changes must be committed."""
# Both files are in .git, where neither `git status` nor DVC sees them.
WRITER_LOCK_FILE = "zero.lock"
STOP_FILE = "zero-stop"
WRITER_VARIABLE = "ZERO_WRITER"
CLOCK_SLACK_SECONDS = 5.0
"""Tolerance of a comparison of process times with file times: they come from different clocks of the kernel."""

log = logging.getLogger(__name__)


def check_workspace(workspace: Path) -> None:
    """Checks that a workspace is on its branch, clean, and ahead of what was pushed.

    First points it to the project that contains it, which may have been moved, and removes what a killed process left.

    Raises:
      LineageError: the workspace is dirty, on another branch, or has diverged.
    """
    lineage = read_ledger(workspace)[0].lineage
    _follow_project(workspace, lineage)
    recover_from_crash(workspace, lineage)
    branch = git(workspace, "branch", "--show-current").strip()
    if branch != f"lineage/{lineage}":
        raise LineageError(
            f"{workspace} is on {f'branch {branch}' if branch else 'no branch'}; "
            f"switch back with `git -C {workspace} checkout lineage/{lineage}`"
        )
    newest = ("rev-list", "--max-count=1", "HEAD", "--", LEDGER_FILE)
    if git(workspace, *newest) != git(workspace, newest[0], "--first-parent", *newest[1:]):
        raise LineageError(
            f"the history of {workspace} became that of another branch by a fast-forward merge; undo it (`git -C "
            f"{workspace} reset --hard ORIG_HEAD`) and merge with --no-ff"
        )
    for line in git(workspace, "status", "--porcelain", "--untracked-files=all").splitlines():
        # git quotes paths with unusual characters.
        path = line[3:].strip('"')
        if line.startswith("??") and not path.startswith(GENERATED):
            raise LineageError(
                f"{workspace} is dirty: {path} is not committed; remove it, or `git add` and commit it there"
            )
        if not path.startswith(GENERATED) and not path.startswith("record/"):
            raise LineageError(
                f"{workspace} is dirty: {path} is not committed; commit it there (`git -C {workspace} commit -a`) "
                f"or discard it (`git -C {workspace} checkout -- {path}`)"
            )
    pushed = git(workspace, "ls-remote", "origin", f"refs/heads/lineage/{lineage}").split()
    if pushed and not _is_ancestor(workspace, pushed[0]):
        raise LineageError(
            f"{workspace} has diverged from lineage/{lineage} of the project; "
            f"keep one of them: `git -C {workspace} fetch && git -C {workspace} log HEAD...origin/lineage/{lineage}`"
        )


def _follow_project(workspace: Path, lineage: str) -> None:
    """Points a workspace to the project that it is in, if that folder was moved or copied.

    Its origin, and DVC's cache and remote, are absolute paths. A copy would write into the project that it was copied
    from. Other paths than those that this program writes were set by a person, and stay.
    """
    home, cache = home_dir(workspace), dvc_cache_dir(workspace)
    if workspace.resolve() != workspace_dir(home, lineage).resolve() or not (home / ".git").exists():
        return
    if cache is None or not str(cache).endswith(f"/{DVC_CACHE_DIR}"):
        return
    former = Path(str(cache).removesuffix(f"/{DVC_CACHE_DIR}"))
    if former.resolve() == home:
        return
    log.warning("%s was of the project in %s; it is of %s now", workspace, former, home)
    if Path(git(workspace, "config", "--default", "", "--get", "remote.origin.url").strip()) == former:
        (workspace / ".git/config.lock").unlink(missing_ok=True)  # of a git that was killed here
        git(workspace, "remote", "set-url", "origin", str(home))
    configure_dvc(workspace, home, moved_from=former)  # last: the new cache marks the end


@contextmanager
def writer_lock(workspace: Path) -> Iterator[None]:
    """Makes this process and its children the only writer of a workspace.

    Raises:
      LineageError: another process is the writer.
    """
    path = workspace.resolve() / ".git" / WRITER_LOCK_FILE
    if not path.parent.is_dir():
        yield  # a copy without git, which only its maker uses
        return
    try:
        file = path.open("a+")  # never removed: another process may wait on the same inode
    except OSError as error:
        raise LineageError(f"cannot write {path}: {error.strerror}") from None
    with file:
        # The content is the holder's process number, for the message below and for the children of the holder.
        file.seek(0)
        holder = file.read().strip()
        # the variable tells a child which process holds the lock, so that a stage can run below `zero` itself
        if holder and os.environ.get(WRITER_VARIABLE) == f"{path}:{holder}":
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LineageError(
                f"{workspace} is being written by process {holder or '?'}; "
                f"wait for it, or stop it with `kill {holder or 'PID'}`"
            ) from None
        except OSError as error:
            raise LineageError(f"cannot lock {path}: {error.strerror}; use a folder on a local disk") from None
        before = os.environ.get(WRITER_VARIABLE)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        os.environ[WRITER_VARIABLE] = f"{path}:{os.getpid()}"
        try:
            yield
        finally:
            if before is None:
                os.environ.pop(WRITER_VARIABLE, None)
            else:
                os.environ[WRITER_VARIABLE] = before
            file.seek(0)
            file.truncate()


def writer_of(workspace: Path) -> int | None:
    """Number of the process that writes a workspace; None if there is none."""
    path = workspace / ".git" / WRITER_LOCK_FILE
    try:
        holder, written = int(path.read_text()), path.stat().st_mtime
        started = psutil.Process(holder).create_time()
    except (OSError, ValueError, psutil.Error):
        return None
    # A killed writer leaves its number. After a restart of the machine or the container another process can have it.
    return holder if started < written + CLOCK_SLACK_SECONDS else None


def request_stop(workspace: Path) -> None:
    """Requests that a running campaign stops after the current generation."""
    write_atomic(workspace / ".git" / STOP_FILE, b"stop\n")


def stop_requested(workspace: Path) -> bool:
    """True if a campaign should stop before the next generation."""
    return (workspace / ".git" / STOP_FILE).exists()


def clear_stop(workspace: Path) -> None:
    """Withdraws a request to stop."""
    (workspace / ".git" / STOP_FILE).unlink(missing_ok=True)


def new_lineage(home: Path, lineage: str, text: str, source: str, progress: Progress | None = None) -> Path:
    """Makes a lineage with its generation 0, the seeded random network. A failed call leaves nothing behind.

    Args:
      home: the project's folder, whose committed code the lineage starts with.
      lineage: name of the lineage.
      text: a parameters file in which no value is `auto`; the workspace gets one with every parameter.
      source: name of that text in errors.
      progress: called with the imported games that have been replayed, and all of them.

    Returns:
      The workspace.

    Raises:
      LineageError: the name is invalid or taken, or the project has no commit.
      ParamsError: the parameters are invalid, or their dataset has another game.
      StorageError: their dataset is missing or corrupt, or another process is making the lineage.
    """
    check_name(lineage)
    params = parse_params(text, source)
    target = workspace_dir(home, lineage)
    if target.exists():
        raise LineageError(f"lineage {lineage!r} exists already in {target}; continue it, or choose another name")
    if _branch_exists(home, lineage):
        raise LineageError(
            f"branch lineage/{lineage} exists already; choose another name, or restore its workspace: "
            f"`zero restore {lineage}`"
        )
    if tags := git(home, "tag", "--list", f"{lineage}/gen-*").split():
        raise LineageError(
            f"tag {tags[0]} belongs to an earlier lineage {lineage!r}; choose another name, or delete its tags: "
            f"`git tag -d $(git tag -l '{lineage}/gen-*')`"
        )
    check_state_folder(home, target)
    with new_folder(target) as building:
        git(home, "clone", "--quiet", "--no-tags", str(home), str(building))
        git(building, "checkout", "--quiet", "-b", f"lineage/{lineage}")
        if not (building / ".dvc/config").exists() or not (building / PIPELINE_FILE).exists():
            raise LineageError(f"{home} has no committed .dvc/config and {PIPELINE_FILE}; commit the project first")
        remove_stage_files(building)  # of a lineage, if the project stands on its branch or tag
        configure_dvc(building, home)
        write_atomic(building / PARAMS_FILE, params_text(params).encode())
        if params.dataset:
            copy_dataset(home, building, params)
        _write_first_state(building, lineage, params, progress)
        dvc(building, "add", "--quiet", *STATE_DIRS)
        git(building, *WITHOUT_USERS_IGNORES, "add", "--all")
        git(building, "commit", "--quiet", "-m", f"{lineage}: generation 0, the seeded random network")
        git(building, "tag", generation_tag(lineage, 0))
        # The push is the last step that others see: before it, a crash leaves only a hidden folder.
        dvc(building, "push", "--quiet")
        recover_from_crash(building, lineage)  # stale locks of an earlier attempt, in the project
        git(building, "push", "--quiet", "--atomic", "origin", f"lineage/{lineage}", generation_tag(lineage, 0))
    return target


def check_state_folder(home: Path, workspace: Path) -> None:
    """Checks that the commands in a workspace will find its project: they look for `.zero` above their folder.

    Raises:
      LineageError: a symbolic link leads elsewhere.
    """
    if home_dir(workspace) != home.resolve():
        raise LineageError(
            f"{home / STATE_FOLDER} or a folder in it is a symbolic link, so {workspace.resolve()} would not find its "
            f"project; set ZERO_HOME={home} for every command, or link {DVC_CACHE_DIR} alone"
        )


def remove_stage_files(folder: Path) -> None:
    """Removes the previous generation's stage files that git tracks, because a commit without stages has none."""
    for name in STAGE_FILES:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def check_name(lineage: str) -> None:
    """Checks the name of a new lineage, which becomes part of its branch, its tags and a path.

    Raises:
      LineageError: the name is invalid.
    """
    if not NAME_PATTERN.match(lineage):
        raise LineageError(f"{lineage!r} is not a valid lineage name; {NAME_RULE}")
    if lineage in KINDS:
        raise LineageError(f"{lineage!r} is the name of a kind of player, as in `zero match`; choose another name")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A path at which the caller makes a folder, which becomes `target` at the end. An error removes it.

    Raises:
      LineageError: `target` exists.
      StorageError: another process is making it, or its parent cannot be written.
    """
    # Beside the target, since a rename is atomic only within one file system.
    scratch = target.with_name(f".{target.name}")
    with locked(scratch, f"another process is making {target}; wait for its end"):
        try:
            if target.exists():  # made by the process that had the lock until now
                raise LineageError(f"another process made {target} just now; use it, or choose another name")
            building = scratch / target.name
            shutil.rmtree(building, ignore_errors=True)  # a killed process left it
            yield building
            os.rename(building, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def uncommitted_files(home: Path) -> list[str]:
    """Files of the project that changed, or are new, since its last commit."""
    return [line[3:] for line in git(home, "status", "--porcelain").splitlines()]


def restore_lineage(home: Path, lineage: str) -> Path:
    """Restores the workspace of a lineage from its branch, if the folder was lost or is on another machine.

    Returns:
      The workspace.

    Raises:
      LineageError: the workspace exists, or the project has no such branch.
    """
    if not NAME_PATTERN.match(lineage):
        raise unknown_lineage(lineage, known_lineages(home))
    target = workspace_dir(home, lineage)
    if target.exists():
        away = target.parent.with_name(f"{lineage}-before")  # beside it, it would count as a lineage
        raise LineageError(f"the workspace of {lineage!r} exists; to restore it, move it: `mv {target} {away}`")
    if not git(home, "for-each-ref", f"refs/heads/lineage/{lineage}").strip():
        raise LineageError(
            f"no branch lineage/{lineage} in {home}; make the lineage with `zero new {lineage}`, or fetch it: "
            f"`git fetch --tags origin lineage/{lineage}:lineage/{lineage}`"
        )
    check_state_folder(home, target)
    with new_folder(target) as building:
        git(home, "clone", "--quiet", "--branch", f"lineage/{lineage}", str(home), str(building))
        fetch_notes(home, lineage)  # of a project that is itself a clone
        fetch_notes(building, lineage)
        configure_dvc(building, home)
        dvc(building, "pull", "--quiet", "--allow-missing")
    return target


def checkout_generation(home: Path, tag: str, target: Path, outs: Sequence[str] = ()) -> None:
    """Clones the project at a tag, with all its data or only with `outs`.

    Args:
      home: the project's folder.
      tag: the generation.
      target: a new or empty folder.
      outs: paths that DVC checks out; empty for all.

    Raises:
      LineageError: the tag is unknown, or the folder is a file or not empty.
    """
    check_known_tag(home, tag)
    if target.exists() and not target.is_dir():
        raise LineageError(f"{target} is a file; name a new folder")
    if target.exists() and any(target.iterdir()):
        raise LineageError(f"{target} is not empty; name a new folder")
    try:
        # By the full name: a branch of the same name would come first.
        git(home, "clone", "--quiet", "--no-checkout", str(home), str(target))
        git(target, "checkout", "--quiet", "--detach", f"refs/tags/{tag}")
        configure_dvc(target, home)
        dvc(target, "checkout", "--quiet", "--allow-missing", *outs)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def missing_data(clone: Path) -> list[str]:
    """Paths that DVC tracks in a clone and that are not there, because their data is not on this machine."""
    lock = clone / DVC_LOCK
    text = lock.read_text() if lock.exists() else ""
    tracked = [line.removesuffix(".dvc") for line in git(clone, "ls-files", "*.dvc").splitlines()]
    tracked += [path for path in DATA_DIRS if f"path: {path}\n" in text]
    return [path for path in tracked if not (clone / path).exists()]


def _write_first_state(folder: Path, lineage: str, params: Params, progress: Progress | None) -> None:
    # These import torch, which nothing else here needs.
    from zero.network.optimizer import new_optimizer, optimizer_bytes
    from zero.network.weights import new_network, weights_bytes
    from zero.record.attestation import state_attestation, write_attestation
    from zero.record.generation import in_progress
    from zero.stages.spec import code_digest

    model = new_network(params.network, params.game, params.seed)
    champion_dir, trainee_dir = folder / CHAMPION_DIR, folder / TRAINEE_DIR
    for directory in (champion_dir, trainee_dir):
        write_atomic(directory / WEIGHTS_FILE, weights_bytes(model))
    write_atomic(trainee_dir / OPTIMIZER_FILE, optimizer_bytes(new_optimizer(params.training, model), model))
    # Valid in both folders, whose weight files have the same name and content.
    weights = file_ref(champion_dir / WEIGHTS_FILE, champion_dir)
    write_manifest(champion_dir, Champion(generation=0, network=params.network, weights=weights))
    origin = Origin(
        stage="new",
        lineage=lineage,
        generation=0,
        seed=params.seed,
        params_digest=params_digest(params),
        engine=code_digest("training"),
        inputs={},
    )
    checkpoint = Checkpoint(
        origin=origin,
        network=params.network,
        step=0,
        learning_rate_factor=1.0,
        weights=weights,
        optimizer=file_ref(trainee_dir / OPTIMIZER_FILE, trainee_dir),
    )
    write_manifest(trainee_dir, checkpoint)
    write_first_window(folder, params, origin, progress)
    first = GenerationId(lineage=lineage, number=1, resign_threshold=NO_RESIGNATION)
    write_manifest(folder, first, GENERATION_FILE)
    entry = LedgerEntry(
        lineage=lineage,
        generation=0,
        kind="start",
        decision=None,
        champion=weights.sha256,
        champion_generation=0,
        trainee=weights.sha256,
        params_digest=params_digest(params),
        lock_digest=sha256_bytes(b""),
        source=None,
        provenance=write_attestation(folder, state_attestation(in_progress(folder), "start", lineage, 0)),
        previous=FIRST_PREVIOUS,
    )
    write_atomic(folder / LEDGER_FILE, append_entry("", entry).encode())


def committed_ledger(workspace: Path) -> tuple[str, tuple[LedgerEntry, ...]]:
    """Text and entries of the ledger at HEAD, after a check of its chain."""
    text = git(workspace, "show", f"HEAD:{LEDGER_FILE}")
    return text, parse_ledger(text, str(workspace / LEDGER_FILE))


def current_generation(workspace: Path) -> GenerationId:
    """`state/generation.json`; `zero.record.generation.in_progress` also reads the other files of that generation."""
    return read_manifest(workspace, GenerationId, GENERATION_FILE)


def _branch_exists(home: Path, lineage: str) -> bool:
    """True if the project has the branch of a lineage, or has fetched it."""
    names = git(home, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes").split()
    return any(name.endswith(f"/lineage/{lineage}") for name in names)


def _is_ancestor(workspace: Path, commit: str) -> bool:
    try:
        git(workspace, "merge-base", "--is-ancestor", commit, "HEAD")
    except LineageError:
        return False
    return True
