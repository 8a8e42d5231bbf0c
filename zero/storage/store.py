"""The store: weights, shards and files by hash, under one fsspec URL (a local folder, or `s3://` in a cluster).

Writes are atomic and reads check the content. Corrupt objects are quarantined, so that they are computed again. Layout
(`<kk>` is the first two digits of the key):

| path | content |
|---|---|
| `weights/<sha256>.safetensors` | weights of a network |
| `shards/<kk>/<key>.<sha256>.parquet` | the games of a shard |
| `receipts/<kk>/<key>.<sha256>.<worker>-<hash>.json` | who played a shard, and what it cost |
| `files/<sha256>` | files of trainings on other machines |
| `trainings/<kk>/<key>.<sha256>.json` | the files of such a training, by hash |
| `quarantine/` | corrupt objects, each with its reason in a text file beside it |

The name of an object has its hash, so that a reader can check it without other data; receipts are not checked.

The file systems of fsspec raise errors of many types (botocore's are not OSErrors), so each of their exceptions becomes
a `StorageError` here. Requests to an unreachable server are retried first.

Clients without delete permission (workers) log a corrupt object and treat it as missing; uploading the correct bytes
again repairs it. An upload is skipped if the object's size and MD5 are right already; the MD5 comes from the server if
it has one.
"""

import errno
import hashlib
import logging
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from zero.config.settings import STATE_FOLDER, STORE_OFF, home_dir, setting
from zero.errors import StorageError
from zero.storage.files import sha256_bytes, write_atomic

QUARANTINE_FOLDER = "quarantine"
UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
"""Characters of a worker's name that are replaced in file names."""
MAX_WORKER_NAME, RECEIPT_DIGITS = 80, 8
"""Lengths of a worker's name and of a receipt's hash in the name of a receipt."""
REASON_SUFFIX = ".reason.txt"
CORRUPT = "corrupt: its SHA-256 is not that of its name"
OUTAGE_SECONDS = 180.0
"""Time for which requests to an unreachable server are retried: its restart takes seconds to a minute."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 15.0
NO_ROUTE_ERRNOS = {errno.EHOSTUNREACH, errno.ENETUNREACH}
RETRYABLE_STATUS = {429, 500, 502, 503, 504}
"""HTTP status codes of an S3 server or its proxy after which the same request may succeed later."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class StoredShard(NamedTuple):
    """The bytes of a shard, checked against their hash."""

    data: bytes
    sha256: str


