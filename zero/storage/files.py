"""Writes, reads, checks and locks files. Writes are atomic."""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from zero.errors import StorageError
from zero.storage.manifests import MANIFEST_FILE, FileRef, Manifest

log = logging.getLogger(__name__)
FOLDER_LOCK_FILE = "lock"

Model = TypeVar("Model", bound=BaseModel)


def canonical_json(value: BaseModel | dict[str, Any]) -> bytes:
    """UTF-8 JSON with sorted keys, one space of indent and a final newline: equal values give equal bytes."""
    tree = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    # NaN and Infinity are rejected, because they are not JSON and other programs could not read the file.
    return (json.dumps(tree, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def canonical_line(value: BaseModel) -> bytes:
    """Canonical JSON as in `canonical_json`, on one line."""
    return (json.dumps(value.model_dump(mode="json"), sort_keys=True, allow_nan=False) + "\n").encode()


def sha256_bytes(data: bytes) -> str:
    """SHA-256 (hex) of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 (hex) of a file's content.

    Raises:
      StorageError: the file cannot be read.
    """
    with _reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_digest(files: Mapping[str, bytes]) -> str:
    """Code digest: SHA-256 (hex) of the names and contents of sources, by their path below `zero/`."""
    digest = hashlib.sha256()
    # As paths: by their parts, `a/b` comes before `a-b`; as text it would come after.
    for path in sorted(files, key=PurePosixPath):
        digest.update(path.encode() + b"\0" + files[path] + b"\0")
    return digest.hexdigest()


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Writes a file atomically (temporary name, fsync, rename), and creates its folder.

    Raises:
      StorageError: the file cannot be written, for example because the disk is full or the folder is read-only; or it
        is a device or a pipe, which a file would replace.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not (path.is_file() or path.is_dir()):  # a folder is an error of `os.replace`
            raise StorageError(f"cannot write {path}: it is a device or a pipe; give the name of a file")
        # In the same folder, since a rename is atomic only within one file system.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())  # otherwise a power cut can leave an empty file under the new name
            # The folder is not synced: a power cut may bring the old file back, which is complete too.
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from None
    except ValueError as error:  # a zero byte in the name
        raise StorageError(f"cannot write {path}: {error}; give another name") from None


def link_or_copy(source: Path, target: Path) -> None:
    """Makes `target` a hard link to `source`, or a copy if the file system cannot link. Neither may be edited later.

    Raises:
      StorageError: the source is missing, or the target cannot be written; the target is then unchanged.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.part")  # os.link cannot replace an existing target
        temporary.unlink(missing_ok=True)
        try:
            try:
                # Resolved, because DVC may have made the source a symbolic link into its cache.
                os.link(source.resolve(), temporary)
            except OSError:
                shutil.copyfile(source, temporary)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)  # rename does nothing if both names already are the same file
    except OSError as error:
        raise StorageError(f"cannot link or copy {source} to {target}: {error.strerror}") from None


def file_ref(path: Path, folder: Path) -> FileRef:
    """Reference to the file `path`, relative to `folder`."""
    return FileRef(path=path.relative_to(folder).as_posix(), sha256=sha256_file(path), num_bytes=path.stat().st_size)


def checked_path(ref: FileRef, folder: Path) -> Path:
    """Path of the referenced file, after a check of its content.

    Raises:
      StorageError: the file is missing, or its SHA-256 is not that of the reference.
    """
    path = folder / ref.path
    _check_digest(path, sha256_file(path), ref)
    return path


def checked_bytes(ref: FileRef, folder: Path) -> bytes:
    """Content of the referenced file, after a check of it.

    Raises:
      StorageError: the file is missing, or its SHA-256 is not that of the reference.
    """
    path = folder / ref.path
    with _reading(path):
        data = path.read_bytes()
    _check_digest(path, sha256_bytes(data), ref)
    return data


def _check_digest(path: Path, found: str, ref: FileRef) -> None:
    if found != ref.sha256:
        raise StorageError(
            f"{path} is corrupt: its SHA-256 is {found[:12]}, its manifest has {ref.sha256[:12]}; "
            "restore it with `dvc checkout --force`"
        )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Reports a file that cannot be read in one line."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror}; restore it with `dvc checkout` or `dvc pull`"
        ) from None


def remove_other_files(folder: Path, refs: Collection[FileRef]) -> None:
    """Removes the files of `folder` that are neither its manifest nor in `refs`."""
    kept = {MANIFEST_FILE, *(ref.path for ref in refs)}
    for path in folder.iterdir():
        if path.is_file() and path.name not in kept:
            path.unlink()


def write_manifest(folder: Path, manifest: Manifest, name: str = MANIFEST_FILE) -> None:
    """Writes `manifest` as `name` in `folder`, atomically."""
    write_atomic(folder / name, canonical_json(manifest))


def read_manifest(folder: Path, kind: type[Model], name: str = MANIFEST_FILE) -> Model:
    """Reads the manifest `name` of `folder`.

    Raises:
      StorageError: the file is missing, or is not a manifest of that kind.
    """
    path = folder / name
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError:
        raise StorageError(f"no {path}; run `dvc checkout`, or `dvc repro` in a lineage's workspace") from None
    except ValidationError as error:
        raise StorageError(f"{path} is not a {kind.__name__}: {first_violation(error)}") from None


def first_violation(error: ValidationError) -> str:
    """The first violation of a manifest or specification, as `field: cause`."""
    violation = error.errors()[0]
    return "".join(f"{part}: " for part in violation["loc"]) + violation["msg"]


@contextmanager
def locked(folder: Path, busy_message: str, waits: bool = False) -> Iterator[None]:
    """Locks a folder for this process, and creates it if needed; the operating system unlocks it when the process ends.

    Args:
      folder: the folder.
      busy_message: the error if another process holds the lock, or the warning before waiting for it.
      waits: True: waits for it. The holder may have removed the folder, and the lock is then of no use: check again
        whether there is anything left to do.

    Raises:
      StorageError: another process holds the lock, or the folder cannot be written.
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
            if not waits:
                raise StorageError(busy_message) from None
            log.warning("%s", busy_message)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise StorageError(f"cannot lock {file.name}: {error.strerror}; use a folder on a local disk") from None
        yield
