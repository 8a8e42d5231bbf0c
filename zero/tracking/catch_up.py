"""Writes to MLflow the generations it lacks, each from a passing clone at its tag: the record is in git and DVC."""

import fcntl
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zero.record.generation import Generation
from zero.record.ledger import read_ledger
from zero.record.lineages import ProjectRecord
from zero.storage.layout import CHALLENGER_DIR, CHAMPION_DIR
from zero.storage.vcs import configure_dvc, dvc, git
from zero.tracking import TrackingReceipt, track_generation, tracked_generations
from zero.tracking.rebuild import erase_lineage

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
    known = tracked_generations(ledger[0].lineage, uri)
    receipts = []
    with ProjectRecord(home) as chains:
        for generation in chains.generations(ledger[0].lineage):
            entry = generation.entry
            recorded = entry is not None and entry.kind != "start" and generation.number <= ledger[-1].generation
            if recorded and generation.number not in known:
                _fetch_networks(home, workspace, generation)
                receipts.append(track_generation(generation, uri))
    return receipts


def _fetch_networks(home: Path, workspace: Path, generation: Generation) -> None:
    """Pulls the networks that tracking reads into DVC's cache if they are not on this machine."""
    folders = (
        [CHAMPION_DIR] if generation.entry and generation.entry.decision is None else [CHALLENGER_DIR, CHAMPION_DIR]
    )
    if missing := [each for each in folders if not generation.is_here(each)]:
        with tempfile.TemporaryDirectory(prefix="zero-track-") as scratch:
            clone = Path(scratch) / "clone"
            git(workspace, "clone", "--quiet", "--branch", generation.tag, str(workspace), str(clone))
            configure_dvc(clone, home)
            dvc(clone, "pull", "--quiet", *missing)
