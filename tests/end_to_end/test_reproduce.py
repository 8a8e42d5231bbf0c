"""`zero reproduce` of a real lineage: complete, sampled, interrupted, on another profile, with a corrupt record."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.audit.record import Record
from tests.end_to_end.lineages import Lineage, copy_of
from tests.end_to_end.project import environment_of, git, zero
from zero.audit import audit
from zero.audit.recompute import NOTES_FILE, read_notes
from zero.audit.reproduce import reproduce
from zero.errors import LineageError, StorageError
from zero.storage.files import sha256_bytes, write_manifest

OTHER_ISA = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
NO_STAGES = b"stages: {}\n"
"""A pipeline that computes nothing."""
STATE = ["state/champion", "state/trainee", "state/replay", "state/generation.json"]


class Resumed(NamedTuple):
    """A reproduction of generation 2 that was killed after its self-play, and what the second command said."""

    kept: Path
    message: str
    found: dict[str, Any]


def reproduced(home: Path, *arguments: str, status: int = 0, **environment: str) -> dict[str, Any]:
    """What the command says as JSON."""
    done = zero(home, "reproduce", *arguments, "--json", check=False, **environment)
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def resumed(recorded: Lineage, tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    kept = tmp_path_factory.mktemp("reproduced") / "kept"
    words = ("reproduce", "tiny/gen-0002", "--keep", str(kept))
    with subprocess.Popen(
        [sys.executable, "-m", "zero", *words],
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
    done = zero(recorded.home, *words, "--json")
    return Resumed(kept, done.stderr, json.loads(done.stdout))


def test_a_reproduction_that_was_killed_goes_on(recorded: Lineage, resumed: Resumed) -> None:
    message = resumed.message
    assert "selfplay: done by an earlier call" in message and "training: done by an earlier call" not in message
    assert "not empty" not in message
    other = zero(recorded.home, "reproduce", "tiny/gen-0001", "--keep", str(resumed.kept), check=False)
    assert other.returncode == 1 and "holds tiny/gen-0002" in other.stderr


def test_a_generation_is_computed_again_to_the_same_lock(recorded: Lineage, resumed: Resumed) -> None:
    """By two commands, as the first was killed."""
    kept, found = resumed.kept, resumed.found
    assert found["equal"] and found["lock_equal"]
    assert (kept / "dvc.lock").read_text() == recorded.show("tiny/gen-0002", "dvc.lock")
    assert git(kept, "status", "--porcelain") == ""
    assert [stage["stage"] for stage in found["stages"]][:4] == ["selfplay", "replay", "training", "gating"]
    paths = [out["path"] for stage in found["stages"] for out in stage["outs"]]
    assert {"data/games", "data/window", "models/challenger", "data/match", "metrics/gating.json"} <= set(paths)
    assert all(stage["seconds"] > 0 for stage in found["stages"])
    assert found["profile_then"] == found["profile_now"] != {}


def test_a_finished_reproduction_repeats_its_result(recorded: Lineage, resumed: Resumed) -> None:
    done = zero(recorded.home, "reproduce", "tiny/gen-0002", "--keep", str(resumed.kept))
    assert "selfplay: done by an earlier call" in done.stderr and "verification: done by an earlier call" in done.stderr
    assert "dvc.lock is equal, byte for byte" in done.stdout


def test_another_profile_and_the_first_differing_game_are_reported(
    recorded: Lineage, resumed: Resumed, tmp_path: Path
) -> None:
    """A reproduction with self-play still to do, after the rest came out equal."""
    kept = Path(shutil.copytree(resumed.kept, tmp_path / "kept", symlinks=True))
    notes = read_notes(kept)
    left = tuple(result for result in notes.done if result.stage != "selfplay")
    write_manifest(kept / ".git", notes.model_copy(update={"done": left}), NOTES_FILE)
    done = zero(recorded.home, "reproduce", "tiny/gen-0002", "--keep", str(kept), check=False, **OTHER_ISA)
    assert "the execution profile differs: isa " in done.stdout
    if "dvc.lock is equal" in done.stdout:
        pytest.skip("this machine computes the same bits with the other instruction set")
    assert done.returncode == 1
    assert "training: done by an earlier call" in done.stderr
    assert "data/games: shard-0000.parquet: game " in done.stdout
    assert "tiny/gen-0002 DIFFERS from the record" in done.stdout


def test_the_seeded_network_is_recomputed(recorded: Lineage) -> None:
    found = reproduced(recorded.home, "tiny/gen-0000")
    (stage,) = found["stages"]
    assert found["equal"] and stage["stage"] == "start"
    assert [out["path"] for out in stage["outs"]] == STATE


def test_a_sample_compares_with_the_signed_hash_of_a_shard_and_pulls_the_data_that_it_needs(
    recorded: Lineage, tmp_path: Path
) -> None:
    """Both shards of the self-play are corrupt in the cache; the signed manifest is not. A shard of the match and the
    challenger are missing; the remote of the copy is the cache of the original.
    """
    copy = copy_of(recorded, tmp_path)
    record = Record(copy.home)
    for name in ("shard-0000.parquet", "shard-0001.parquet"):
        alter(cached(copy, (copy.workspace / "data/games" / name).read_bytes()))
    record.cached(2, "data/match", "shard-0000.parquet").unlink()
    record.cached(2, "models/challenger", "manifest.json").unlink()
    record.cached(2, "models/challenger").unlink()
    done = zero(copy.home, "reproduce", "tiny/gen-0002", "--sample", "9", check=False, COLUMNS="80")
    assert done.returncode == 1
    assert "tiny/gen-0002 DIFFERS from the record" in done.stdout
    shard = r"data/games/shard-000\d\.parquet"
    assert len(re.findall(rf"{shard} │ [0-9a-f]{{12}} │ DIFFERS │", done.stdout)) == 2
    assert len(re.findall(rf"{shard}: recorded [0-9a-f]{{12}}, reproduced [0-9a-f]{{12}}\n", done.stdout)) == 2
    assert len(re.findall(r"data/match/shard-000\d\.parquet │ [0-9a-f]{12} │ equal +│", done.stdout)) == 2
    assert "first differences:" in done.stdout


def cached(lineage: Lineage, content: bytes) -> Path:
    """The file of that content in the cache of DVC."""
    files = (path for path in (lineage.home / ".zero/dvc-cache").rglob("*") if path.is_file())
    return next(path for path in files if sha256_bytes(path.read_bytes()) == sha256_bytes(content))


def alter(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def test_a_corrupt_input_is_named_and_nothing_is_computed(lineage: Lineage) -> None:
    alter(cached(lineage, (lineage.workspace / "state/champion/weights.safetensors").read_bytes()))
    done = zero(lineage.home, "reproduce", "tiny/gen-0002", check=False)
    assert done.returncode == 1 and "selfplay" not in done.stderr
    assert "state/champion/weights.safetensors is corrupt" in done.stderr.splitlines()[-1]


def edit_lock(record: Record) -> str:
    record.rewrite_newest({"dvc.lock": record.read(2, "dvc.lock").replace(b"size: ", b"size: 1", 1)})
    return "lock: dvc.lock: SHA-256 against the ledger"


def empty_pipeline(record: Record) -> str:
    record.rewrite_newest({"dvc.yaml": NO_STAGES})
    return "code: dvc.yaml: changed by the commit that recorded the generation"


def empty_pipeline_at_the_parent_too(record: Record) -> str:
    commit = record.commit(2)
    below = record.rewritten(f"{commit}^", {"dvc.yaml": NO_STAGES}, record.commit(1))
    made = record.rewritten(commit, {"dvc.yaml": NO_STAGES}, below)
    record.publish(made, gen_0002=made)
    return f"commit of the sources: found {git(record.home, 'rev-parse', f'{commit}^')[:12]}, expected {below[:12]}"


@pytest.mark.parametrize("corrupt", [edit_lock, empty_pipeline, empty_pipeline_at_the_parent_too])
def test_a_corrupt_record_is_named_and_nothing_is_computed(lineage: Lineage, corrupt: Callable[[Record], str]) -> None:
    message = corrupt(Record(lineage.home))
    with pytest.raises(StorageError) as raised:
        reproduce(lineage.home, "tiny/gen-0002", lambda line: None)
    assert message in str(raised.value) and str(raised.value).endswith("; nothing is computed from it")


def test_another_threshold_of_a_branch_is_reported(lineage: Lineage) -> None:
    zero(lineage.home, "branch", "tiny", "tiny/gen-0000", "kid")
    kid, path = lineage.named("kid").workspace, "state/generation.json"
    git(kid, "reset", "--quiet", "--hard", "kid/gen-0000")
    (kid / path).write_text((kid / path).read_text().replace("-1.0", "0.5"))
    git(kid, "commit", "--quiet", "--amend", "--no-edit", path)
    git(kid, "tag", "--force", "kid/gen-0000")
    git(kid, "push", "--quiet", "--force", "origin", "lineage/kid", "kid/gen-0000")
    message = "state/generation.json: resignation threshold: found 0.5, expected -1.0"
    (finding,) = audit(lineage.home).findings
    assert finding.line().startswith(f"kid/gen-0000 parent: {message};")
    (stage,) = reproduced(lineage.home, "kid/gen-0000", status=1)["stages"]
    assert stage["outs"][-1]["first"] == "resign_threshold: 0.5 then, -1.0 now"


def test_a_moved_tag_is_reported(lineage: Lineage) -> None:
    git(lineage.home, "tag", "--force", "tiny/gen-0001", "tiny/gen-0002")
    with pytest.raises(LineageError, match="tag tiny/gen-0001 was moved to the commit of tiny/gen-0002"):
        reproduce(lineage.home, "tiny/gen-0001", lambda line: None)


@pytest.mark.parametrize(("tag", "kind"), [("tiny/gen-0003", "rollback"), ("kid/gen-0001", "branch")])
def test_the_state_of_a_rollback_and_of_a_branch_follows_from_its_source(gone_on: Lineage, tag: str, kind: str) -> None:
    found = reproduced(gone_on.home, tag)
    assert found["equal"] and found["kind"] == kind
    assert [out["path"] for out in found["stages"][0]["outs"]] == STATE
