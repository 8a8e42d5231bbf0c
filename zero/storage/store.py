"""The store: weights and shards by hash, under one fsspec URL (a local folder by default, `s3://` in a cluster).

A put is whole or nothing; a read checks the content; a bad object is set aside, so that it is computed again.
Layout: `weights/<sha256>.safetensors`, `shards/<kk>/<key>.<sha256>.parquet` (kk: first two digits of the key),
`receipts/<kk>/<key>.<sha256>.<worker>.json` (who played a shard, and what it cost), `files/<sha256>` and
`trainings/<kk>/<key>.<sha256>.json` (a training that was done elsewhere: its files by hash), `quarantine/` for bad
objects, each with its reason in a text file beside it. The object's own hash is in its name, so that a reader can check
it with nothing else at hand.

Each of fsspec's file systems fails in its own way (an S3 server that is down or wants other credentials: botocore's
errors, which are no OSError), so any exception of theirs becomes a `StorageError` here: of a server that does not
answer only after it was asked again for a while.

Who has no right to set a bad object aside, a worker with its key, tells of it and takes it as missing. A put of what
its name says heals it: it writes over what differs. An object that the server says has its MD5 is not read for that.
"""

import errno
import hashlib
import logging
import os
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

from zero.config.settings import STATE_FOLDER, STORE_OFF, Settings, home_dir
from zero.errors import StorageError
from zero.storage.files import sha256_bytes

BAD_FOLDER = "quarantine"
UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
"""What the name of a worker may have that a file name should not."""
REASON_SUFFIX = ".reason.txt"
ALTERED = "altered: its content is not the one that its name says"
OUTAGE_SECONDS = 180.0
"""How long a server that does not answer is asked again: a restart takes some seconds, a careful one a minute."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
NO_ANSWER = {errno.EHOSTUNREACH, errno.ENETUNREACH}
LATER = {429, 500, 502, 503, 504}
"""What an S3 server, or a proxy before it, answers where the same request may do well later (HTTP status)."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class StoredShard(NamedTuple):
    """A shard read from the store and checked."""

    data: bytes
    sha256: str


