"""Buckets as folders: fetched, put back, and never outside."""

import re
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
    name = "figures/Größe 囲碁\u202f12  %.png"
    (bucket / name).parent.mkdir()
    (bucket / name).write_bytes(b"picture")
    assert fetch(f"file://{bucket}", tmp_path / "copy") == 3
    assert put(tmp_path / "copy", f"file://{tmp_path}/again") == 3
    for one in ("weights/a", "shards/ab/b", name):
        assert (tmp_path / "again" / one).read_bytes() == (bucket / one).read_bytes()


def test_a_copy_that_was_altered_is_not_put_back(bucket: Path, tmp_path: Path) -> None:
    fetch(f"file://{bucket}", tmp_path / "copy")
    (tmp_path / "copy/weights/a").write_bytes(b"netwurk")
    with pytest.raises(BucketError, match="weights/a is not what SHA256SUMS says"):
        put(tmp_path / "copy", f"file://{tmp_path}/again")


LINE_BREAKERS = ["a\nb", "a\rb", "a\\b", "a\x1cb", "a\x85b", "a\u2028b", "a\x00b", "a\udc80b"]


@pytest.mark.parametrize(
    "name", ["../a", "a/../../b", "/etc/passwd", "a//b", "a/", "", ".", "SHA256SUMS", *LINE_BREAKERS]
)
def test_a_name_that_leaves_the_folder_is_refused(name: str) -> None:
    with pytest.raises(BucketError, match="no name that a file can have"):
        inside(name)


def test_a_name_that_breaks_the_sums_is_told_when_it_is_fetched(bucket: Path, tmp_path: Path) -> None:
    (bucket / "two\nlines").touch()
    with pytest.raises(BucketError, match=re.escape(repr("two\nlines"))):
        fetch(f"file://{bucket}", tmp_path / "copy")
    assert not (tmp_path / "copy/SHA256SUMS").exists()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("lines", "'lines', which is not a digest and a name"),
        ("0" * 63 + "  a", "which is not a digest and a name"),
        ("0" * 64 + " *a", "which is not a digest and a name"),
        ("0" * 64 + "  gone", "has no gone"),
        ("0" * 64 + "  ../weights", "no name that a file can have"),
    ],
)
def test_a_fetched_folder_that_could_not_be_put_back_is_told(
    bucket: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, complaint: str
) -> None:
    fetch(f"file://{bucket}", tmp_path / "copy")
    assert main(["check", str(tmp_path / "copy")]) == 0
    with (tmp_path / "copy/SHA256SUMS").open("a") as sums:
        sums.write(f"{line}\n")
    assert main(["check", str(tmp_path / "copy")]) == 1
    assert complaint in capsys.readouterr().err
    with pytest.raises(BucketError):
        put(tmp_path / "copy", f"file://{tmp_path}/again")
    assert not (tmp_path / "again").exists()


def test_a_user_sees_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", f"file://{tmp_path}/none", str(tmp_path / "copy")]) == 1
    assert capsys.readouterr().err.startswith("error: there is no file://")
