"""The S3 store by the commands of compose.yaml, run here: SeaweedFS, its gateway, and what each role may do there."""

import configparser
import shutil
import struct
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session  # type: ignore[import-untyped]
import httpx
import psutil
import pytest
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.cluster.parts import program
from tests.cluster.stack import needs_cluster
from tests.infra.compose import HOST, running, wait_until_it_answers
from tests.infra.servers import free_port

pytestmark = needs_cluster

UNAUTHENTICATED = "16"
"""Of the statuses of gRPC."""
WEIGHTS = "weights/" + "ab" * 32 + ".safetensors"
SHARD = "shards/ab/" + "ab" * 32 + "." + "cd" * 32 + ".parquet"
RECEIPT = "receipts/ab/" + "ab" * 32 + "." + "cd" * 32 + ".host-1-01234567.json"
TRAININGS = ["files/" + "ab" * 32, "trainings/ab/a.json"]


class Gateway(NamedTuple):
    """The S3 gateway of a store on loopback."""

    url: str
    secrets: Path
    process: psutil.Process
    grpc_port: int
    """Where SeaweedFS' own servers reach it."""

    def client(self, role: str) -> Any:
        """An S3 client with the key of a role."""
        parser = configparser.ConfigParser()
        parser.read(self.secrets / f"s3-{role}")
        return client_of(self.url, **parser["default"])


def client_of(url: str, **key: str) -> Any:
    """An S3 client with that key."""
    return botocore.session.get_session().create_client("s3", "us-east-1", endpoint_url=url, **key)


def is_refused(call: Callable[..., Any], **words: str | bytes) -> bool:
    """True if the gateway does not allow that call."""
    try:
        call(**words)
    except ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403), error
        return True
    return False


@pytest.fixture(scope="module")
def gateway(secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("seaweedfs")
    (folder / "data").mkdir()
    servers = {name: (free_port(), free_port()) for name in ("master", "volume", "filer")}
    s3, s3_grpc = free_port(), free_port()
    options = [f"-{name}.port={pair[0]}" for name, pair in servers.items()]
    options += [f"-{name}.port.grpc={pair[1]}" for name, pair in servers.items()]
    options.append("-master.telemetry=false")
    filer = "{}:{}.{}".format(HOST, *servers["filer"])
    weed, logs = [program("weed")], (folder / "store.log", folder / "s3.log")
    with ExitStack() as ends:
        places = {"=store": f"={HOST}", "=/data": f"={folder}/data", "/run/secrets": str(secrets)}
        store = ends.enter_context(running("store", weed, logs[0], places, folder, options=options))
        wait_until_it_answers(f"http://{HOST}:{servers['filer'][0]}/", store, logs[0])
        places = {"store:8888": filer, "-port=8333": f"-port={s3}", "/run/secrets": str(secrets)}
        process = ends.enter_context(running("s3", weed, logs[1], places, folder, options=[f"-port.grpc={s3_grpc}"]))
        wait_until_it_answers(f"http://{HOST}:{s3}/status", process, logs[1])
        made = Gateway(f"http://{HOST}:{s3}", secrets, psutil.Process(process.pid), s3_grpc)
        for bucket in ("zero-store", "zero-mlflow"):
            made.client("admin").create_bucket(Bucket=bucket)
        for key in (WEIGHTS, SHARD, "quarantine/old"):
            made.client("trainer").put_object(Bucket="zero-store", Key=key, Body=b"bytes")
        made.client("mlflow").put_object(Bucket="zero-mlflow", Key="1/model", Body=b"bytes")
        yield made


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


@pytest.mark.parametrize(
    ("role", "own", "other"), [("mlflow", "zero-mlflow", "zero-store"), ("trainer", "zero-store", "zero-mlflow")]
)
def test_mlflow_and_the_trainer_have_a_bucket_each(gateway: Gateway, role: str, own: str, other: str) -> None:
    client = gateway.client(role)
    client.put_object(Bucket=own, Key="1/model", Body=b"bytes")
    assert is_refused(client.get_object, Bucket=other, Key=WEIGHTS if role == "mlflow" else "1/model")
    assert is_refused(client.put_object, Bucket=other, Key="1/new", Body=b"bytes")


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


def test_a_stranger_is_not_made_admin_without_a_token(gateway: Gateway) -> None:
    """Asks by gRPC, as SeaweedFS' own servers do."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    access, secret = "key-of-a-stranger", "secret-of-a-stranger"
    credential = field(1, access.encode()) + field(2, secret.encode())
    request = field(1, field(1, b"stranger") + field(2, credential) + field(3, b"Admin"))
    with httpx.Client(http1=False, http2=True, trust_env=False) as client:
        answer = client.post(
            f"http://{HOST}:{gateway.grpc_port}/messaging_pb.SeaweedS3IamCache/PutIdentity",
            content=b"\0" + struct.pack(">I", len(request)) + request,
            headers={"Content-Type": "application/grpc", "TE": "trailers"},
        )
    assert answer.headers.get("grpc-status") == UNAUTHENTICATED  # of a success it comes after the body
    stranger = client_of(gateway.url, aws_access_key_id=access, aws_secret_access_key=secret)
    assert is_refused(stranger.create_bucket, Bucket="mine")


def test_the_gateway_opens_no_other_port(gateway: Gateway) -> None:
    listening = {entry.laddr.port for entry in gateway.process.net_connections() if entry.status == psutil.CONN_LISTEN}
    assert listening == {int(gateway.url.rpartition(":")[2]), gateway.grpc_port}


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
