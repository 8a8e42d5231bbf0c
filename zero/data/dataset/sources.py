"""Reads files, folders and archives game by game. Nothing is extracted, and no file is read into memory as a whole.

Files are read in a fixed order: the paths sorted, an archive in its own order. So the result of an import does not
depend on the order of its arguments.
"""

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, Protocol, cast

from zero.data.dataset.manifest import RawGame, Rejected
from zero.data.dataset.texts import BrokenGame, games_of
from zero.errors import StorageError

MAX_MEMBER_BYTES = 1 << 30
"""Largest expanded size of a file in an archive."""
MAX_EXPANSION, MIN_EXPANDED_BYTES = 100, 64 << 20
"""An archive may expand to MAX_EXPANSION times its size, or to MIN_EXPANDED_BYTES. SGF expands 5 to 20 times."""
MAX_HEADER_BYTES = 1 << 20
"""Largest extended header of a file in a tar archive, which tarfile reads into memory."""

SGF_SUFFIX, ZIP_SUFFIX = ".sgf", ".zip"
TAR_SUFFIXES = (".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz")
MAGIC_BYTES = 6
"""Bytes at the start of a file that show how it is compressed."""

NOT_SGF, NOT_A_FILE, UNSAFE_PATH, UNREADABLE = "not SGF", "not a file", "unsafe path", "unreadable"
BROKEN, TOO_LARGE = "broken SGF", "too large"
"""Reasons of rejected files and incomplete games."""
NO_GAME = "it has no '(;', which starts a game"
MAX_EMPTY_READS = 100
"""Reads beyond the end of a tar archive. Some are normal, but to skip a file, tarfile reads as often as its size says,
whether there are bytes or not."""
TAR_HEADERS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    ArithmeticError,  # OverflowError: a length in an extended header of a tar that no index can have
    RuntimeError,  # also NotImplementedError: an unknown compression in a zip
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)
"""Errors of the libraries for a file or an archive that is damaged or cannot be read."""

Item = RawGame | Rejected
Report = Callable[[int], None]
"""Called with the number of bytes of the current file that have been read."""


class _Readable(Protocol):
    def read(self, num_bytes: int = -1, /) -> bytes: ...


class Found(NamedTuple):
    """A file that the import reads: SGF or an archive."""

    path: Path
    name: str  # relative to the folder that contains all imported paths
    num_bytes: int


class _TooLargeError(Exception):
    """An archive, or a file in it, expands too much."""


class _Limited:
    """An expanded archive, which raises an error if it expands too much."""

    def __init__(self, expanded: _Readable, compressed: IO[bytes]) -> None:
        self._expanded, self._compressed = expanded, compressed
        self._num_bytes = self._num_empty = 0

    def read(self, num_bytes: int = -1, /) -> bytes:
        """Reads from the archive; raises an error beyond the limit."""
        data = self._expanded.read(num_bytes)
        self._num_bytes += len(data)
        self._num_empty += not data
        if self._num_empty > MAX_EMPTY_READS:
            raise EOFError("it ends inside a file")
        if self._num_bytes > _max_expanded(self._compressed.tell()):
            raise _TooLargeError(f"it expands to more than {MAX_EXPANSION} times its size; the rest is not read")
        return data


