"""`zero reproduce` of a real lineage: all of it, a part of it, cut short, on another profile, of an altered record."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.lineages import Lineage, copy_of
from tests.end_to_end.project import environment_of, git, zero
from zero.artifacts import sha256_bytes

OTHER_ISA = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}


def reproduced(home: Path, *arguments: str, status: int = 0, **environment: str) -> dict[str, Any]:
    """What the command says as JSON."""
    done = zero(home, "reproduce", *arguments, "--json", check=False, **environment)
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_generation_is_computed_again_to_the_same_lock(recorded: Lineage, tmp_path: Path) -> None:
    """Generation 2; generation 1 is computed again below, by a command that is killed in between."""
    tag = "tiny/gen-0002"
    found = reproduced(recorded.home, tag, "--keep", str(tmp_path / "kept"))
    assert found["equal"] and found["lock_equal"]
    assert (tmp_path / "kept/dvc.lock").read_text() == recorded.show(tag, "dvc.lock")
    assert git(tmp_path / "kept", "status", "--porcelain") == ""
    assert [stage["stage"] for stage in found["stages"]][:4] == ["selfplay", "replay", "training", "gating"]
    paths = [out["path"] for stage in found["stages"] for out in stage["outs"]]
    assert {"data/games", "data/window", "models/challenger", "data/match", "metrics/gating.json"} <= set(paths)
    assert all(stage["seconds"] > 0 for stage in found["stages"])
    assert found["profile_then"] == found["profile_now"] != {}


def test_the_seeded_network_is_made_again(recorded: Lineage) -> None:
    found = reproduced(recorded.home, "tiny/gen-0000")
    (stage,) = found["stages"]
    assert found["equal"] and stage["stage"] == "start"
    assert [out["path"] for out in stage["outs"]] == ["state/champion", "state/trainee", "state/replay"]


def test_a_sample_compares_with_the_signed_hash_of_a_shard(recorded: Lineage, tmp_path: Path) -> None:
    """Both files of the self-play are altered where they are kept; the manifest, which is signed, is not."""
    copy = copy_of(recorded, tmp_path)
    for name in ("shard-0000.parquet", "shard-0001.parquet"):
        alter(cached(copy, (copy.workspace / "data/games" / name).read_bytes()))
    told = zero(copy.home, "reproduce", "tiny/gen-0002", "--sample", "1", check=False)
    assert told.returncode == 1
    assert "tiny/gen-0002 came out OTHERWISE" in told.stdout
    assert "data/games/shard-000" in told.stdout and "first differences:" in told.stdout


def test_a_reproduction_that_was_killed_goes_on(recorded: Lineage, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "zero", "reproduce", "tiny/gen-0001", "--keep", str(tmp_path / "kept")]
    with subprocess.Popen(
        command,
        cwd=recorded.home,
        env=environment_of(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr
        for line in process.stderr:
            if line.startswith("selfplay: equal"):
                os.killpg(process.pid, signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    done = zero(recorded.home, *command[3:])
    assert "selfplay: was done before" in done.stderr and "training: was done before" not in done.stderr
    assert "dvc.lock is the same, byte for byte" in done.stdout
    assert (tmp_path / "kept/dvc.lock").read_text() == recorded.show("tiny/gen-0001", "dvc.lock")
    assert "not empty" not in done.stderr
    other = zero(recorded.home, "reproduce", "tiny/gen-0002", "--keep", str(tmp_path / "kept"), check=False)
    assert other.returncode == 1 and "holds tiny/gen-0001" in other.stderr


def test_another_profile_is_told_and_the_matches_are_compared(recorded: Lineage) -> None:
    """Games that differ in their last bits differ by chance alone: the scores of the two matches agree."""
    done = zero(recorded.home, "reproduce", "tiny/gen-0001", check=False, **OTHER_ISA)
    assert "another execution profile: isa " in done.stdout
    if "dvc.lock is the same" in done.stdout:
        pytest.skip("this machine computes the same bits with the other instruction set")
    assert done.returncode == 1
    assert "data/games: shard-0000.parquet: game " in done.stdout
    assert "tiny/gen-0001 came out OTHERWISE" in done.stdout


def cached(lineage: Lineage, content: bytes) -> Path:
    """The file of that content in the cache of DVC."""
    files = (path for path in (lineage.home / ".zero/dvc-cache").rglob("*") if path.is_file())
    return next(path for path in files if sha256_bytes(path.read_bytes()) == sha256_bytes(content))


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def test_an_altered_input_is_named_and_nothing_is_computed(lineage: Lineage) -> None:
    alter(cached(lineage, (lineage.workspace / "state/champion/weights.safetensors").read_bytes()))
    done = zero(lineage.home, "reproduce", "tiny/gen-0002", check=False)
    assert done.returncode == 1 and "selfplay" not in done.stderr
    assert "state/champion/weights.safetensors was altered" in done.stderr.splitlines()[-1]


def test_a_lock_that_was_edited_is_not_the_signed_one(lineage: Lineage, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--branch", "tiny/gen-0001", str(lineage.home), str(clone))
    lock = (clone / "dvc.lock").read_text()
    digest = yaml.safe_load(lock)["stages"]["training"]["outs"][0]["md5"]
    (clone / "dvc.lock").write_text(lock.replace(digest[:8], "00000000"))
    git(clone, "commit", "--quiet", "--all", "--amend", "--no-edit")
    git(clone, "tag", "--force", "tiny/gen-0001")
    git(clone, "push", "--quiet", "--force", "origin", "tiny/gen-0001")
    done = zero(lineage.home, "reproduce", "tiny/gen-0001", check=False)
    assert done.returncode == 1
    assert "dvc.lock is " in done.stderr and "the signed statement of tiny/gen-0001 says" in done.stderr


def test_a_tag_that_was_moved_is_told(lineage: Lineage) -> None:
    git(lineage.home, "tag", "--force", "tiny/gen-0001", "tiny/gen-0002")
    done = zero(lineage.home, "reproduce", "tiny/gen-0001", check=False)
    assert done.returncode == 1
    assert "tag tiny/gen-0001 was moved to the commit of tiny/gen-0002" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("tiny/gen-0009",), "unknown generation 'tiny/gen-0009'"),
        (("tiny/gen-0000", "--sample", "1"), "tiny/gen-0000 has no games of its own"),
        (("tiny/gen-0001", "--sample", "1", "--keep", "kept"), "give --sample or --keep, not both"),
        (("tiny/gen-0001", "--keep", "zero"), "is not empty"),
    ],
)
def test_what_cannot_be_done_is_one_line(recorded: Lineage, arguments: tuple[str, ...], told: str) -> None:
    done = zero(recorded.home, "reproduce", *arguments, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and told in done.stderr


@pytest.mark.parametrize(("tag", "kind"), [("tiny/gen-0003", "rollback"), ("kid/gen-0001", "branch")])
def test_the_state_of_a_rollback_and_of_a_branch_follows_from_its_source(gone_on: Lineage, tag: str, kind: str) -> None:
    found = reproduced(gone_on.home, tag)
    assert found["equal"] and found["kind"] == kind
    assert [out["path"] for out in found["stages"][0]["outs"]] == ["state/champion", "state/trainee", "state/replay"]
