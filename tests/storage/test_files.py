"""Files are written atomically, and corrupt ones are rejected."""

import errno
import json
import os
import shutil
import stat

import pytest

from tests.parameters import network_params
from zero.errors import StorageError
from zero.storage.files import (
    canonical_json,
    canonical_line,
    checked_path,
    file_ref,
    link_or_copy,
    read_manifest,
    sha256_bytes,
    sha256_file,
    write_atomic,
    write_manifest,
)
from zero.storage.manifests import MANIFEST_FILE, Champion, FileRef, GenerationId, Origin

NETWORK = network_params(num_channels=2, value_hidden=3)
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def failing(error: BaseException):
    def call(*arguments, **options):
        raise error

    return call


def test_a_file_is_written_with_its_folders_and_can_be_read_by_others(tmp_path):
    path = tmp_path / "a" / "b" / "file.json"
    write_atomic(path, b"old")
    with path.open("rb") as reader:
        write_atomic(path, b"new")
        assert reader.read() == b"old", "a reader that opened the old file goes on with the old content"
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["file.json"]
    assert path.stat().st_mode & 0o777 == 0o644  # a temporary file is for its maker alone


@pytest.mark.parametrize("step", ["fsync", "replace", "fchmod"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(tmp_path, monkeypatch, step, error):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    monkeypatch.setattr(os, step, failing(error))
    with pytest.raises((StorageError, KeyboardInterrupt)) as caught:
        write_atomic(path, b"new, and much longer")
    if isinstance(error, OSError):
        assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_the_content_is_on_the_disk_before_the_name(tmp_path, monkeypatch):
    path, calls = tmp_path / "file", []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(handle):
        calls.append("fsync")
        real_fsync(handle)

    def replace(source, target):
        calls.append("replace")
        with open(source, "rb") as file:
            assert file.read() == b"whole"
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_atomic(path, b"whole")
    assert calls == ["fsync", "replace"]


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match=rf"cannot write {tmp_path}/taken/file: "):
        write_atomic(tmp_path / "taken" / "file", b"")


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(StorageError, match=f"cannot write {tmp_path}/{name}: it is a device or a pipe"):
            write_atomic(tmp_path / name, b"text")
    assert stat.S_ISFIFO((tmp_path / "link").stat().st_mode) and names(tmp_path) == ["link", "pipe"]


def test_canonical_json_is_pinned():
    champion = Champion(
        generation=3, network=NETWORK, weights=FileRef(path="wéights", sha256=EMPTY_SHA256, num_bytes=0)
    )
    expected = f"""{{
 "generation": 3,
 "network": {{
  "global_pooling": false,
  "heads": "joint",
  "num_blocks": 1,
  "num_channels": 2,
  "ownership_head": false,
  "score_head": false,
  "tower": "residual",
  "value_hidden": 3
 }},
 "weights": {{
  "num_bytes": 0,
  "path": "w\\u00e9ights",
  "sha256": "{EMPTY_SHA256}"
 }}
}}
"""
    assert canonical_json(champion) == expected.encode()
    assert json.loads(canonical_line(champion)) == json.loads(expected)
    assert canonical_line(champion).count(b"\n") == 1


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    assert canonical_json({"b": [1, 2], "a": {"d": 0.1, "c": None}}) == canonical_json(
        {"a": {"c": None, "d": 0.1}, "b": [1, 2]}
    )
    assert canonical_json({"a": [1, 2]}) != canonical_json({"a": [2, 1]})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity_are_not_written(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"value": value})


def test_digests_are_sha256(tmp_path):
    assert sha256_bytes(b"") == EMPTY_SHA256
    large = bytes(range(256)) * 10_000  # more than is read at once
    (tmp_path / "large").write_bytes(large)
    assert sha256_file(tmp_path / "large") == sha256_bytes(large)


def test_a_file_that_cannot_be_read_is_named_with_the_remedy(tmp_path):
    with pytest.raises(StorageError, match=rf"cannot read {tmp_path}/gone: .*`dvc checkout` or `dvc pull`"):
        sha256_file(tmp_path / "gone")


