"""A lock that lets one process at a time work in a folder."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zero.errors import StorageError

FOLDER_LOCK_FILE = "lock"


@contextmanager
def locked(folder: Path, busy_message: str) -> Iterator[None]:
    """Locks a folder for this process, and creates it if needed; the operating system unlocks it when the process ends.

    Args:
      folder: the folder.
      busy_message: the error if another process holds the lock.

    Raises:
      StorageError: another process holds the lock, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / FOLDER_LOCK_FILE).open("a")  # never removed: another process may wait on the same inode
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(busy_message) from None
        except OSError as error:
            raise StorageError(f"cannot lock {file.name}: {error.strerror}; use a folder on a local disk") from None
        yield
