"""How files are written, read and checked. Every write is complete or does not happen."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from zero.errors import StorageError
from zero.storage.manifests import MANIFEST_FILE, FileRef, Manifest

CHUNK_BYTES = 1 << 20


Model = TypeVar("Model", bound=BaseModel)


def canonical_json(value: BaseModel | dict[str, Any]) -> bytes:
    """UTF-8 JSON with sorted keys, one space of indent and a final newline: equal values give equal bytes."""
    tree = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return (json.dumps(tree, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def canonical_line(value: BaseModel) -> bytes:
    """As `canonical_json`, on one line."""
    return (json.dumps(value.model_dump(mode="json"), sort_keys=True, allow_nan=False) + "\n").encode()


def sha256_bytes(data: bytes) -> str:
    """SHA-256 (hex) of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 (hex) of a file's content.

    Raises:
      StorageError: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror}; restore it with `dvc checkout` or `dvc pull`"
        ) from None
    return digest.hexdigest()


def write_atomic(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Writes a file that is there whole or not at all (temporary name, fsync, rename); makes its folder.

    Raises:
      StorageError: the disk is full, the folder read-only, or the like.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from None


def link_or_copy(source: Path, target: Path) -> None:
    """Puts the content of `source` at `target`, as a hard link where the file system allows. Neither is edited after.

    Raises:
      StorageError: there is no source, or the target cannot be written; it is then as it was.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.part")
        temporary.unlink(missing_ok=True)
        try:
            try:
                os.link(source.resolve(), temporary)
            except OSError:
                shutil.copyfile(source, temporary)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)  # also where both were one file already: then the rename does nothing
    except OSError as error:
        raise StorageError(f"cannot put {source} at {target}: {error.strerror}") from None


def file_ref(path: Path, folder: Path) -> FileRef:
    """Reference to `path`, relative to `folder`."""
    return FileRef(path=path.relative_to(folder).as_posix(), sha256=sha256_file(path), num_bytes=path.stat().st_size)


def checked_path(ref: FileRef, folder: Path) -> Path:
    """Path of the referenced file, whose content has been checked.

    Raises:
      StorageError: it is missing, or its content is not the one the manifest names.
    """
    path = folder / ref.path
    found = sha256_file(path)
    if found != ref.sha256:
        raise StorageError(
            f"{path} was altered: its SHA-256 is {found[:12]}, its manifest says {ref.sha256[:12]}; "
            "restore it with `dvc checkout --force`"
        )
    return path


def remove_other_files(folder: Path, refs: Collection[FileRef]) -> None:
    """Removes the files of `folder` that are neither its manifest nor one of `refs`."""
    kept = {MANIFEST_FILE, *(ref.path for ref in refs)}
    for path in folder.iterdir():
        if path.is_file() and path.name not in kept:
            path.unlink()


def write_manifest(folder: Path, manifest: Manifest, name: str = MANIFEST_FILE) -> None:
    """Writes `manifest` as `name` in `folder`, whole."""
    write_atomic(folder / name, canonical_json(manifest))


def read_manifest(folder: Path, kind: type[Model], name: str = MANIFEST_FILE) -> Model:
    """Manifest of `folder`.

    Raises:
      StorageError: it is missing or is no manifest of that kind.
    """
    path = folder / name
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError:
        raise StorageError(f"no {path}; run `dvc checkout`, or `dvc repro` in a lineage's workspace") from None
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise StorageError(f"{path} is no {kind.__name__}: {place}: {fault['msg']}") from None
