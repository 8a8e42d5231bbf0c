"""Buckets as folders: fetched, put back, and never outside."""

from pathlib import Path

import pytest

from infra.buckets import BucketError, fetch, inside, main, put


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    folder = tmp_path / "bucket"
    for name, content in (("weights/a", b"network"), ("shards/ab/b", b"games" * 500_000)):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(content)
    return folder


def test_what_was_fetched_can_be_put_back(bucket: Path, tmp_path: Path) -> None:
    assert fetch(f"file://{bucket}", tmp_path / "copy") == 2
    assert put(tmp_path / "copy", f"file://{tmp_path}/again") == 2
    for name in ("weights/a", "shards/ab/b"):
        assert (tmp_path / "again" / name).read_bytes() == (bucket / name).read_bytes()


def test_a_copy_that_was_altered_is_not_put_back(bucket: Path, tmp_path: Path) -> None:
    fetch(f"file://{bucket}", tmp_path / "copy")
    (tmp_path / "copy/weights/a").write_bytes(b"netwurk")
    with pytest.raises(BucketError, match="weights/a is not what SHA256SUMS says"):
        put(tmp_path / "copy", f"file://{tmp_path}/again")


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd", "a//b", "a/", "", ".", "SHA256SUMS"])
def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    with pytest.raises(BucketError, match="no name that a file can have"):
        inside(name)


def test_sums_that_leave_the_bucket_are_refused(bucket: Path, tmp_path: Path) -> None:
    fetch(f"file://{bucket}", tmp_path / "copy")
    (tmp_path / "copy/SHA256SUMS").write_text("0" * 64 + "  ../outside\n")
    with pytest.raises(BucketError, match="outside"):
        put(tmp_path / "copy", f"file://{tmp_path}/again")
    assert not (tmp_path / "outside").exists()


def test_a_user_sees_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", f"file://{tmp_path}/none", str(tmp_path / "copy")]) == 1
    assert capsys.readouterr().err.startswith("error: there is no file://")
