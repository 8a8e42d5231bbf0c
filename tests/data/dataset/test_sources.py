"""Files, folders and archives: what is read, in which order, and what is rejected."""

import errno
import io
import os
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from zero.data.dataset.manifest import RawGame, Rejected
from zero.data.dataset.sources import files_of, games_of_file, roots_of
from zero.errors import StorageError

GAME = b"(;GM[1]SZ[9];B[ee])"


def read(*paths: Path) -> list[tuple[str, int, str]]:
    """File, number and reason (empty for a game) of everything that is found."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        assert len(list(files_of(roots_of(paths), Path(scratch)))) > 0  # a second call does not unpack again
        for file in files_of(roots_of(paths), Path(scratch)):
            for item in [file] if isinstance(file, Rejected) else games_of_file(file, lambda _: None):
                assert isinstance(item, RawGame | Rejected)
                assert isinstance(item, RawGame) or "\n" not in item.detail
                found.append((item.file, item.game, item.reason if isinstance(item, Rejected) else ""))
    return found


def make_tar(path: Path, mode: str, *members: tuple[str, bytes | str]) -> Path:
    """An archive; a text instead of bytes is the type of a special member."""
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type = content.encode()
                info.linkname = "/etc/passwd"
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return path


def make_zip(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def test_folders_files_and_archives_are_read_in_a_fixed_order(tmp_path):
    (tmp_path / "b/deep").mkdir(parents=True)
    (tmp_path / "b/2.sgf").write_bytes(GAME + GAME)
    (tmp_path / "b/1.SGF").write_bytes(GAME)
    (tmp_path / "b/deep/x.sgf").write_bytes(GAME)
    make_zip(tmp_path / "b/c.zip", ("z.sgf", GAME), ("a/b.sgf", GAME))
    make_tar(tmp_path / "a.tgz", "w:gz", ("./y.sgf", GAME), ("x.sgf", GAME))
    (tmp_path / "named.txt").write_bytes(GAME)
    expected = [
        *[("a.tgz/x.sgf", 1, ""), ("a.tgz/y.sgf", 1, ""), ("b/1.SGF", 1, ""), ("b/2.sgf", 1, ""), ("b/2.sgf", 2, "")],
        *[("b/c.zip/a/b.sgf", 1, ""), ("b/c.zip/z.sgf", 1, ""), ("b/deep/x.sgf", 1, ""), ("named.txt", 1, "")],
    ]
    paths = [tmp_path / "b", tmp_path / "a.tgz", tmp_path / "named.txt"]
    assert read(*paths) == expected
    assert read(*reversed(paths), tmp_path / "b/deep", tmp_path / "b/deep/../2.sgf", tmp_path / "b") == expected


@pytest.mark.parametrize("mode", ["w:", "w:gz", "w:bz2", "w:xz"])
def test_tar_archives_are_recognised_by_their_content(tmp_path, mode):
    assert read(make_tar(tmp_path / "x.tgz", mode, ("a.sgf", GAME))) == [("x.tgz/a.sgf", 1, "")]


def test_a_path_that_does_not_exist_is_an_error_before_the_import(tmp_path):
    with pytest.raises(StorageError, match=r"cannot read .*none: No such file or directory; give files, folders"):
        roots_of([tmp_path, tmp_path / "none"])


def test_what_is_not_a_game_is_listed(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "readme.txt").write_text("hello")
    (folder / "empty.sgf").write_bytes(b"")
    (folder / "text.sgf").write_bytes("(;GM[1]".encode("utf-16"))
    (folder / "game.sgf").write_bytes(GAME)
    (folder / "broken.sgf").write_bytes(GAME + b"(;GM[1];B[a")
    os.mkfifo(folder / "pipe.sgf")
    (folder / "link.sgf").symlink_to("game.sgf")
    (folder / "loop").symlink_to(".")
    (folder / "nothing.sgf").symlink_to("missing.sgf")
    (folder / os.fsdecode(b"caf\xe9.sgf")).write_bytes(GAME)
    assert read(folder) == [
        ("in/broken.sgf", 1, ""),
        ("in/broken.sgf", 2, "broken SGF"),
        ("in/caf\\xe9.sgf", 1, ""),
        ("in/empty.sgf", 0, "not SGF"),
        ("in/game.sgf", 1, ""),
        ("in/link.sgf", 1, ""),
        ("in/loop", 0, "not a file"),
        ("in/nothing.sgf", 0, "unreadable"),
        ("in/pipe.sgf", 0, "not a file"),
        ("in/readme.txt", 0, "not SGF"),
        ("in/text.sgf", 0, "not SGF"),
    ]


def test_files_in_an_archive_that_are_not_games_are_listed(tmp_path):
    path = make_tar(
        *(tmp_path / "x.tar", "w", ("folder", tarfile.DIRTYPE.decode()), ("in.zip", b"PK")),
        *(("notes.txt", b"hello"), ("good.sgf", GAME)),
    )
    assert read(path) == [
        *[("x.tar/good.sgf", 1, ""), ("x.tar/in.zip", 0, "not SGF"), ("x.tar/notes.txt", 0, "not SGF")],
    ]


@pytest.mark.parametrize(
    "member",
    [("link.sgf", tarfile.SYMTYPE.decode()), ("device.sgf", tarfile.CHRTYPE.decode()), ("../up.sgf", GAME)],
    ids=lambda member: member[0],
)
def test_a_tar_that_leads_out_of_its_folder_is_not_read(tmp_path, member):
    path = make_tar(tmp_path / "x.tar", "w", ("good.sgf", GAME), member)
    assert read(path) == [("x.tar", 0, "unreadable")]
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_zip_does_not_lead_out_of_its_folder(tmp_path):
    path = make_zip(tmp_path / "x.zip", ("../up.sgf", GAME), ("/etc/root.sgf", GAME))
    assert read(path) == [("x.zip/etc/root.sgf", 1, ""), ("x.zip/up.sgf", 1, "")]
    assert sorted(tmp_path.iterdir()) == [path]


def test_an_encrypted_zip_is_not_read(tmp_path):
    path = make_zip(tmp_path / "x.zip", ("a.sgf", GAME))
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert read(path) == [("x.zip", 0, "unreadable")]


@pytest.mark.parametrize("name", ["x.zip", "x.tgz", "x.tar", "x.tar.xz"])
@pytest.mark.parametrize("content", [b"hello" * 1000, b"\x1f\x8b\x08broken", b"PK\x03\x04broken"])
def test_an_archive_that_is_not_one_is_one_line(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name) == [(name, 0, "unreadable")]


def test_an_archive_that_is_cut_off_is_rejected_as_a_whole(tmp_path):
    random = os.urandom(200_000)  # does not compress, so that the cut is behind the first file
    path = make_tar(tmp_path / "x.tgz", "w:gz", ("a.sgf", GAME), ("noise.txt", random), ("b.sgf", GAME))
    path.write_bytes(path.read_bytes()[:150_000])
    assert read(path) == [("x.tgz", 0, "unreadable")]


def test_a_full_disk_ends_the_import(tmp_path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = make_zip(tmp_path / "x.zip", ("a.sgf", GAME))
    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    with pytest.raises(OSError, match="No space left"):
        list(files_of([path], tmp_path / "scratch"))
