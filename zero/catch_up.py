"""Writes to MLflow the generations it lacks, each from a passing clone at its tag: the record is in git and DVC."""

import tempfile
from pathlib import Path

from zero.commands import dvc, git
from zero.lineage import configure_dvc, generation_tag
from zero.record import read_ledger
from zero.tracking import TrackingReceipt, track_generation, tracked_generations

TRACKED_OUTS = ("models/challenger", "state/champion.dvc")
"""What tracking reads of the data that DVC holds."""


def catch_up(home: Path, workspace: Path, uri: str) -> list[TrackingReceipt]:
    """Tracks each recorded generation that MLflow lacks; the receipts, oldest first.

    Raises:
      ServerError: the server does not answer; what it has stays, and the call can be repeated.
    """
    ledger = read_ledger(workspace)
    lineage = ledger[0].lineage
    known = tracked_generations(lineage, uri)
    missing = [entry.generation for entry in ledger if entry.kind == "decision" and entry.generation not in known]
    receipts = []
    for number in missing:
        tag = generation_tag(lineage, number)
        with tempfile.TemporaryDirectory(prefix="zero-track-") as scratch:
            clone = Path(scratch) / "clone"
            git(workspace, "clone", "--quiet", "--branch", tag, str(workspace), str(clone))
            configure_dvc(clone, home)
            dvc(clone, "checkout", "--quiet", *TRACKED_OUTS)
            receipts.append(track_generation(clone, uri, tag))
    return receipts
