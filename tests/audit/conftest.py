"""Copies of a recorded lineage that a test may change. `tests.end_to_end.lineages` makes the lineage once."""

from pathlib import Path

import pytest

from tests.audit.record import Record
from tests.end_to_end.lineages import Lineage, copy_of


@pytest.fixture
def record(recorded: Lineage, tmp_path: Path) -> Record:
    """A lineage of generations 0, 1 (promoted) and 2 (refused)."""
    return Record(copy_of(recorded, tmp_path).home)
