"""The benchmark of sleeping workers: real servers, two workers, a few short shards."""

import json
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.project import SOURCE_DIR, environment_of


def test_each_shard_is_played_once_and_the_busy_time_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    words = ["--workers", "2", "--shards", "6", "--shard-seconds", "2", "--out", str(out)]
    command = [sys.executable, "-m", "benchmarks.sleeping_workers", *words]
    subprocess.run(command, cwd=SOURCE_DIR, env=environment_of(), check=True, stdout=subprocess.DEVNULL)
    result = json.loads(out.read_text())
    assert result["shards_played"] == 6 and result["games"] == 60
    assert result["slept_seconds"] >= 12.0
    assert 0.05 < result["busy"] <= 1.0
    assert result["wall_seconds"] >= 6.0