class Store:
    """Weights and shards under a URL. Safe for many readers and writers: equal names hold equal bytes."""

    def __init__(self, url: str) -> None:
        """Opens the store at `url`; a plain path is a local folder.

        Raises:
          StorageError: the URL cannot be opened.
        """
        import fsspec  # it searches all installed packages; most commands open no store

        try:
            self._files, root = fsspec.core.url_to_fs(url)
        except Exception as error:
            raise StorageError(
                f"cannot open the store {url!r}: {error}; set ZERO_STORE to a folder or an s3:// URL"
            ) from None
        self._root = str(root).rstrip("/")
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
          StorageError: they are not there, or were altered (and are then set aside).
        """
        name = f"weights/{sha256}.safetensors"
        data = self._get(name)
        if data is None:
            raise StorageError(
                f"weights {sha256[:12]} are not in the store {self.url}; run the stage again to put them"
            )
        if sha256_bytes(data) != sha256:
            raise StorageError(f"{name} in the store {self.url} {self._set_altered_aside(name)}")
        return data

    def put_shard(self, key: str, data: bytes) -> str:
        """Stores the shard of a spec key and returns the SHA-256 of its bytes."""
        digest = sha256_bytes(data)
        self._put(f"shards/{key[:2]}/{key}.{digest}.parquet", data)
        return digest

    def get_shard(self, key: str) -> StoredShard | None:
        """The shard of a spec key, checked; None where it is missing or was altered (and is then set aside)."""
        for name in self._shard_names(key):
            digest = name.rsplit(".", 2)[-2]
            data = self._checked(name, digest)
            if data is not None:
                return StoredShard(data, digest)
        return None

    def quarantine_shard(self, key: str, reason: str) -> bool:
        """Takes the shard of a spec key out of use, so that it is played again; False where there is none.

        What was stored stays in `quarantine/`, and `reason` in a text file beside it.

        Raises:
          StorageError: the store does not answer, or this machine may not.
        """
        names = self._shard_names(key)
        for name in names:
            if not self._set_aside(name, reason):
                raise StorageError(f"cannot set aside {name} in the store {self.url}: no right to do so")
        return bool(names)

    def put_receipt(self, key: str, sha256: str, worker: str, data: bytes) -> None:
        """Stores the receipt of a shard that `worker` has played; receipts are no part of what is rebuilt."""
        self._put(f"receipts/{key[:2]}/{key}.{sha256}.{UNSAFE.sub('-', worker)}.json", data)

    def get_receipts(self, key: str) -> list[bytes]:
        """The receipts of a shard, one for each worker that has played it."""
        found = [self._get(name) for name in self._names("receipts", key, ".json")]
        return [data for data in found if data is not None]

    def has_shard(self, key: str) -> bool:
        """True where a shard of that key is listed; its content is checked when it is read."""
        return bool(self._shard_names(key))

    def put_file(self, data: bytes) -> str:
        """Stores a file under its SHA-256, and returns that."""
        digest = sha256_bytes(data)
        self._put(f"files/{digest}", data)
        return digest

    def get_file(self, sha256: str) -> bytes | None:
        """A file by its SHA-256, checked; None where it is missing or was altered (and is then set aside)."""
        return self._checked(f"files/{sha256}", sha256)

    def put_training(self, key: str, data: bytes) -> None:
        """Stores what came out of a training: the list of its files, which are stored before it."""
        self._put(f"trainings/{key[:2]}/{key}.{sha256_bytes(data)}.json", data)

    def get_trainings(self, key: str) -> list[bytes]:
        """What came out of a training, one list of files for each different outcome; altered ones are set aside."""
        names = self._names("trainings", key, ".json")
        found = [self._checked(name, name.rsplit(".", 2)[-2]) for name in names]
        return [data for data in found if data is not None]

    def _asked(self, work: Callable[[], T]) -> T:
        """What `work` gives; a server that does not answer is asked again, for `OUTAGE_SECONDS` in all."""
        deadline, pause = time.monotonic() + OUTAGE_SECONDS, FIRST_PAUSE
        while True:
            try:
                return work()
            except Exception as error:
                if self._local or not is_outage(error) or time.monotonic() + pause > deadline:
                    raise
                log.warning("the store %s does not answer (%s); asking again in %.0f s", self.url, error, pause)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _shard_names(self, key: str) -> list[str]:
        return self._names("shards", key, ".parquet")

    def _names(self, kind: str, key: str, suffix: str) -> list[str]:
        folder = f"{self._root}/{kind}/{key[:2]}"
        try:
            self._files.invalidate_cache(folder)
            listed: list[Any] = self._asked(lambda: self._files.ls(folder, detail=False))
        except FileNotFoundError:
            return []
        except Exception as error:
            raise StorageError(f"the store {self.url} does not answer: {error}") from None
        names = [str(path).rsplit("/", 1)[-1] for path in listed]
        return sorted(f"{kind}/{key[:2]}/{n}" for n in names if n.startswith(f"{key}.") and n.endswith(suffix))

    def _put(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        try:
            held = self._holds(name, data)
            if held:
                return
            if held is not None:
                log.warning("%s in the store %s is not what is put there now; it is written over", name, self.url)
            if not self._local:
                self._asked(lambda: self._files.pipe_file(path, data))  # an object store's put is whole or nothing
                return
            target = Path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
            try:
                with temporary.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
        except Exception as error:
            raise StorageError(f"cannot write to the store {self.url}: {error}; free space or set ZERO_STORE") from None

    def _holds(self, name: str, data: bytes) -> bool | None:
        """True where an object is these bytes, None where there is none; one whose MD5 is told is not read."""
        path = f"{self._root}/{name}"
        self._files.invalidate_cache(self._files._parent(path))  # else a list from before is asked
        try:
            told = self._asked(lambda: self._files.info(path))
        except FileNotFoundError:
            return None
        if told["size"] != len(data):
            return False
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        return str(told.get("ETag", "")).strip('"') == md5 or self._read(name) == data

    def _read(self, name: str) -> bytes | None:
        try:
            return bytes(self._asked(lambda: self._files.cat_file(f"{self._root}/{name}")))
        except FileNotFoundError:
            return None

    def _get(self, name: str) -> bytes | None:
        try:
            return self._read(name)
        except Exception as error:
            raise StorageError(f"the store {self.url} does not answer: {error}") from None

    def _checked(self, name: str, sha256: str) -> bytes | None:
        """An object; None where it is missing or was altered (and is then set aside)."""
        data = self._get(name)
        if data is None or sha256_bytes(data) == sha256:
            return data
        log.warning("%s in the store %s %s", name, self.url, self._set_altered_aside(name))
        return None

    def _set_altered_aside(self, name: str) -> str:
        """Sets an altered object aside where this machine may; what happened and what to do, in words."""
        if self._set_aside(name, ALTERED):
            return "was altered and is set aside; run the stage again"
        return "is altered, and this machine may not set it aside; run the generation again: the trainer writes it anew"

    def _set_aside(self, name: str, reason: str) -> bool:
        """Moves an object to `quarantine/`, with the reason; False where this machine may not."""
        target = f"{self._root}/{BAD_FOLDER}/{name.rsplit('/', 1)[-1]}.{uuid.uuid4().hex[:8]}"
        note = f"{target}{REASON_SUFFIX}"
        try:
            if self._local:  # elsewhere there are no folders
                self._files.makedirs(f"{self._root}/{BAD_FOLDER}", exist_ok=True)
            self._asked(lambda: self._files.pipe_file(note, f"{reason}\n".encode()))
            try:
                self._asked(lambda: self._files.mv(f"{self._root}/{name}", target))
            except FileNotFoundError:  # another process was quicker, and has told why
                self._asked(lambda: self._files.rm_file(note))
        except PermissionError:
            return False
        except Exception as error:
            raise StorageError(f"cannot set aside {name} in the store {self.url}: {error}") from None
        return True


def is_outage(error: BaseException) -> bool:
    """True where a server did not answer or asked for patience, so that the same request may be answered later.

    Aiobotocore says of a server that is away, or whose name is not known, what is no OSError; an answer of HTTP becomes
    an OSError whose cause has the status (`s3fs.errors`). Where botocore is not imported, the error is not its own.
    """
    if isinstance(error, ConnectionError | TimeoutError) or (isinstance(error, OSError) and error.errno in NO_ANSWER):
        return True
    answer: Any = getattr(error.__cause__, "response", None)
    if isinstance(answer, dict) and answer.get("ResponseMetadata", {}).get("HTTPStatusCode") in LATER:
        return True
    names: Any = sys.modules.get("botocore.exceptions")
    return (
        names is not None
        and isinstance(error, (names.ConnectionError, names.HTTPClientError))
        and not isinstance(error, names.SSLError)  # of a certificate: it stays as it is
    )


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """The store of this machine; with `ZERO_STORE=off` an empty one that is gone afterwards."""
    url = Settings().store
    if url == STORE_OFF:
        scratch = tempfile.mkdtemp(prefix="zero-store-")
        try:
            yield Store(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    else:
        here = home_dir(folder)
        local = (
            url if "://" in url else str(here / (url or f"{STATE_FOLDER}/store"))
        )  # a relative path is in the project
        yield Store(local)
