"""Mistakes of a user: one line with value and remedy, exit status 1, nothing lost or partly written."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.lineages import Lineage, copy_of
from tests.end_to_end.project import git, run, zero, zero_in_turn
from zero.errors import LineageError
from zero.lineage.workspace import writer_lock
from zero.storage.vcs import dvc

REJECTED = {
    "new tiny --preset smoke": "lineage 'tiny' exists already",
    "new again --preset smoke": "tag again/gen-0001 belongs to an earlier lineage",
}
ON_RECORDED_GENERATIONS = {
    "reproduce tiny/gen-0009": "unknown generation 'tiny/gen-0009'",
    "reproduce tiny/gen-0000 --sample 1": "tiny/gen-0000 has no games; recompute its state",
    "reproduce tiny/gen-0001 --keep zero": "is not empty",
    "reproduce tiny/gen-0001 --keep /proc/foo/bar": "cannot use /proc/foo: No such file or directory; check that path",
    f"checkout tiny/gen-0001 {'x' * 300}": "File name too long; check that path and its permissions, or give another",
    "rollback tiny tiny/gen-0009": "tiny/gen-0009 is newer than the head of tiny, tiny/gen-0002",
    "rollback tiny tiny/gen-0002": "tiny/gen-0002 is the head of tiny; there is nothing to roll back",
    "rollback tiny go7/gen-0001": "go7/gen-0001 belongs to lineage 'go7', not to 'tiny'",
    "rollback tiny tiny/gen-1": "'tiny/gen-1' is not a tag of a generation; name one such as tiny/gen-0002",
    "rollback go7 go7/gen-0001": "unknown lineage 'go7'; known are: tiny",
    "branch tiny tiny/gen-0009 kid": "unknown generation 'tiny/gen-0009'",
    "branch tiny tiny/gen-0001 tiny": "lineage 'tiny' exists already; choose another name",
    "branch tiny tiny/gen-0001 Kid": "'Kid' is not a valid lineage name",
}


@pytest.fixture
def home(begun: Lineage, tmp_path: Path) -> Path:
    """A copy of a project with a lineage at generation 0, which a test may change."""
    return copy_of(begun, tmp_path).home


def refused(folder: Path, *arguments: str, **environment: str) -> str:
    """The one line of an error."""
    done = zero(folder, *arguments, check=False, **environment)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("zero: "), done.stderr
    return lines[0].removeprefix("zero: ")


def workspace_of(home: Path) -> Path:
    return home / ".zero/workspaces/tiny"


@pytest.fixture(scope="module")
def rejected(begun: Lineage, recorded: Lineage) -> "dict[str, subprocess.CompletedProcess[str]]":
    """Output of the commands; none of them may change the project."""
    git(begun.home, "tag", "again/gen-0001")
    before = git(begun.home, "for-each-ref")
    done = zero_in_turn(begun.home, *(words.split() for words in REJECTED))
    assert git(begun.home, "for-each-ref") == before
    assert [path.name for path in (begun.home / ".zero/workspaces").iterdir()] == ["tiny"]
    done += zero_in_turn(recorded.home, *(words.split() for words in ON_RECORDED_GENERATIONS))
    return dict(zip((*REJECTED, *ON_RECORDED_GENERATIONS), done, strict=True))


@pytest.mark.parametrize(("words", "message"), (REJECTED | ON_RECORDED_GENERATIONS).items())
def test_a_mistake_is_one_line_and_changes_nothing(
    rejected: "dict[str, subprocess.CompletedProcess[str]]", words: str, message: str
) -> None:
    done = rejected[words]
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("zero: ") and message in done.stderr


def test_a_precision_that_the_machine_lacks_is_refused(begun: Lineage) -> None:
    text = (begun.home / "zero/config/presets/smoke.yaml").read_text() + "profile:\n  precision: bf16\n"
    (begun.home / "bf16.yaml").write_text(text)
    message = refused(begun.home, "new", "other", "--params", "bf16.yaml", ONEDNN_MAX_CPU_ISA="AVX2")
    assert message.startswith("bf16.yaml: profile.precision = 'bf16', but this CPU (")
    assert message.endswith("has neither AMX nor AVX512-BF16; set it to 'fp32' or 'auto'")


def test_a_lineage_records_the_values_of_auto(home: Path) -> None:
    text = (home / "zero/config/presets/smoke.yaml").read_text()
    text += "profile:\n  backend: auto # the fastest\n  precision: auto\n  training_precision: auto\n"
    (home / "auto.yaml").write_text(text)
    done = zero(home, "new", "chosen", "--params", "auto.yaml", ONEDNN_MAX_CPU_ISA="AVX2")
    assert "this machine: cpu, openvino, fp32 (" in done.stdout
    recorded = git(home, "show", "chosen/gen-0000:params.yaml")
    assert "  backend: openvino\n  precision: fp32\n  training_precision: fp32\n" in recorded
    assert "  num_channels: 8\n" in recorded and "  c_puct: 1.5\n" in recorded  # from the file, and a default


def test_uncommitted_code_in_the_workspace_stops_a_generation(home: Path) -> None:
    path = workspace_of(home) / "zero/stages/gating.py"
    path.write_text(path.read_text() + "\n# edited\n")
    assert "is dirty: zero/stages/gating.py is not committed" in refused(home, "prepare", "tiny")


def test_an_unknown_file_in_the_workspace_stops_a_generation(home: Path) -> None:
    (workspace_of(home) / "notes.txt").write_text("hello")
    assert "is dirty: notes.txt is not committed" in refused(home, "prepare", "tiny")


def test_a_workspace_behind_the_project_has_diverged(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(tmp_path, "clone", "--quiet", "--branch", "lineage/tiny", str(home), str(other))
    git(other, "commit", "--quiet", "--allow-empty", "-m", "elsewhere")
    git(other, "push", "--quiet", "origin", "lineage/tiny")
    assert "has diverged from lineage/tiny" in refused(home, "prepare", "tiny")


def test_another_branch_in_the_workspace_is_refused(home: Path) -> None:
    git(workspace_of(home), "checkout", "--quiet", "-b", "experiment")
    assert "is on branch experiment" in refused(home, "prepare", "tiny")


def test_a_history_that_a_fast_forward_replaced_is_refused(home: Path) -> None:
    workspace = workspace_of(home)
    git(workspace, "checkout", "--quiet", "-b", "other", "HEAD~1")
    git(workspace, "commit", "--quiet", "--allow-empty", "-m", "newer code")
    git(workspace, "merge", "--quiet", "--no-edit", "lineage/tiny")
    git(workspace, "checkout", "--quiet", "lineage/tiny")
    git(workspace, "merge", "--quiet", "other")
    message = refused(home, "prepare", "tiny")
    assert "became that of another branch by a fast-forward merge" in message
    run(["bash", "-c", message.split("(`")[1].split("`)")[0]], home)
    git(workspace, "merge", "--quiet", "--no-ff", "--no-edit", "other")
    zero(home, "prepare", "tiny")


def test_a_second_writer_is_refused(begun: Lineage) -> None:
    with writer_lock(begun.workspace):
        message = refused(begun.home, "prepare", "tiny", ZERO_WRITER="")
    assert "is being written by process" in message and "kill" in message


def test_the_lock_is_free_after_its_holder_was_killed(begun: Lineage) -> None:
    program = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'a+'); fcntl.flock(f, 2); print(flush=True); time.sleep(99)"
    )
    lock = str(begun.workspace / ".git/zero.lock")
    holder = subprocess.Popen([sys.executable, "-c", program, lock], stdout=subprocess.PIPE)
    assert holder.stdout and holder.stdout.readline()
    with pytest.raises(LineageError), writer_lock(begun.workspace):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with writer_lock(begun.workspace):
        pass


def test_a_missing_weight_file_is_restored_from_the_cache(home: Path) -> None:
    shutil.rmtree(workspace_of(home) / "state/champion")
    zero(home, "prepare", "tiny")
    assert (workspace_of(home) / "state/champion/weights.safetensors").exists()


def test_a_corrupt_weight_file_is_named(home: Path) -> None:
    path = workspace_of(home) / "state/champion/weights.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))
    message = refused(workspace_of(home), "selfplay")
    assert str(path) in message and "is corrupt" in message and "dvc checkout --force" in message


def test_another_champion_than_the_ledgers_is_refused(home: Path) -> None:
    manifest = workspace_of(home) / "state/champion/manifest.json"
    weights = workspace_of(home) / "state/champion/weights.safetensors"
    other = workspace_of(home) / "state/trainee/optimizer.safetensors"
    import hashlib

    before, after = hashlib.sha256(weights.read_bytes()).hexdigest(), hashlib.sha256(other.read_bytes()).hexdigest()
    shutil.copyfile(other, weights)
    manifest.write_text(manifest.read_text().replace(before, after))
    assert f"the champion in {workspace_of(home)}/state is {after[:12]}, but the ledger has" in refused(
        home, "prepare", "tiny"
    )


def test_another_step_of_the_trainee_than_was_left_is_refused(home: Path) -> None:
    manifest = workspace_of(home) / "state/trainee/manifest.json"
    text = manifest.read_text().replace('"step": 0', '"step": 999999')
    manifest.unlink()
    manifest.write_text(text)
    message = refused(home, "prepare", "tiny")
    assert f"the trainee in {workspace_of(home)}/state is " in message and "but the record has" in message


def test_an_edited_ledger_is_refused(home: Path) -> None:
    path = workspace_of(home) / "record/ledger.jsonl"
    path.write_text(path.read_text().replace('"generation": 0', '"generation": 7'))
    assert "line 1 does not follow the line before it" in refused(home, "status", "tiny")


def test_a_spec_of_another_machine_or_other_code_is_refused_by_a_worker(home: Path, tmp_path: Path) -> None:
    workspace, path = workspace_of(home), tmp_path / "spec.json"
    spec = zero(workspace, "plan", "selfplay").stdout.splitlines()[0]
    isa = json.loads(spec)["profile"]["isa"]
    path.write_text(spec.replace(f'"isa":"{isa}"', '"isa":"VAX"'))
    assert f"this worker's isa is {isa}, the specification has VAX" in refused(workspace, "shard", str(path))
    source = workspace / "zero/search/mcts.py"
    source.write_text(source.read_text() + "\n# edited\n")
    path.write_text(spec)
    message = refused(workspace, "shard", str(path))
    assert "this worker's code digest for " in message and "check out the lineage's code" in message


def test_a_detached_workspace_names_the_way_back(home: Path) -> None:
    git(workspace_of(home), "checkout", "--quiet", "tiny/gen-0000")
    assert "is on no branch; switch back with" in refused(home, "prepare", "tiny")


def test_a_lost_workspace_is_restored_from_its_branch_even_if_the_project_was_moved(home: Path) -> None:
    config = workspace_of(home) / ".dvc/config"
    before = re.sub("url = .*", "url = /gone/100%/dvc-cache", config.read_text())
    config.write_text(before)
    git(workspace_of(home), "commit", "--quiet", "--message", "as after a move", ".dvc/config")
    git(workspace_of(home), "push", "--quiet", "origin", "HEAD")
    shutil.rmtree(workspace_of(home))
    zero(home, "restore", "tiny")
    assert json.loads(zero(home, "prepare", "tiny").stdout)["generation"]["number"] == 1
    assert git(workspace_of(home), "status", "--porcelain") == ""
    assert config.read_text() == before
    assert dvc(workspace_of(home), "config", "remote.record.url").strip() == f"{home}/.zero/dvc-cache"


def test_checkout_names_the_data_that_is_missing(home: Path) -> None:
    shutil.rmtree(home / ".zero/dvc-cache")
    shown = zero(home, "checkout", "tiny/gen-0000", "copy").stdout
    assert "without state/champion, state/replay, state/trainee, which this machine lacks; `dvc pull` there" in shown


def test_checkout_puts_the_clone_below_the_folder_it_is_typed_in(home: Path) -> None:
    zero(workspace_of(home), "checkout", "tiny/gen-0000", "../copy")
    assert (workspace_of(home).parent / "copy/state/champion/weights.safetensors").exists()
