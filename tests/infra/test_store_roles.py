"""What each role of `infra/secrets` may do in the S3 store: a real SeaweedFS, started as compose.yaml starts it."""

import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session  # type: ignore[import-untyped]
import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.end_to_end.project import SOURCE_DIR, run
from tests.infra.compose import merged
from tests.infra.servers import free_port
from tests.infra.test_secrets import credentials

pytestmark = pytest.mark.skipif(not shutil.which("weed"), reason="SeaweedFS (weed) is not installed")

WEIGHTS = "weights/" + "ab" * 32 + ".safetensors"
SHARD = "shards/ab/" + "ab" * 32 + "." + "cd" * 32 + ".parquet"
RECEIPT = "receipts/ab/" + "ab" * 32 + "." + "cd" * 32 + ".host-1.json"


class Gateway(NamedTuple):
    """The S3 gateway of a store on loopback."""

    url: str
    secrets: Path

    def client(self, role: str) -> Any:
        """An S3 client with the key of a role."""
        access, secret = credentials(self.secrets, role)
        given = {"aws_access_key_id": access, "aws_secret_access_key": secret}
        return botocore.session.get_session().create_client("s3", "us-east-1", endpoint_url=self.url, **given)


@pytest.fixture(scope="module")
def gateway(secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("seaweedfs")
    names = ("master", "volume", "filer", "s3")
    ports = {name: free_port() for name in names}
    grpc = {name: free_port() for name in names}
    services = merged()["services"]
    store = [*services["store"]["command"], *(f"-{n}.port={ports[n]}" for n in names[:3])]
    store += [f"-{n}.port.grpc={grpc[n]}" for n in names[:3]]
    filer = f"127.0.0.1:{ports['filer']}.{grpc['filer']}"
    s3 = [*services["s3"]["command"], f"-filer={filer}", f"-port={ports['s3']}", f"-port.grpc={grpc['s3']}"]
    here = {"-ip=store": "-ip=127.0.0.1", "-ip.bind=0.0.0.0": "-ip.bind=127.0.0.1", "-dir=/data": f"-dir={folder}"}
    here |= {"-config=/run/secrets/s3-identities.json": f"-config={secrets}/s3-identities.json"}
    processes = []
    with (folder / "log").open("wb") as log:
        try:
            for words, url in (
                (store, f"http://127.0.0.1:{ports['filer']}/"),
                (s3, f"http://127.0.0.1:{ports['s3']}/status"),
            ):
                command = ["weed", *(here.get(word, word) for word in words)]
                processes.append(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
                wait_for(url, folder / "log")
            made = Gateway(f"http://127.0.0.1:{ports['s3']}", secrets)
            settings = {"AWS_ENDPOINT_URL_S3": made.url, "AWS_SHARED_CREDENTIALS_FILE": str(secrets / "s3-admin")}
            run(
                [sys.executable, "-m", "infra.buckets", *services["buckets"]["command"][3:]],
                SOURCE_DIR,
                True,
                **settings,
            )
            for key in (WEIGHTS, SHARD, "set-aside/old"):
                made.client("trainer").put_object(Bucket="zero-store", Key=key, Body=b"bytes")
            yield made
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(30)


def wait_for(url: str, log: Path) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)


def is_refused(call: Callable[..., Any], **words: str | bytes) -> bool:
    try:
        call(**words)
    except ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403), error
        return True
    return False


@pytest.mark.parametrize("key", [SHARD, RECEIPT])
def test_a_worker_puts_and_finds_shards_and_receipts(gateway: Gateway, key: str) -> None:
    worker = gateway.client("worker")
    worker.put_object(Bucket="zero-store", Key=key, Body=b"games")
    assert worker.get_object(Bucket="zero-store", Key=key)["Body"].read() == b"games"
    folder = key.rsplit("/", 1)[0] + "/"
    listed = worker.list_objects_v2(Bucket="zero-store", Prefix=folder, Delimiter="/")["Contents"]
    assert key in [entry["Key"] for entry in listed]


def test_a_worker_reads_weights(gateway: Gateway) -> None:
    assert gateway.client("worker").get_object(Bucket="zero-store", Key=WEIGHTS)["Body"].read() == b"bytes"


@pytest.mark.parametrize(
    ("bucket", "key"),
    [
        ("zero-store", WEIGHTS),
        ("zero-store", "set-aside/new"),
        ("zero-store", "shards"),
        ("zero-store", "shards-of-mine/a"),
        ("zero-store", "shards/../weights/a"),
        ("zero-record", "shards/ab/a"),
        ("zero-mlflow", "1/model"),
    ],
)
def test_a_worker_puts_nothing_elsewhere(gateway: Gateway, bucket: str, key: str) -> None:
    assert is_refused(gateway.client("worker").put_object, Bucket=bucket, Key=key, Body=b"bytes")


def test_a_worker_reads_and_lists_nothing_else(gateway: Gateway) -> None:
    worker = gateway.client("worker")
    assert is_refused(worker.get_object, Bucket="zero-store", Key="set-aside/old")
    assert is_refused(worker.list_objects_v2, Bucket="zero-store")
    assert is_refused(worker.list_objects_v2, Bucket="zero-store", Prefix="weights/")
    assert is_refused(worker.list_objects_v2, Bucket="zero-record")
    assert is_refused(worker.delete_object, Bucket="zero-store", Key=WEIGHTS)
    assert is_refused(worker.create_bucket, Bucket="mine")


def test_mlflow_has_its_own_bucket_alone(gateway: Gateway) -> None:
    mlflow = gateway.client("mlflow")
    mlflow.put_object(Bucket="zero-mlflow", Key="1/model", Body=b"bytes")
    assert is_refused(mlflow.get_object, Bucket="zero-store", Key=WEIGHTS)


def test_a_backup_reads_all_and_writes_nothing(gateway: Gateway) -> None:
    backup = gateway.client("backup")
    assert backup.list_objects_v2(Bucket="zero-store")["KeyCount"] >= 3
    assert is_refused(backup.put_object, Bucket="zero-store", Key=SHARD, Body=b"bytes")


def test_a_wrong_key_and_no_key_are_refused(gateway: Gateway, tmp_path: Path) -> None:
    for path in gateway.secrets.glob("s3-*"):
        shutil.copy(path, tmp_path)
    worker = tmp_path / "s3-worker"
    worker.write_text(worker.read_text().replace("aws_secret_access_key = ", "aws_secret_access_key = 0"))
    assert is_refused(gateway._replace(secrets=tmp_path).client("worker").get_object, Bucket="zero-store", Key=WEIGHTS)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{gateway.url}/zero-store/{WEIGHTS}", timeout=10)


def test_a_worker_needs_no_more_than_its_role_has(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem  # type: ignore[import-untyped]

    from zero.artifacts import sha256_bytes
    from zero.storage import Store

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", gateway.url)
    for role in ("trainer", "worker"):
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(gateway.secrets / f"s3-{role}"))
        S3FileSystem.clear_instance_cache()  # or it would keep the key it began with
        store = Store("s3://zero-store")
        if role == "trainer":
            digest = store.put_weights(b"network")
    key = "ef" * 32
    assert store.get_shard(key) is None
    assert store.get_weights(digest) == b"network"
    store.put_receipt(key, sha256_bytes(b"games"), "gpu-0", b"{}")
    store.put_shard(key, b"games")
    assert store.get_receipts(key) == [b"{}"]
    found = store.get_shard(key)
    assert found is not None and found.data == b"games"
