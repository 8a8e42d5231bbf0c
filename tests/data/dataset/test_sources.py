"""Files, folders and archives: what is read, in which order, and what is rejected."""

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from zero.data.dataset import sources
from zero.data.dataset.manifest import RawGame, Rejected
from zero.data.dataset.sources import Found, files_of, games_of_file, roots_of
from zero.errors import StorageError

GAME = b"(;GM[1]SZ[9];B[ee])"


def read(*paths: Path) -> list[tuple[str, int, str]]:
    """File, number and reason (empty for a game) of everything that is found."""
    found = []
    for file in files_of(roots_of(paths)):
        for item in [file] if isinstance(file, Rejected) else games_of_file(file, lambda _: None):
            assert isinstance(item, RawGame | Rejected)
            found.append((item.file, item.game, item.reason if isinstance(item, Rejected) else ""))
    return found


def detail_of(path: Path) -> str:
    (rejected,) = (item for item in games_of_file(Found(path, path.name, path.stat().st_size), lambda _: None))
    assert isinstance(rejected, Rejected) and "\n" not in rejected.detail
    return f"{rejected.reason}: {rejected.detail}"


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
        *[("a.tgz/./y.sgf", 1, ""), ("a.tgz/x.sgf", 1, ""), ("b/1.SGF", 1, ""), ("b/2.sgf", 1, ""), ("b/2.sgf", 2, "")],
        *[("b/c.zip/z.sgf", 1, ""), ("b/c.zip/a/b.sgf", 1, ""), ("b/deep/x.sgf", 1, ""), ("named.txt", 1, "")],
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


def test_special_and_unsafe_members_of_a_tar_are_ignored(tmp_path):
    path = make_tar(
        tmp_path / "x.tar",
        "w",
        ("folder", tarfile.DIRTYPE.decode()),
        ("link.sgf", tarfile.SYMTYPE.decode()),
        ("hard.sgf", tarfile.LNKTYPE.decode()),
        ("device.sgf", tarfile.CHRTYPE.decode()),
        ("pipe.sgf", tarfile.FIFOTYPE.decode()),
        ("../up.sgf", GAME),
        ("/etc/root.sgf", GAME),
        ("in.zip", b"PK"),
        ("notes.txt", b"hello"),
        ("good.sgf", GAME),
    )
    assert read(path) == [
        *[(f"x.tar/{name}.sgf", 0, "not a file") for name in ("link", "hard", "device", "pipe")],
        *[("x.tar/../up.sgf", 0, "unsafe path"), ("x.tar//etc/root.sgf", 0, "unsafe path")],
        *[("x.tar/in.zip", 0, "not SGF"), ("x.tar/notes.txt", 0, "not SGF"), ("x.tar/good.sgf", 1, "")],
    ]
    assert sorted(tmp_path.iterdir()) == [path]  # nothing is extracted


def test_special_and_unsafe_members_of_a_zip_are_ignored(tmp_path):
    link = zipfile.ZipInfo("link.sgf")
    link.external_attr = 0o120777 << 16
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("folder")
        archive.writestr(link, "/etc/passwd")
        archive.writestr("../up.sgf", GAME)
        archive.writestr("a\\..\\..\\up.sgf", GAME)
        archive.writestr("good.sgf", GAME)
    assert [(name, reason) for name, _, reason in read(path)] == [
        ("x.zip/link.sgf", "not a file"),
        ("x.zip/../up.sgf", "unsafe path"),
        ("x.zip/a\\..\\..\\up.sgf", "unsafe path"),
        ("x.zip/good.sgf", ""),
    ]


def test_a_zip_bomb_is_not_read(tmp_path):
    path = make_zip(tmp_path / "bomb.zip", ("a.sgf", GAME), ("b.sgf", b" " * (70 << 20)))
    assert path.stat().st_size < 100_000
    assert detail_of(path) == "too large: it expands to more than 100 times its size; nothing of it is read"


def test_a_tar_bomb_is_read_up_to_the_limit(tmp_path):
    path = make_tar(tmp_path / "bomb.tgz", "w:gz", ("a.sgf", GAME), ("b.sgf", b" " * (70 << 20)), ("c.sgf", GAME))
    found = read(path)
    assert found[0] == ("bomb.tgz/a.sgf", 1, "")
    assert found[-1] == ("bomb.tgz", 0, "too large")
    assert ("bomb.tgz/c.sgf", 1, "") not in found


