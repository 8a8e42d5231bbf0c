"""A folder that one process at a time works in."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zero.errors import StorageError

FOLDER_LOCK_FILE = "lock"


@contextmanager
def locked(folder: Path, is_busy: str) -> Iterator[None]:
    """Makes this process the only one that works in a folder, which is made where there is none; ends with the process.

    Raises:
      StorageError: another process is, in the words of `is_busy`; or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / FOLDER_LOCK_FILE).open("a")
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(is_busy) from None
        except OSError as error:
            raise StorageError(f"cannot lock {file.name}: {error.strerror}; give a folder on a local disk") from None
        yield