class _TarInfo(tarfile.TarInfo):
    """A member of a tar archive, whose extended headers have a limited size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_TarInfo":
        """Parses a header, as the base class does; raises an error if it is damaged or too large."""
        try:
            info = super().frombuf(buf, encoding, errors)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            # `tarfile` takes a damaged header for the end of the archive, and the games after it would be lost unseen.
            raise tarfile.ReadError(f"damaged header: {error}") from None
        if info.type in TAR_HEADERS and info.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {info.size} bytes")
        return info

    def _proc_gnusparse_10(self, header: tarfile.TarInfo, *_: object) -> None:
        # The base class reads a list of any length from the file into memory. Sparse files are rejected anyway.
        header.sparse = b""


def roots_of(paths: Sequence[Path]) -> list[Path]:
    """The paths to import, resolved and sorted, without those inside of others.

    Raises:
      StorageError: a path does not exist.
    """
    roots = set()
    for path in paths:
        try:
            roots.add(path.resolve(strict=True))
        except (OSError, RuntimeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "a link to itself"
            raise StorageError(f"cannot read {path}: {reason}; give files, folders or archives of SGF") from None
    return sorted(root for root in roots if not any(parent in roots for parent in root.parents))


def files_of(roots: Sequence[Path]) -> Iterator[Found | Rejected]:
    """The files of paths from `roots_of`; a folder is searched in the order of its sorted names."""
    base = Path(os.path.commonpath([root.parent for root in roots]))
    for root in roots:
        name = _printable(root.relative_to(base).as_posix())
        if root.is_dir():
            yield from _folder(root, name)
        else:
            yield _file(root, name, is_named=True)


def games_of_file(found: Found, report: Report) -> Iterator[Item]:
    """The games of a file or an archive, not numbered yet, and what cannot be read."""
    name = found.name.lower()
    try:
        if name.endswith(ZIP_SUFFIX):
            yield from _zip(found, report)
        elif name.endswith(TAR_SUFFIXES):
            yield from _tar(found, report)
        else:
            with found.path.open("rb") as file:
                for item in _games(found.name, file):
                    yield item
                    report(file.tell())
    except DAMAGED as error:
        yield _rejected(found.name, UNREADABLE, _one_line(error))
    except _TooLargeError as error:
        yield _rejected(found.name, TOO_LARGE, str(error))


def _folder(folder: Path, name: str) -> Iterator[Found | Rejected]:
    try:
        entries = sorted(os.listdir(folder))
    except OSError as error:
        yield _rejected(name, UNREADABLE, f"cannot list the folder: {error.strerror}")
        return
    for entry in entries:
        path, entry_name = folder / entry, f"{name}/{_printable(entry)}"
        if os.path.isdir(path) and not path.is_symlink():  # False, not an error, in a folder that cannot be entered
            yield from _folder(path, entry_name)
        else:
            yield _file(path, entry_name, is_named=False)


def _file(path: Path, name: str, is_named: bool) -> Found | Rejected:
    """A file of a folder, or a file that the user has named, which may have any suffix."""
    try:
        status = path.stat()
    except OSError as error:
        return _rejected(name, UNREADABLE, _one_line(error))
    if stat.S_ISDIR(status.st_mode):
        return _rejected(name, NOT_A_FILE, "a link to a folder; import that folder itself")
    if not stat.S_ISREG(status.st_mode):
        return _rejected(name, NOT_A_FILE, "neither a file nor a folder")
    if not is_named and not name.lower().endswith((SGF_SUFFIX, ZIP_SUFFIX, *TAR_SUFFIXES)):
        return _rejected(name, NOT_SGF, "its name ends neither in .sgf nor as an archive")
    return Found(path, name, status.st_size)


def _games(name: str, stream: _Readable) -> Iterator[Item]:
    """The games of one SGF file."""
    number = 0
    try:
        for game in games_of(stream.read):
            number += 1
            if isinstance(game, BrokenGame):
                reason = TOO_LARGE if game.is_too_large else BROKEN
                yield Rejected(file=name, game=number, reason=reason, detail=game.detail)
            else:
                yield RawGame(number=0, file=name, game=number, data=game)
    except DAMAGED as error:
        yield _rejected(name, UNREADABLE, f"{_one_line(error)}, after {number} games")
    else:
        if number == 0:
            yield _rejected(name, NOT_SGF, NO_GAME)


def _zip(found: Found, report: Report) -> Iterator[Item]:
    with zipfile.ZipFile(found.path) as archive:
        if sum(info.file_size for info in archive.infolist()) > _max_expanded(found.num_bytes):
            raise _TooLargeError(f"it expands to more than {MAX_EXPANSION} times its size; nothing of it is read")
        num_bytes = 0
        for info in archive.infolist():
            name = f"{found.name}/{_printable(info.filename)}"
            # The mode of the file in archives made on Unix; 0 in many others.
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                continue
            if kind and not stat.S_ISREG(kind):
                yield _rejected(name, NOT_A_FILE, "a link or a device in an archive")
            elif rejected := _bad_member(name, info.filename, info.file_size):
                yield rejected
            elif info.flag_bits & 1:
                yield _rejected(name, UNREADABLE, "it is encrypted")
            else:
                try:
                    with archive.open(info) as stream:
                        yield from _games(name, stream)
                except DAMAGED as error:
                    yield _rejected(name, UNREADABLE, _one_line(error))
            num_bytes += info.compress_size
            report(num_bytes)


def _tar(found: Found, report: Report) -> Iterator[Item]:
    with found.path.open("rb") as file:
        limited = cast(IO[bytes], _Limited(_expanded(file), file))
        # `r|` reads forward only: `_Limited` cannot seek, and a compressed archive would be expanded again each time.
        with tarfile.open(fileobj=limited, mode="r|", tarinfo=_TarInfo) as archive:
            while (info := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # else the memory would hold all of them
                name = f"{found.name}/{_printable(info.name)}"
                if info.isdir():
                    continue
                if not info.isreg() or info.issparse():
                    yield _rejected(name, NOT_A_FILE, "a link or a device in an archive")
                elif rejected := _bad_member(name, info.name, info.size):
                    yield rejected
                else:
                    yield from _games(name, cast(IO[bytes], archive.extractfile(info)))
                report(file.tell())


def _expanded(file: IO[bytes]) -> _Readable:
    """The bytes of a file, decompressed if it is compressed, whatever its name says."""
    magic = file.read(MAGIC_BYTES)
    file.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file) if magic == b"\xfd7zXZ\x00" else file


def _bad_member(name: str, path: str, num_bytes: int) -> Rejected | None:
    """Why a file in an archive is not read; None if it is."""
    parts = PurePosixPath(path.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        return _rejected(name, UNSAFE_PATH, "its path leads out of the archive")
    if path.lower().endswith((ZIP_SUFFIX, *TAR_SUFFIXES)):
        return _rejected(name, NOT_SGF, "an archive in an archive; unpack the outer one")
    if not path.lower().endswith(SGF_SUFFIX):
        return _rejected(name, NOT_SGF, "its name does not end in .sgf")
    if num_bytes > MAX_MEMBER_BYTES:
        limit = f"it expands to {num_bytes >> 20} MiB, at most {MAX_MEMBER_BYTES >> 20} are read"
        return _rejected(name, TOO_LARGE, limit)
    return None


def _max_expanded(num_bytes: int) -> int:
    return max(MIN_EXPANDED_BYTES, MAX_EXPANSION * num_bytes)


def _rejected(name: str, reason: str, detail: str) -> Rejected:
    """A rejected file."""
    return Rejected(file=name, game=0, reason=reason, detail=detail)


def _printable(name: str) -> str:
    """A name as UTF-8; other bytes are escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _one_line(error: BaseException) -> str:
    """The message of a library's error, on one line."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return " ".join(text.split())
