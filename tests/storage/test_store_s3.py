"""The store on S3: an unreachable server, denied access, unknown keys, with the exceptions of a real client."""

import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import fsspec
import pytest

from zero.errors import StorageError
from zero.storage.files import sha256_bytes
from zero.storage.store import CORRUPT, Store

DATA = b"the games of a shard"


class S3Server(ThreadingHTTPServer):
    """A bucket in memory. Each request of a method first uses up one status in its `troubles`.

    The next request of each method in `lost` is carried out, but answered as if it were not.
    """

    def __init__(self) -> None:
        """Reserves a port on which no server listens yet."""
        super().__init__(("127.0.0.1", 0), S3Answers, bind_and_activate=False)
        self.server_bind()
        self.objects: dict[str, bytes] = {}
        self.troubles: dict[str, list[int]] = {}
        self.lost: list[str] = []
        self.etag = "{md5}"
        self.asked: list[str] = []
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def start(self) -> None:
        self.server_activate()
        self.thread.start()

    def stop(self) -> None:
        if self.thread.is_alive():
            self.shutdown()
        self.server_close()


class S3Answers(BaseHTTPRequestHandler):
    """The part of S3 that a store needs, without signatures, which the tests with a real server cover."""

    server: S3Server
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes = b"", length: int | None = None, etag: str = "") -> None:
        self.send_response(status)
        if etag:
            self.send_header("ETag", f'"{etag}"')
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def handle_request_of(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        objects, url = self.server.objects, urlsplit(self.path)
        self.server.asked.append(method)
        key, query = url.path.removeprefix("/bucket").lstrip("/"), parse_qs(url.query)
        if method in self.server.lost:
            self.server.lost.remove(method)
            for deleted in re.findall(r"<Key>([^<]+)</Key>", body.decode()):
                objects.pop(deleted)
            self.answer(503)
        elif troubles := self.server.troubles.get(method):
            self.answer(troubles.pop(0))
        elif method == "POST":  # several are deleted
            for deleted in re.findall(r"<Key>([^<]+)</Key>", body.decode()):
                objects.pop(deleted)
            self.answer(200, b"<DeleteResult></DeleteResult>")
        elif method == "PUT":
            source = self.headers.get("x-amz-copy-source")
            objects[key] = objects[unquote(source).removeprefix("bucket/")] if source else body
            self.answer(200, b"<CopyObjectResult></CopyObjectResult>" if source else b"")
        elif query:
            found = [name for name in objects if name.startswith(query["prefix"][0])]
            entries = "".join(f"<Contents><Key>{name}</Key><Size>1</Size></Contents>" for name in found)
            self.answer(200, f"<ListBucketResult>{entries}</ListBucketResult>".encode())
        elif key in objects:
            whole = objects[key]
            etag = self.server.etag.format(md5=hashlib.md5(whole, usedforsecurity=False).hexdigest())
            self.answer(200, b"" if method == "HEAD" else whole, len(whole), etag)
        else:
            self.answer(404)

    def do_GET(self) -> None:
        self.handle_request_of("GET")

    def do_HEAD(self) -> None:
        self.handle_request_of("HEAD")

    def do_PUT(self) -> None:
        self.handle_request_of("PUT")

    def do_POST(self) -> None:
        self.handle_request_of("POST")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def s3(monkeypatch) -> Iterator[S3Server]:
    """A server that is down; clients try once, and the store retries soon."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    for name, value in {"ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "k", "MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr("zero.storage.store.FIRST_RETRY_SECONDS", 0.01)
    s3_class = fsspec.get_filesystem_class("s3")
    s3_class.clear_instance_cache()
    server = S3Server()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.stop()
    s3_class.clear_instance_cache()


def test_requests_to_an_unreachable_s3_server_are_retried(s3, monkeypatch):
    told: list[str] = []

    def hear(text: str, *words: object) -> None:
        told.append(text % words)
        if len(told) == 2:
            s3.start()

    monkeypatch.setattr("zero.storage.store.log.warning", hear)
    store = Store("s3://bucket/store")
    digest = store.put_weights(DATA)  # what is raised meanwhile: botocore's EndpointConnectionError
    assert len(told) == 2 and "does not answer (Could not connect to the endpoint URL" in told[0]
    s3.troubles = {"HEAD": [500, 502, 503], "GET": [504, 429]}
    assert store.get_weights(digest) == DATA
    s3.objects[f"store/weights/{digest}.safetensors"] = b"bad"
    s3.troubles |= {"PUT": [502], "POST": [503]}
    with pytest.raises(StorageError, match="was corrupt and is quarantined"):
        store.get_weights(digest)
    assert sorted(s3.objects.values()) == [b"bad", f"{CORRUPT}\n".encode()]
    assert not any(s3.troubles.values())


@pytest.mark.parametrize(
    ("etag", "there", "wanted"),
    [
        ("{md5}", DATA, []),
        ("{md5}-2", DATA, ["GET"]),  # put there in two parts
        ("0" * 32, DATA, ["GET"]),  # encrypted there
        ("{md5}", DATA[::-1], ["GET", "PUT"]),
        ("{md5}", DATA[1:], ["PUT"]),
    ],
)
def test_an_equal_object_is_not_stored_again_nor_read_if_the_server_gives_its_md5(s3, etag, there, wanted):
    s3.start()
    store = Store("s3://bucket/store")
    name = f"store/weights/{store.put_weights(DATA)}.safetensors"
    s3.etag, s3.objects[name] = etag, there
    s3.asked.clear()
    store.put_weights(DATA)
    assert [method for method in s3.asked if method != "HEAD"] == wanted
    assert s3.objects[name] == DATA


def test_an_object_that_another_client_quarantined_after_the_listing_is_stored_again(s3):
    s3.start()
    store = Store("s3://bucket/store")
    name = f"store/weights/{store.put_weights(DATA)}.safetensors"
    store._files.ls("bucket/store/weights")
    del s3.objects[name]
    store.put_weights(DATA)
    assert s3.objects[name] == DATA


def test_a_quarantined_object_keeps_its_reason_if_the_answer_to_its_removal_is_lost(s3):
    s3.start()
    store = Store("s3://bucket/store")
    digest = store.put_shard("ab" + "0" * 62, DATA)
    s3.lost = ["POST"]  # the removal is requested again, and finds nothing
    assert store.quarantine_shard("ab" + "0" * 62, "its games break the rules")
    assert sorted(s3.objects.values()) == [b"its games break the rules\n", DATA]
    assert not any(f"shards/ab/{'ab' + '0' * 62}.{digest}" in name for name in s3.objects)


@pytest.mark.parametrize("outage_seconds", [0.3, 1e9])
def test_a_server_that_stays_unreachable_or_denies_access_is_reported(s3, monkeypatch, outage_seconds):
    monkeypatch.setattr("zero.storage.store.OUTAGE_SECONDS", outage_seconds)
    if outage_seconds > 1:
        s3.troubles = {"HEAD": [403]}
        s3.start()
    with pytest.raises(StorageError, match=r"does not answer: (Could not connect|Forbidden)"):
        Store("s3://bucket/store").get_weights(sha256_bytes(DATA))


def test_s3_without_credentials_is_reported(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # another test's has credentials
    with pytest.raises(StorageError, match=r"the store s3://bucket/store does not answer: .*credentials"):
        Store("s3://bucket/store").get_shard("ab" + "0" * 62)
