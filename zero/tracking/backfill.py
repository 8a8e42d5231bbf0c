"""Writes the missing generations of a lineage to MLflow, each from a temporary clone at its tag."""

import fcntl
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zero.errors import LineageError
from zero.record.ledger import generation_tag, read_ledger
from zero.storage.vcs import configure_dvc, dvc, git
from zero.tracking import TrackingReceipt, open_client, track_generation, tracked_generations

CHAMPION_OUT = "state/champion"
CHALLENGER_OUT = "models/challenger"
"""The data that tracking needs from DVC; a generation without stages has no challenger."""
LOCK_FILE = "zero-track.lock"

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
    with _tracking_lock(workspace):
        ledger = read_ledger(workspace)
        lineage = ledger[0].lineage
        if rebuild:
            erase_lineage(lineage, uri)
        known = tracked_generations(lineage, uri)
        missing = [entry for entry in ledger if entry.kind != "start" and entry.generation not in known]
        return [
            _track(home, workspace, uri, generation_tag(lineage, entry.generation), entry.decision is not None)
            for entry in missing
        ]


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


def _track(home: Path, workspace: Path, uri: str, tag: str, has_challenger: bool) -> TrackingReceipt:
    outs = (CHALLENGER_OUT, CHAMPION_OUT) if has_challenger else (CHAMPION_OUT,)
    with tempfile.TemporaryDirectory(prefix="zero-track-") as scratch:
        clone = Path(scratch) / "clone"
        git(workspace, "clone", "--quiet", "--branch", tag, str(workspace), str(clone))
        configure_dvc(clone, home)
        try:
            dvc(clone, "checkout", "--quiet", *outs)
        except LineageError:  # the data is not in the cache of this machine
            dvc(clone, "pull", "--quiet", *outs)
        recorded_ms = 1000 * int(git(clone, "log", "-1", "--format=%ct"))
        return track_generation(clone, uri, tag, recorded_ms)


@contextmanager
def _tracking_lock(workspace: Path) -> Iterator[None]:
    """Waits until no other process tracks the lineage: two processes would write its runs twice."""
    with (workspace / ".git" / LOCK_FILE).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            log.info("another process writes the lineage in %s to MLflow; waiting for it", workspace)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
