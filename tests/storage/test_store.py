"""The store: a read gives the stored bytes or nothing."""

import errno
import os
import threading
import uuid
from pathlib import Path

import pytest

from zero.errors import StorageError
from zero.storage.files import sha256_bytes
from zero.storage.store import QUARANTINE_FOLDER, Store

KEY, OTHER_KEY = "ab" + "0" * 62, "ab" + "1" * 62
DATA = b"the games of a shard"


@pytest.fixture(params=["folder", "file URL", "memory"])
def store(request, tmp_path):
    """A store on each kind of file system."""
    if request.param == "memory":
        return Store(f"memory://store-{uuid.uuid4().hex}/below")
    return Store(("file://" if request.param == "file URL" else "") + str(tmp_path / "store"))


def files(store: Store) -> list[str]:
    """Names of all objects, relative to the store."""
    found = store._files.find(store._root)
    return sorted(str(path).removeprefix(store._root).lstrip("/") for path in found)


def overwrite(store: Store, name: str, data: bytes) -> None:
    """Overwrites an object, like a bad disk or a user."""
    store._files.pipe_file(f"{store._root}/{name}", data)


def test_weights_and_shards_can_be_read_back_and_are_stored_once(store):
    for _ in range(2):
        weights, shard = store.put_weights(DATA), store.put_shard(KEY, DATA)
    assert weights == shard == sha256_bytes(DATA)
    assert (store.get_weights(weights), store.get_shard(KEY)) == (DATA, (DATA, shard))
    assert files(store) == [f"shards/ab/{KEY}.{shard}.parquet", f"weights/{weights}.safetensors"]


def test_a_missing_shard_is_none(store):
    assert store.get_shard(KEY) is None
    store.put_shard(OTHER_KEY, DATA)  # now the folder is there
    assert store.get_shard(KEY) is None


def test_missing_weights_are_named_with_the_remedy(store):
    digest = sha256_bytes(DATA)
    with pytest.raises(StorageError, match=rf"weights {digest[:12]} are not in the store .*; run the stage again"):
        store.get_weights(digest)


@pytest.mark.parametrize("bad", [b"", DATA[:-1], DATA.replace(b"games", b"GAMES"), DATA + b"."])
def test_a_corrupt_shard_is_quarantined_and_stored_again(store, bad):
    digest = store.put_shard(KEY, DATA)
    name = f"shards/ab/{KEY}.{digest}.parquet"
    overwrite(store, name, bad)
    assert store.get_shard(KEY) is None
    aside, reason = files(store)
    assert aside.startswith(f"{QUARANTINE_FOLDER}/{KEY}.{digest}.parquet.")
    assert store._files.cat_file(f"{store._root}/{aside}") == bad
    assert reason == f"{aside}.reason.txt"
    assert store._files.cat_file(f"{store._root}/{reason}").startswith(b"corrupt")
    store.put_shard(KEY, DATA)
    assert store.get_shard(KEY) == (DATA, digest)


@pytest.mark.parametrize("bad", [b"", DATA[:-1], DATA.replace(b"games", b"GAMES")])
def test_corrupt_weights_are_quarantined_and_reported(store, bad):
    digest = store.put_weights(DATA)
    overwrite(store, f"weights/{digest}.safetensors", bad)
    with pytest.raises(
        StorageError, match=rf"weights/{digest}.safetensors in the store .* was corrupt and is quarantined"
    ):
        store.get_weights(digest)
    with pytest.raises(StorageError, match="are not in the store"):
        store.get_weights(digest)
    assert store.put_weights(DATA) == digest
    assert store.get_weights(digest) == DATA


def test_corrupt_objects_of_the_same_name_do_not_overwrite_each_other(store):
    for bad in (b"one", b"two"):
        digest = store.put_shard(KEY, DATA)
        overwrite(store, f"shards/ab/{KEY}.{digest}.parquet", bad)
        assert store.get_shard(KEY) is None
    assert len([name for name in files(store) if name.startswith(QUARANTINE_FOLDER)]) == 2 * 2  # each with its reason


