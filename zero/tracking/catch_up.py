"""Writes to MLflow the generations it lacks, each from a passing clone at its tag: the record is in git and DVC."""

import fcntl
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zero.errors import LineageError
from zero.record.ledger import generation_tag, read_ledger
from zero.storage.layout import CHALLENGER_DIR, CHAMPION_DIR
from zero.storage.vcs import configure_dvc, dvc, git
from zero.tracking import TrackingReceipt, track_generation, tracked_generations
from zero.tracking.rebuild import erase_lineage

"""What tracking reads of the data that DVC holds; a generation without stages has no challenger."""
TRACKING_LOCK_FILE = "zero-track.lock"

log = logging.getLogger(__name__)


def catch_up(home: Path, workspace: Path, uri: str) -> list[TrackingReceipt]:
    """Tracks each recorded generation that MLflow lacks; the receipts, oldest first.

    Raises:
      ServerError: the server does not answer; what it has stays, and the call can be repeated.
    """
    with _tracking(workspace):
        return _catch_up(home, workspace, uri)


def rebuild(home: Path, workspace: Path, uri: str) -> list[TrackingReceipt]:
    """Deletes what MLflow has of a lineage and writes all of it again from git and DVC; the receipts, oldest first.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
    """
    with _tracking(workspace):
        erase_lineage(read_ledger(workspace)[0].lineage, uri)
        return _catch_up(home, workspace, uri)


@contextmanager
def _tracking(workspace: Path) -> Iterator[None]:
    """Makes this process the one that tracks a lineage, once another is done: two would make its runs twice."""
    with (workspace / ".git" / TRACKING_LOCK_FILE).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            log.info("another process writes the lineage in %s to MLflow; waiting for it", workspace)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _catch_up(home: Path, workspace: Path, uri: str) -> list[TrackingReceipt]:
    ledger = read_ledger(workspace)
    lineage = ledger[0].lineage
    known = tracked_generations(lineage, uri)
    receipts = []
    for entry in ledger:
        if entry.kind == "start" or entry.generation in known:
            continue
        tag = generation_tag(lineage, entry.generation)
        outs = (CHAMPION_DIR,) if entry.decision is None else (CHALLENGER_DIR, CHAMPION_DIR)
        with tempfile.TemporaryDirectory(prefix="zero-track-") as scratch:
            clone = Path(scratch) / "clone"
            git(workspace, "clone", "--quiet", "--branch", tag, str(workspace), str(clone))
            configure_dvc(clone, home)
            try:
                dvc(clone, "checkout", "--quiet", *outs)
            except LineageError:  # not in the cache of this machine
                dvc(clone, "pull", "--quiet", *outs)
            recorded_ms = 1000 * int(git(clone, "log", "-1", "--format=%ct"))
            receipts.append(track_generation(clone, uri, tag, recorded_ms))
    return receipts
