"""The record that the audit is timed on is one that it has nothing to say against."""

import shutil
from pathlib import Path

from benchmarks.audit import audit_by_command, small_player
from benchmarks.long_record import LINEAGE, make_long_record
from zero.config.params import parse_params
from zero.config.presets import preset_text


def test_a_record_of_two_generations_passes_until_it_is_touched(tmp_path: Path) -> None:
    params = parse_params(preset_text("smoke"))
    home = tmp_path / "home"
    make_long_record(home, params, 2, small_player(params))
    told = audit_by_command(home)
    assert told["findings"] == [] and len(told["rows"]) == 3
    marks = told["rows"][2]["marks"]  # type: ignore[index] # JSON
    assert {name: marks[name] for name in ("data", "manifests", "match", "parent")} == dict.fromkeys(
        ("data", "manifests", "match", "parent"), "ok"
    )
    shutil.rmtree(home / ".zero/workspaces" / LINEAGE)
    assert audit_by_command(home)["findings"] == []
    cached = max(
        (path for path in (home / ".zero/dvc-cache").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )
    cached.write_bytes(b"other")
    assert audit_by_command(home)["findings"]