def test_a_shard_is_quarantined_with_its_reason(store):
    digest, other = store.put_shard(KEY, DATA), store.put_shard(OTHER_KEY, DATA)
    assert store.quarantine_shard(KEY, "its games break the rules")
    assert store.get_shard(KEY) is None
    assert store.get_shard(OTHER_KEY) == (DATA, other)
    aside, reason, _ = files(store)
    assert aside.startswith(f"{QUARANTINE_FOLDER}/{KEY}.{digest}.parquet.")
    assert store._files.cat_file(f"{store._root}/{aside}") == DATA
    assert store._files.cat_file(f"{store._root}/{reason}") == b"its games break the rules\n"
    assert not store.quarantine_shard(KEY, "again")  # nothing is there any more
    assert len(files(store)) == 3


def test_both_shards_of_two_machines_are_quarantined(store):
    store.put_shard(KEY, DATA)
    store.put_shard(KEY, b"other bits")
    assert store.quarantine_shard(KEY, "they differ")
    assert store.get_shard(KEY) is None


def test_an_object_that_another_process_quarantined_is_not_an_error(store):
    digest = store.put_shard(KEY, DATA)
    store.quarantine_shard(KEY, "first")
    before = files(store)
    store._quarantine(f"shards/ab/{KEY}.{digest}.parquet", "second")
    assert files(store) == before


@pytest.mark.parametrize("bad", [DATA[:3], DATA.replace(b"games", b"GAMES")], ids=["shorter", "as long"])
def test_storing_again_repairs_a_corrupt_object(store, bad):
    digest = store.put_weights(DATA)
    overwrite(store, f"weights/{digest}.safetensors", bad)
    store.put_weights(DATA)
    assert store.get_weights(digest) == DATA


def test_a_client_without_delete_permission_reports_a_corrupt_object_and_can_repair_it(store, monkeypatch, caplog):
    shard, weights = store.put_shard(KEY, DATA), store.put_weights(DATA)
    overwrite(store, f"shards/ab/{KEY}.{shard}.parquet", b"bad")
    overwrite(store, f"weights/{weights}.safetensors", b"bad")
    put = store._files.pipe_file

    def refuse(path, data):
        if QUARANTINE_FOLDER in path:
            raise PermissionError("Access Denied.")
        put(path, data)

    monkeypatch.setattr(store._files, "pipe_file", refuse)
    with pytest.raises(StorageError, match=rf"weights/{weights}.* may not quarantine it; .*the trainer rewrites it"):
        store.get_weights(weights)
    assert store.get_shard(KEY) is None and f"shards/ab/{KEY}.{shard}.parquet" in caplog.text
    with pytest.raises(StorageError, match="cannot quarantine"):
        store.quarantine_shard(KEY, "its games break the rules")
    assert store.put_shard(KEY, DATA) == shard and store.put_weights(DATA) == weights
    assert store.get_shard(KEY) == (DATA, shard) and store.get_weights(weights) == DATA


def test_a_good_shard_is_found_beside_a_bad_one(store):
    # Two machines that differ in their bits have both put theirs.
    one, other = store.put_shard(KEY, DATA), store.put_shard(KEY, b"other bits")
    first, second = sorted([one, other])
    assert store.get_shard(KEY).sha256 == first
    overwrite(store, f"shards/ab/{KEY}.{first}.parquet", b"bad")
    assert store.get_shard(KEY).sha256 == second


def test_concurrent_writers_leave_an_object_complete(store):
    data = bytes(300_000)
    errors = []

    def write() -> None:
        try:
            own = Store(store.url)
            for _ in range(5):
                own.put_shard(KEY, data)
                assert own.get_shard(KEY) == (data, sha256_bytes(data))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(files(store)) == 1


