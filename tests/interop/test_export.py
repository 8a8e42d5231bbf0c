"""`zero export`: which network is written, and that a failed export writes nothing."""

import shutil
from pathlib import Path

import pytest

from tests.end_to_end.lineages import Lineage, copy_of
from tests.end_to_end.project import zero
from tests.interop.networks import GO9, GO19, trained
from tests.parameters import network_params
from zero.config.params import preset_text
from zero.errors import LineageError, ParamsError, StorageError, ZeroError
from zero.interop.export import export_network
from zero.interop.leela_zero import VALUE_HIDDEN, leela_zero_weights
from zero.interop.onnx import onnx_model
from zero.network.weights import load_network, weights_bytes
from zero.players.networks import resolve_network
from zero.record.lineages import ProjectRecord
from zero.storage.files import read_manifest
from zero.storage.layout import LEDGER_FILE
from zero.storage.manifests import Champion
from zero.storage.vcs import git

SMALL = network_params()


@pytest.fixture
def home(begun: Lineage) -> Path:
    """A project with a lineage at generation 0."""
    return begun.home


def champion_of(home: Path) -> bytes:
    return (home / ".zero/workspaces/tiny/state/champion/weights.safetensors").read_bytes()


def weight_file(folder: Path, data: bytes) -> Path:
    path = folder / "weights.safetensors"
    path.write_bytes(data)
    return path


def test_a_weight_file_is_exported(tmp_path):
    network = trained(network_params(value_hidden=VALUE_HIDDEN), GO19)
    source, out = weight_file(tmp_path, weights_bytes(network)), tmp_path / "new/folder/weights.txt"
    num_bytes = export_network(tmp_path, str(source), out, "leela-zero")
    assert out.read_bytes() == leela_zero_weights(network)
    assert num_bytes == out.stat().st_size


@pytest.mark.parametrize("name", ["tiny", "tiny/gen-0000"])
def test_a_lineage_or_a_tag_refers_to_its_champion(home, name):
    assert resolve_network(home, name).weights == champion_of(home)


def test_unreadable_parameters_fail_only_when_they_are_used(tmp_path):
    data = weights_bytes(trained(SMALL, GO9))
    source = weight_file(tmp_path, data)
    (tmp_path / "params.yaml").write_text(preset_text("smoke") + "of_another_version: 1\n")
    found = resolve_network(tmp_path, str(source))
    assert found.weights == data
    with pytest.raises(ParamsError, match=r"params\.yaml of weights\.safetensors: .*of_another_version"):
        _ = found.read_params()


def test_missing_weights_are_reported_with_the_remedy(begun, tmp_path):
    home = copy_of(begun, tmp_path).home
    digest = read_manifest(home / ".zero/workspaces/tiny/state/champion", Champion).weights.sha256
    shutil.rmtree(home / ".zero/dvc-cache")
    with pytest.raises(
        StorageError,
        match=f"champion of tiny/gen-0000, {digest[:12]}, is not on this machine; fetch it with `dvc pull`",
    ):
        resolve_network(home, "tiny/gen-0000")


def test_corrupt_weights_are_rejected(begun, tmp_path):
    home = copy_of(begun, tmp_path).home
    with ProjectRecord(home) as record:
        (start,) = record.generations("tiny")
        md5 = start.md5_of("state/champion", "weights.safetensors")
        assert md5
        path = start.cache.path(md5)
    path.chmod(0o644)
    path.write_bytes(champion_of(home)[:-1] + b"\x7f")
    with pytest.raises(StorageError, match=r"of tiny/gen-0000 is corrupt; delete .* and run `dvc pull`"):
        resolve_network(home, "tiny")


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("tiny/gen-0007", LineageError, "unknown generation 'tiny/gen-0007'"),
        ("nobody", LineageError, "unknown lineage 'nobody'; known are: tiny"),
        ("nobody/gen-0000", LineageError, "unknown lineage 'nobody'; known are: tiny"),
        ("nobody.safetensors", StorageError, "cannot find the file nobody.safetensors; give a weight file"),
        ("no/where", StorageError, "cannot find the file no/where"),
    ],
)
def test_an_unknown_network_is_rejected(home, source, kind, message):
    with pytest.raises(kind, match=message):
        resolve_network(home, source)


def test_a_lineage_without_a_readable_entry_is_rejected(tmp_path):
    workspace = tmp_path / ".zero/workspaces/tiny"
    (workspace / LEDGER_FILE).parent.mkdir(parents=True)
    (workspace / LEDGER_FILE).write_text("{}\n")
    git(tmp_path, "init", "--quiet")
    git(workspace, "init", "--quiet", "--initial-branch", "lineage/tiny")
    git(workspace, "add", LEDGER_FILE)
    git(workspace, "commit", "--quiet", "--message", "a line that is no entry")
    with pytest.raises(
        LineageError, match="ledger of lineage tiny has no readable entry; `zero audit tiny` reports more"
    ):
        resolve_network(tmp_path, "tiny")
    with pytest.raises(LineageError, match="unknown generation 'tiny/gen-0007'"):
        resolve_network(tmp_path, "tiny/gen-0007")


@pytest.mark.parametrize("file_format", ["leela-zero", "onnx"])
def test_a_corrupt_file_is_not_exported(tmp_path, file_format):
    source = weight_file(tmp_path, weights_bytes(trained(SMALL, GO9))[:-1])
    with pytest.raises(StorageError, match="weight file is corrupt"):
        export_network(tmp_path, str(source), tmp_path / "out", file_format)
    assert list(tmp_path.iterdir()) == [source]


def test_a_failed_export_keeps_an_existing_file(tmp_path):
    source, out = weight_file(tmp_path, weights_bytes(trained(SMALL, GO9))), tmp_path / "out"
    out.write_text("before")
    with pytest.raises(ParamsError, match="9x9 board"):
        export_network(tmp_path, str(source), out, "leela-zero")
    assert out.read_text() == "before" and sorted(tmp_path.iterdir()) == [out, source]


def test_a_folder_is_not_overwritten(tmp_path):
    source = weight_file(tmp_path, weights_bytes(trained(SMALL, GO9)))
    (tmp_path / "out").mkdir()
    with pytest.raises(ZeroError, match=r"cannot write .*out: Is a directory"):
        export_network(tmp_path, str(source), tmp_path / "out", "onnx")
    assert list((tmp_path / "out").iterdir()) == []


def test_the_command_reports_the_file(home, tmp_path):
    done = zero(home, "export", "tiny", str(tmp_path / "player.onnx"), "--format", "onnx")
    data = (tmp_path / "player.onnx").read_bytes()
    assert data == onnx_model(load_network(champion_of(home)))
    assert done.stdout == f"{tmp_path}/player.onnx: {len(data)} bytes\n" and done.stderr == ""


def test_the_command_fails_with_one_line(home):
    done = zero(home, "export", "tiny", "weights.txt", "--format", "leela-zero", check=False)
    assert done.returncode == 1 and not (home / "weights.txt").exists()
    assert done.stderr.startswith("zero: the network is for a 5x5 board") and done.stderr.count("\n") == 1
