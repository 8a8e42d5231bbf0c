"""Writes the missing generations of a lineage to MLflow, from git and DVC."""

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
from zero.tracking import TrackingReceipt, open_client, track_generation, tracked_generations

TRACKING_LOCK_FILE = "zero-track.lock"

log = logging.getLogger(__name__)


def backfill(home: Path, workspace: Path, uri: str, rebuild: bool = False) -> list[TrackingReceipt]:
    """Writes each recorded generation that MLflow lacks; returns the receipts, oldest first.

    Args:
      home: the project's folder.
      workspace: the workspace of the lineage.
      uri: address of the server.
      rebuild: first delete the lineage's runs and models, which are then all written again.

    Raises:
      ServerError: the server does not answer; the call can be repeated.
    """
    with _tracking_lock(workspace), ProjectRecord(home) as record:
        ledger = read_ledger(workspace)
        lineage = ledger[0].lineage
        if rebuild:
            erase_lineage(lineage, uri)
        known = tracked_generations(lineage, uri)
        receipts = []
        for generation in record.generations(lineage):
            entry = generation.entry
            is_recorded = entry is not None and entry.kind != "start" and generation.number <= ledger[-1].generation
            if is_recorded and generation.number not in known:
                _fetch_networks(home, workspace, generation)
                receipts.append(track_generation(generation, uri))
        return receipts


def erase_lineage(lineage: str, uri: str) -> None:
    """Deletes the runs, logged models and registered model of a lineage. Runs of other programs are kept.

    MLflow keeps deleted runs until `mlflow gc`. Can be repeated.

    Raises:
      ServerError: the server does not answer.
    """
    with open_client(uri) as client:
        experiment = client.find_experiment(uri, lineage, deleted=True)
        if experiment is not None:
            experiment.erase()


def _fetch_networks(home: Path, workspace: Path, generation: Generation) -> None:
    """Pulls the networks of a generation into DVC's cache unless they are on this machine."""
    has_challenger = generation.entry is not None and generation.entry.decision is not None
    folders = [CHALLENGER_DIR, CHAMPION_DIR] if has_challenger else [CHAMPION_DIR]
    if missing := [each for each in folders if not generation.is_here(each)]:
        with tempfile.TemporaryDirectory(prefix="zero-track-") as scratch:
            clone = Path(scratch) / "clone"
            git(workspace, "clone", "--quiet", "--branch", generation.tag, str(workspace), str(clone))
            configure_dvc(clone, home)
            dvc(clone, "pull", "--quiet", *missing)


@contextmanager
def _tracking_lock(workspace: Path) -> Iterator[None]:
    """Waits until no other process tracks the lineage: two processes would write its runs twice."""
    with (workspace / ".git" / TRACKING_LOCK_FILE).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            log.info("another process writes the lineage in %s to MLflow; waiting for it", workspace)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
