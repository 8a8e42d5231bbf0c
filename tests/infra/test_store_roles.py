"""What each role of `infra/secrets` may do in the S3 store: a real SeaweedFS."""

import shutil
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cluster.stack import Stack, needs_cluster
from tests.infra.gateway import UNAUTHENTICATED, Gateway, Stranger, is_refused

pytestmark = needs_cluster

WEIGHTS = "weights/" + "ab" * 32 + ".safetensors"
SHARD = "shards/ab/" + "ab" * 32 + "." + "cd" * 32 + ".parquet"
RECEIPT = "receipts/ab/" + "ab" * 32 + "." + "cd" * 32 + ".host-1.json"
TRAININGS = ["files/" + "ab" * 32, "trainings/ab/a.json"]


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Gateway:
    made = Gateway(f"http://127.0.0.1:{stack.cluster.ports['s3']}", stack.cluster.secrets)
    for key in (WEIGHTS, SHARD, "quarantine/old"):
        made.client("trainer").put_object(Bucket="zero-store", Key=key, Body=b"bytes")
    made.client("mlflow").put_object(Bucket="zero-mlflow", Key="1/model", Body=b"bytes")
    return made


@pytest.mark.parametrize("key", [SHARD, RECEIPT, *TRAININGS])
def test_a_worker_puts_and_finds_shards_receipts_and_trainings(gateway: Gateway, key: str) -> None:
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
        ("zero-store", "quarantine/new"),
        ("zero-store", "shards"),
        ("zero-store", "shards-of-mine/a"),
        ("zero-store", "shards/../weights/a"),
        ("zero-store", "shards/ab/../../weights/a"),
        ("zero-store", "shards/../../zero-mlflow/a"),
        ("zero-store", "shards\\..\\weights\\a"),
        ("zero-mlflow", "shards/ab/a"),
        ("zero-mlflow", "1/model"),
    ],
)
def test_a_worker_puts_nothing_elsewhere(gateway: Gateway, bucket: str, key: str) -> None:
    assert is_refused(gateway.client("worker").put_object, Bucket=bucket, Key=key, Body=b"bytes")


def test_a_worker_reads_and_lists_nothing_else(gateway: Gateway) -> None:
    worker = gateway.client("worker")
    assert is_refused(worker.get_object, Bucket="zero-store", Key="quarantine/old")
    assert is_refused(worker.get_object, Bucket="zero-store", Key="shards/../quarantine/old")
    assert is_refused(worker.get_object, Bucket="zero-store", Key="shards/../../zero-mlflow/1/model")
    assert is_refused(worker.get_object, Bucket="zero-mlflow", Key="1/model")
    assert is_refused(worker.copy_object, Bucket="zero-store", Key="shards/ab/a", CopySource="zero-mlflow/1/model")
    for prefix in ("shards/../weights/", "shards/../../zero-mlflow/"):  # SeaweedFS finds nothing under such a name
        assert worker.list_objects_v2(Bucket="zero-store", Prefix=prefix)["KeyCount"] == 0
    assert is_refused(worker.list_objects_v2, Bucket="zero-store")
    assert is_refused(worker.list_objects_v2, Bucket="zero-store", Prefix="weights/")
    assert is_refused(worker.list_objects_v2, Bucket="zero-mlflow")
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


def test_nobody_is_made_admin_without_a_token(gateway: Gateway, stack: Stack) -> None:
    stranger = Stranger()
    assert stranger.ask_to_be_admin(stack.cluster.ports["s3_grpc"]) == UNAUTHENTICATED
    assert is_refused(stranger.client(gateway.url).create_bucket, Bucket="mine")


def test_a_worker_needs_no_more_than_its_role_has(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem  # type: ignore[import-untyped]

    from zero.storage.files import sha256_bytes
    from zero.storage.store import Store

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