def test_a_file_that_is_being_written_is_not_a_shard(tmp_path):
    store = Store(str(tmp_path))
    (tmp_path / "shards" / "ab").mkdir(parents=True)
    (tmp_path / "shards" / "ab" / f".{KEY}.{sha256_bytes(DATA)}.parquet.{uuid.uuid4().hex}").write_bytes(DATA[:3])
    assert store.get_shard(KEY) is None


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("put", [lambda s: s.put_weights(DATA), lambda s: s.put_shard(KEY, DATA)])
def test_a_full_disk_leaves_nothing_and_is_reported(tmp_path, monkeypatch, step, put):
    store = Store(str(tmp_path / "store"))

    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(
        StorageError, match=r"cannot write to the store .*No space left on device; free space or set ZERO_STORE"
    ):
        put(store)
    assert files(store) == []


def test_a_disk_that_cannot_be_written_is_reported():
    # Not even by root, as which tests may run.
    assert Path("/proc/self").exists()
    store = Store("/proc/self/store")
    with pytest.raises(StorageError, match="cannot write to the store /proc/self/store"):
        store.put_weights(DATA)
    assert store.get_shard(KEY) is None


def test_a_store_that_is_a_file_is_reported(tmp_path):
    (tmp_path / "store").write_text("")
    store = Store(str(tmp_path / "store"))
    with pytest.raises(StorageError, match="cannot write to the store"):
        store.put_shard(KEY, DATA)
    with pytest.raises(StorageError, match="does not answer"):
        store.get_shard(KEY)


@pytest.mark.parametrize("url", ["gopher9://host/store", "zip://no/such.zip"])
def test_a_store_that_cannot_be_opened_is_named_with_the_remedy(url):
    with pytest.raises(
        StorageError, match=rf"cannot open the store '{url}': .*set ZERO_STORE to a folder or an s3:// URL"
    ):
        Store(url)


@pytest.mark.parametrize(
    ("method", "call", "message"),
    [
        ("ls", lambda s: s.get_shard(KEY), "does not answer"),
        ("cat_file", lambda s: s.get_weights(sha256_bytes(DATA)), "does not answer"),
        ("info", lambda s: s.put_weights(DATA), "cannot write to the store"),
        ("pipe_file", lambda s: s.put_shard(KEY, DATA), "cannot write to the store"),
    ],
)
def test_an_error_of_any_type_is_reported(monkeypatch, method, call, message):
    # botocore's NoCredentialsError and EndpointConnectionError are no OSError
    class ServerError(Exception):
        pass

    def fail(*arguments, **options):
        raise ServerError("Unable to locate credentials")

    store = Store(f"memory://store-{uuid.uuid4().hex}")
    monkeypatch.setattr(store._files, method, fail)
    with pytest.raises(StorageError, match=rf"{message}.*Unable to locate credentials"):
        call(store)


def test_files_and_results_of_a_training_can_be_read_back(store):
    digest = store.put_file(DATA)
    assert store.get_file(digest) == DATA and store.get_file("f" * 64) is None
    store.put_training(KEY, b"one")
    assert store.get_trainings(KEY) == [b"one"] and store.get_trainings("e" * 64) == []


def test_a_shard_has_a_receipt_for_each_time_that_it_was_played(store):
    digest = sha256_bytes(DATA)
    assert store.get_receipts(KEY) == []
    store.put_receipt(KEY, digest, "host:1", b"one")
    store.put_receipt(KEY, digest, "rack 3/host:2", b"two")
    store.put_receipt(KEY, digest, "host:1" * 40, b"three")
    store.put_receipt(KEY, digest, "host:1", b"again")
    store.put_receipt(OTHER_KEY, digest, "host:1", b"of another shard")
    assert sorted(store.get_receipts(KEY)) == [b"again", b"one", b"three", b"two"]
    assert f"receipts/ab/{KEY}.{digest}.rack-3-host-2-{sha256_bytes(b'two')[:8]}.json" in files(store)
    assert store.get_shard(KEY) is None