def test_a_member_that_is_too_large_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_MEMBER_BYTES", 1 << 20)
    large = GAME * (1 + (1 << 20) // len(GAME))
    for path in (
        make_zip(tmp_path / "x.zip", ("a.sgf", large), ("b.sgf", GAME)),
        make_tar(tmp_path / "x.tgz", "w:gz", ("a.sgf", large), ("b.sgf", GAME)),
    ):
        assert read(path) == [(f"{path.name}/a.sgf", 0, "too large"), (f"{path.name}/b.sgf", 1, "")]


def test_a_zip_that_lies_about_a_size_gives_no_more_than_it_says(tmp_path):
    path = make_zip(tmp_path / "x.zip", ("a.sgf", GAME * 1000), ("b.sgf", GAME))
    data = path.read_bytes()
    size = (len(GAME) * 1000).to_bytes(4, "little")
    path.write_bytes(data.replace(size, len(GAME).to_bytes(4, "little")))
    assert [item for item in read(path) if item[0] == "x.zip/a.sgf"][-1] == ("x.zip/a.sgf", 0, "unreadable")
    assert read(path)[-1] == ("x.zip/b.sgf", 1, "")


def test_an_encrypted_member_is_skipped(tmp_path):
    path = make_zip(tmp_path / "x.zip", ("a.sgf", GAME))
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert read(path) == [("x.zip/a.sgf", 0, "unreadable")]


@pytest.mark.parametrize("name", ["x.zip", "x.tgz", "x.tar", "x.tar.xz"])
@pytest.mark.parametrize("content", [b"", b"hello" * 1000, b"\x1f\x8b\x08broken", b"PK\x03\x04broken"])
def test_an_archive_that_is_not_one_is_one_line(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    found = read(path)
    if content or name == "x.zip":
        assert found == [(name, 0, "unreadable")]


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w:"])
def test_the_games_before_the_damage_of_an_archive_are_read(tmp_path, mode):
    random = os.urandom(200_000)  # does not compress, so that the cut is behind the first file
    path = make_tar(tmp_path / "x.tar", mode, ("a.sgf", GAME), ("noise.txt", random), ("b.sgf", GAME))
    path.write_bytes(path.read_bytes()[:150_000])
    found = read(path)
    assert found[0] == ("x.tar/a.sgf", 1, "")
    assert found[-1] == ("x.tar", 0, "unreadable")


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE])
def test_a_long_header_of_a_tar_is_not_read(tmp_path, kind):
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, 1 << 31
    path = tmp_path / "x.tar"
    path.write_bytes(info.tobuf() + b"\0" * 1024)
    assert detail_of(path) == f"unreadable: a header of {1 << 31} bytes"


@pytest.mark.timeout(60)  # tarfile would read 100 billion times
def test_a_member_of_a_tar_that_is_larger_than_the_archive_ends_it(tmp_path):
    path = make_tar(tmp_path / "x.tar", "w:", ("a.sgf", GAME))
    info = tarfile.TarInfo("b.sgf")
    info.size = 1 << 50
    path.write_bytes(path.read_bytes()[:1024] + info.tobuf(tarfile.GNU_FORMAT) + GAME.ljust(512, b"\0"))
    assert read(path) == [("x.tar/a.sgf", 1, ""), ("x.tar/b.sgf", 0, "too large"), ("x.tar", 0, "unreadable")]


def test_a_huge_length_in_an_extended_header_is_an_error_of_the_archive(tmp_path):
    path = tmp_path / "x.tar"
    path.write_bytes(extended_header(b"99999999999999999999 path=a\n") + b"\0" * 1024)
    assert read(path) == [("x.tar", 0, "unreadable")]


def test_the_map_of_a_sparse_file_is_not_read(tmp_path):
    header = extended_header(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n")
    path = make_tar(tmp_path / "x.tar", "w:", ("a.sgf", b"1000000000\n" + b"0\n" * 1000), ("b.sgf", GAME))
    path.write_bytes(header + path.read_bytes())
    assert read(path) == [("x.tar/a.sgf", 0, "not a file"), ("x.tar/b.sgf", 1, "")]


def extended_header(content: bytes) -> bytes:
    """The header of a tar archive for the member that follows it."""
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, len(content)
    return info.tobuf(tarfile.USTAR_FORMAT) + content.ljust(512, b"\0")


@pytest.mark.parametrize("damage", ["one byte of a header", "a header cut off"])
def test_a_tar_archive_with_a_damaged_header_is_not_taken_for_a_shorter_one(tmp_path, damage):
    path = make_tar(tmp_path / "a.tar", "w", *((f"{number}.sgf", GAME) for number in range(5)))
    data = bytearray(path.read_bytes())
    third = 2 * 1024  # each member has a header and a block of 512 bytes
    if damage == "a header cut off":
        del data[third + 100 :]
    else:
        data[third + 3] ^= 1
    path.write_bytes(data)
    assert [reason for _, _, reason in read(path)] == ["", "", "unreadable"]
