"""Reads files, folders and archives game by game.

Files are read in a fixed order, that of their sorted paths. So the result of an import does not depend on the order of
its arguments. Archives are unpacked into a temporary folder and read like folders.
"""

import errno
import lzma
import mmap
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from zero.data.dataset.manifest import RawGame, Rejected
from zero.data.dataset.texts import BrokenGame, games_of
from zero.errors import StorageError

SGF_SUFFIX, ZIP_SUFFIX = ".sgf", ".zip"
ARCHIVE_SUFFIXES = (ZIP_SUFFIX, ".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz")
NOT_SGF, NOT_A_FILE, UNREADABLE = "not SGF", "not a file", "unreadable"
BROKEN, TOO_LARGE = "broken SGF", "too large"
"""Reasons of rejected files and incomplete games."""
NO_GAME = "it has no '(;', which starts a game"
DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,  # an encrypted zip; also NotImplementedError: an unknown compression
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)
"""Errors of the libraries for an archive that is damaged or cannot be read."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

Item = RawGame | Rejected
Report = Callable[[int], None]
"""Is called with the number of bytes of the current file that have been read."""


class Found(NamedTuple):
    """A file to read."""

    path: Path
    name: str  # relative to the folder that contains all imported paths; an archive counts as a folder
    num_bytes: int


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


def files_of(roots: Sequence[Path], scratch: Path) -> Iterator[Found | Rejected]:
    """The files of paths from `roots_of`; a folder is searched in the order of its sorted names.

    Archives are unpacked into the folder `scratch`, unless an earlier call has done so.

    Raises:
      OSError: the disk is full.
    """
    base = Path(os.path.commonpath([root.parent for root in roots]))
    for root in roots:
        name = _printable(root.relative_to(base).as_posix())
        yield from _folder(root, name, scratch) if root.is_dir() else _file(root, name, scratch, is_named=True)


def games_of_file(found: Found, report: Report) -> Iterator[Item]:
    """The games of a file, not numbered yet, and what cannot be read."""
    number = num_bytes = 0
    try:
        with found.path.open("rb") as file:
            # Mapped, because a collection can be larger than the memory; an empty file cannot be mapped.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if found.num_bytes else b""
            for number, game in enumerate(games_of(data), 1):
                if isinstance(game, BrokenGame):
                    reason = TOO_LARGE if game.is_too_large else BROKEN
                    yield Rejected(file=found.name, game=number, reason=reason, detail=game.detail)
                else:
                    num_bytes += len(game)
                    yield RawGame(number=0, file=found.name, game=number, data=game)
                    report(num_bytes)
    except DAMAGED as error:
        yield _rejected(found.name, UNREADABLE, _one_line(error))
        return
    if number == 0:
        yield _rejected(found.name, NOT_SGF, NO_GAME)


def _folder(folder: Path, name: str, scratch: Path | None) -> Iterator[Found | Rejected]:
    """The files of a folder; `scratch`: see `files_of`, None in an archive."""
    try:
        entries = sorted(os.listdir(folder))
    except OSError as error:
        yield _rejected(name, UNREADABLE, f"cannot list the folder: {error.strerror}")
        return
    for entry in entries:
        path, entry_name = folder / entry, f"{name}/{_printable(entry)}"
        if os.path.isdir(path) and not path.is_symlink():  # False, not an error, in a folder that cannot be entered
            yield from _folder(path, entry_name, scratch)
        else:
            yield from _file(path, entry_name, scratch, is_named=False)


def _file(path: Path, name: str, scratch: Path | None, is_named: bool) -> Iterator[Found | Rejected]:
    """A file of a folder, or a file that the user has named, which may have any suffix; the files of an archive."""
    try:
        status = path.stat()
    except OSError as error:
        yield _rejected(name, UNREADABLE, _one_line(error))
        return
    if stat.S_ISDIR(status.st_mode):
        yield _rejected(name, NOT_A_FILE, "a link to a folder; import that folder itself")
    elif not stat.S_ISREG(status.st_mode):
        yield _rejected(name, NOT_A_FILE, "neither a file nor a folder")
    elif name.lower().endswith(ARCHIVE_SUFFIXES):
        if scratch is None:
            yield _rejected(name, NOT_SGF, "an archive in an archive; unpack the outer one")
        else:
            yield from _archive(path, name, scratch)
    elif is_named or name.lower().endswith(SGF_SUFFIX):
        yield Found(path, name, status.st_size)
    else:
        yield _rejected(name, NOT_SGF, "its name ends neither in .sgf nor as an archive")


def _archive(path: Path, name: str, scratch: Path) -> Iterator[Found | Rejected]:
    """The files of an archive, or the reason why it cannot be unpacked as a whole."""
    folder = scratch / name
    if not folder.exists():
        folder.mkdir(parents=True)
        try:
            if name.lower().endswith(ZIP_SUFFIX):
                with zipfile.ZipFile(path) as archive:
                    archive.extractall(folder)
            else:
                with tarfile.open(path) as archive:
                    # The filter rejects devices, and paths and links that lead out of the folder.
                    archive.extractall(folder, filter="data")
        except DAMAGED as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            shutil.rmtree(folder)
            yield _rejected(name, UNREADABLE, _one_line(error))
            return
    yield from _folder(folder, name, None)


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