class Store:
    """Weights, shards and files under a URL. Safe for concurrent readers and writers: equal names have equal bytes."""

    def __init__(self, url: str) -> None:
        """Opens the store at `url`; a plain path is a local folder.

        Raises:
          StorageError: the URL cannot be opened.
        """
        import fsspec  # slow: it scans all installed packages, and most commands open no store

        try:
            self._files, root = fsspec.core.url_to_fs(url)
        except Exception as error:
            raise StorageError(
                f"cannot open the store {url!r}: {error}; set ZERO_STORE to a folder or an s3:// URL"
            ) from None
        self._root = str(root).rstrip("/")
        # A string or a tuple, depending on the version of fsspec.
        self._local = self._files.protocol in ("file", ("file", "local"))
        self.url = url

    def put_weights(self, data: bytes) -> str:
        """Stores weights and returns their SHA-256."""
        digest = sha256_bytes(data)
        self._put(f"weights/{digest}.safetensors", data)
        return digest

    def get_weights(self, sha256: str) -> bytes:
        """Weights by their SHA-256, checked.

        Raises:
          StorageError: the weights are missing, or corrupt (and then quarantined).
        """
        name = f"weights/{sha256}.safetensors"
        data = self._get(name)
        if data is None:
            raise StorageError(
                f"weights {sha256[:12]} are not in the store {self.url}; run the stage again to put them"
            )
        if sha256_bytes(data) != sha256:
            raise StorageError(f"{name} in the store {self.url} {self._quarantine_corrupt(name)}")
        return data

    def put_shard(self, key: str, data: bytes) -> str:
        """Stores the shard of a key and returns the SHA-256 of its bytes."""
        digest = sha256_bytes(data)
        self._put(f"shards/{key[:2]}/{key}.{digest}.parquet", data)
        return digest

    def get_shard(self, key: str) -> StoredShard | None:
        """The shard of a key, checked; None if it is missing or corrupt (and then quarantined)."""
        # Several names mean that equal specifications gave different bytes. They are sorted, so all readers take the
        # same one.
        for name in self._shard_names(key):
            digest = name.rsplit(".", 2)[-2]
            data = self._checked(name, digest)
            if data is not None:
                return StoredShard(data, digest)
        return None

    def quarantine_shard(self, key: str, reason: str) -> bool:
        """Moves the shard of a key to `quarantine/`, so that it is played again; False if there is none.

        `reason` goes to a text file beside it.

        Raises:
          StorageError: the store does not answer, or this client has no permission.
        """
        names = self._shard_names(key)
        for name in names:
            if not self._quarantine(name, reason):
                raise StorageError(f"cannot quarantine {name} in the store {self.url}: permission denied")
        return bool(names)

    def put_receipt(self, key: str, sha256: str, worker: str, data: bytes) -> None:
        """Stores the receipt of a shard that `worker` has played; receipts are not reproducible."""
        name = f"{UNSAFE.sub('-', worker)[:MAX_WORKER_NAME]}-{sha256_bytes(data)[:RECEIPT_DIGITS]}"
        self._put(f"receipts/{key[:2]}/{key}.{sha256}.{name}.json", data)

    def get_receipts(self, key: str) -> list[bytes]:
        """The receipts of a shard, one for each time that it was played."""
        found = [self._get(name) for name in self._names("receipts", key, ".json")]
        return [data for data in found if data is not None]

    def put_file(self, data: bytes) -> str:
        """Stores a file under its SHA-256, which it returns."""
        digest = sha256_bytes(data)
        self._put(f"files/{digest}", data)
        return digest

    def get_file(self, sha256: str) -> bytes | None:
        """A file by its SHA-256, checked; None if it is missing or corrupt (and then quarantined)."""
        return self._checked(f"files/{sha256}", sha256)

    def put_training(self, key: str, data: bytes) -> None:
        """Stores the result of a training: the list of its files, which must be in the store already."""
        self._put(f"trainings/{key[:2]}/{key}.{sha256_bytes(data)}.json", data)

    def get_trainings(self, key: str) -> list[bytes]:
        """Results of a training, one list of files per different result; corrupt ones are quarantined."""
        names = self._names("trainings", key, ".json")
        found = [self._checked(name, name.rsplit(".", 2)[-2]) for name in names]
        return [data for data in found if data is not None]

    def _retry(self, request: Callable[[], T]) -> T:
        """The result of `request`, which is retried for `OUTAGE_SECONDS` while the server is unreachable."""
        deadline, pause = time.monotonic() + OUTAGE_SECONDS, FIRST_RETRY_SECONDS
        while True:
            try:
                return request()
            except Exception as error:
                if self._local or not is_outage(error) or time.monotonic() + pause > deadline:
                    raise
                log.warning("the store %s does not answer (%s); retrying in %.0f s", self.url, error, pause)
            time.sleep(pause)
            pause = min(2 * pause, MAX_RETRY_SECONDS)

    def _shard_names(self, key: str) -> list[str]:
        return self._names("shards", key, ".parquet")

    def _names(self, kind: str, key: str, suffix: str) -> list[str]:
        folder = f"{self._root}/{kind}/{key[:2]}"
        try:
            self._files.invalidate_cache(folder)  # another process may have added objects
            listed: list[Any] = self._retry(lambda: self._files.ls(folder, detail=False))
        except FileNotFoundError:
            return []
        except Exception as error:
            raise StorageError(f"the store {self.url} does not answer: {error}") from None
        names = [str(path).rsplit("/", 1)[-1] for path in listed]
        return sorted(f"{kind}/{key[:2]}/{n}" for n in names if n.startswith(f"{key}.") and n.endswith(suffix))

    def _put(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        try:
            is_equal = self._equals(name, data)
            if is_equal:
                return
            if is_equal is not None:
                log.warning("%s in the store %s has other bytes than those to store; overwriting it", name, self.url)
            if not self._local:
                self._retry(lambda: self._files.pipe_file(path, data))  # atomic in an object store
                return
            write_atomic(Path(path), data)
        except Exception as error:
            raise StorageError(f"cannot write to the store {self.url}: {error}; free space or set ZERO_STORE") from None

    def _equals(self, name: str, data: bytes) -> bool | None:
        """True if an object has these bytes, None if it is missing; not read if the server gives its MD5."""
        path = f"{self._root}/{name}"
        self._files.invalidate_cache(self._files._parent(path))  # `info` would use an old listing
        try:
            info = self._retry(lambda: self._files.info(path))
        except FileNotFoundError:
            return None
        if info["size"] != len(data):
            return False
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        # S3's ETag is the MD5 of an object that was uploaded in one part. Any other ETag differs, and the object is
        # read.
        return str(info.get("ETag", "")).strip('"') == md5 or self._read(name) == data

    def _read(self, name: str) -> bytes | None:
        try:
            return bytes(self._retry(lambda: self._files.cat_file(f"{self._root}/{name}")))
        except FileNotFoundError:
            return None

    def _get(self, name: str) -> bytes | None:
        try:
            return self._read(name)
        except Exception as error:
            raise StorageError(f"the store {self.url} does not answer: {error}") from None

    def _checked(self, name: str, sha256: str) -> bytes | None:
        """An object, checked; None if it is missing or corrupt (and then quarantined)."""
        data = self._get(name)
        if data is None or sha256_bytes(data) == sha256:
            return data
        log.warning("%s in the store %s %s", name, self.url, self._quarantine_corrupt(name))
        return None

    def _quarantine_corrupt(self, name: str) -> str:
        """Quarantines a corrupt object if this client has permission; returns what happened and the remedy, as text."""
        if self._quarantine(name, CORRUPT):
            return "was corrupt and is quarantined; run the stage again"
        return "is corrupt, and this client may not quarantine it; run the generation again: the trainer rewrites it"

    def _quarantine(self, name: str, reason: str) -> bool:
        """Moves an object to `quarantine/`, with the reason; False if this client has no permission."""
        # A random suffix, because the same object may be corrupt more than once.
        target = f"{self._root}/{QUARANTINE_FOLDER}/{name.rsplit('/', 1)[-1]}.{uuid.uuid4().hex[:8]}"
        note = f"{target}{REASON_SUFFIX}"
        try:
            if self._local:  # object stores have no folders
                self._files.makedirs(f"{self._root}/{QUARANTINE_FOLDER}", exist_ok=True)
            # The reason first: a crash between the two leaves a note without an object, not an object without a reason.
            self._retry(lambda: self._files.pipe_file(note, f"{reason}\n".encode()))
            try:
                self._retry(lambda: self._files.mv(f"{self._root}/{name}", target))
            except FileNotFoundError:
                # Another process has moved it, with its own reason. Or this client has moved it, and the request was
                # repeated because its answer was lost.
                if not self._retry(lambda: self._files.exists(target)):
                    self._retry(lambda: self._files.rm_file(note))
        except PermissionError:
            return False
        except Exception as error:
            raise StorageError(f"cannot quarantine {name} in the store {self.url}: {error}") from None
        return True


def is_outage(error: BaseException) -> bool:
    """True if a server did not answer or asked to retry later, so that the same request may succeed later.

    For an unreachable server or an unknown host, aiobotocore raises errors that are not OSErrors. `s3fs.errors` turns
    an HTTP error into an OSError whose cause has the status. If botocore is not imported, the error is not one of its.
    """
    if isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(error, OSError) and error.errno in NO_ROUTE_ERRNOS
    ):
        return True
    response: Any = getattr(error.__cause__, "response", None)
    if isinstance(response, dict) and response.get("ResponseMetadata", {}).get("HTTPStatusCode") in RETRYABLE_STATUS:
        return True
    botocore: Any = sys.modules.get("botocore.exceptions")
    return (
        botocore is not None
        and isinstance(error, (botocore.ConnectionError, botocore.HTTPClientError))
        and not isinstance(error, botocore.SSLError)  # a bad certificate stays bad
    )


def store_url(folder: Path) -> str:
    """URL of this machine's store, or `off`. A relative path is relative to the project."""
    url = setting("ZERO_STORE")
    return url if "://" in url or url == STORE_OFF else str(home_dir(folder) / (url or f"{STATE_FOLDER}/store"))


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """The store that ZERO_STORE names, by default the project's; with `off` an empty, temporary one."""
    url = store_url(folder)
    if url == STORE_OFF:
        scratch = tempfile.mkdtemp(prefix="zero-store-")
        try:
            yield Store(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    else:
        yield Store(url)