def champion_folder(tmp_path):
    """A champion whose weights are 10 bytes in a subfolder."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "weights").write_bytes(b"0123456789")
    reference = file_ref(tmp_path / "deep" / "weights", tmp_path)
    write_manifest(tmp_path, Champion(generation=1, network=NETWORK, weights=reference))
    return tmp_path


def test_a_manifest_is_read_back_equal(tmp_path):
    champion = read_manifest(champion_folder(tmp_path), Champion)
    assert champion.weights == FileRef(path="deep/weights", sha256=sha256_bytes(b"0123456789"), num_bytes=10)
    assert checked_path(champion.weights, tmp_path).read_bytes() == b"0123456789"
    before = (tmp_path / MANIFEST_FILE).read_bytes()
    write_manifest(tmp_path, champion)
    assert (tmp_path / MANIFEST_FILE).read_bytes() == before


@pytest.mark.parametrize("content", [b"012345678X", b"012345678", b""])
def test_a_corrupt_file_is_rejected(tmp_path, content):
    champion = read_manifest(champion_folder(tmp_path), Champion)
    (tmp_path / "deep" / "weights").write_bytes(content)
    with pytest.raises(StorageError, match=r"deep/weights is corrupt: .* restore it with `dvc checkout --force`"):
        checked_path(champion.weights, tmp_path)


def test_a_missing_manifest_is_named_with_the_remedy(tmp_path):
    with pytest.raises(StorageError, match=rf"no {tmp_path}/manifest.json; run `dvc checkout`, or `dvc repro`"):
        read_manifest(tmp_path, Champion)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Invalid JSON"),
        ('{"lineage": "go9", "number": 1', "Invalid JSON"),
        ('{"lineage": "go9"}', "number: Field required"),
        ('{"lineage": "go9", "number": "one"}', "number: .*valid integer"),
        (
            '{"lineage": "go9", "number": 1, "resign_threshold": -1, "host": "here"}',
            "host: Extra inputs are not permitted",
        ),
    ],
)
def test_invalid_manifests_are_rejected(tmp_path, text, message):
    (tmp_path / "generation.json").write_text(text)
    with pytest.raises(StorageError, match=rf"generation.json is not a GenerationId: .*{message}"):
        read_manifest(tmp_path, GenerationId, "generation.json")


def test_a_manifest_holds_no_clock_host_or_commit():
    # A recomputation has to give the same bytes.
    assert set(Origin.model_fields) == {"stage", "lineage", "generation", "seed", "params_digest", "engine", "inputs"}


@pytest.mark.parametrize("can_link", [True, False])
def test_a_file_is_linked_or_else_copied_over_an_old_one(tmp_path, monkeypatch, can_link):
    source, target = tmp_path / "source", tmp_path / "deep" / "target"
    source.write_bytes(b"new")
    write_atomic(target, b"old")
    if not can_link:
        monkeypatch.setattr(os, "link", failing(OSError(errno.EXDEV, "Invalid cross-device link")))
    for _ in range(2):  # the second time perhaps of itself
        link_or_copy(source, target)
    assert target.read_bytes() == b"new"
    assert (target.stat().st_ino == source.stat().st_ino) is can_link
    assert names(target.parent) == ["target"]
    link_or_copy(source, source)
    assert source.read_bytes() == b"new"


def test_a_link_to_a_link_is_the_file(tmp_path):
    # `dvc config cache.type symlink` makes such sources.
    (tmp_path / "cache").write_bytes(b"content")
    (tmp_path / "source").symlink_to("cache")
    link_or_copy(tmp_path / "source", tmp_path / "deep" / "target")
    assert not (tmp_path / "deep" / "target").is_symlink()
    assert (tmp_path / "deep" / "target").read_bytes() == b"content"


def test_a_missing_source_keeps_the_target(tmp_path):
    target = tmp_path / "target"
    target.write_bytes(b"old")
    with pytest.raises(StorageError, match=rf"cannot link or copy {tmp_path}/gone to {target}: No such file"):
        link_or_copy(tmp_path / "gone", target)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["target"]


def test_a_failed_copy_keeps_the_target_and_leaves_nothing_else(tmp_path, monkeypatch):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"new")
    target.write_bytes(b"old")
    monkeypatch.setattr(os, "link", failing(OSError(errno.EXDEV, "Invalid cross-device link")))

    def half_a_copy(source, target):
        with open(target, "wb") as file:
            file.write(b"n")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", half_a_copy)
    with pytest.raises(StorageError, match="No space left on device"):
        link_or_copy(source, target)
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["source", "target"]
