"""The reverse proxy, a real Caddy with certificates that it signs itself, before a server of this machine."""

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from infra.pools import api_of_environment, fetch
from tests.end_to_end.project import SOURCE_DIR
from tests.infra.servers import free_port

pytestmark = pytest.mark.skipif(not shutil.which("caddy"), reason="caddy is not installed")

CADDYFILE = SOURCE_DIR / "infra/proxy/Caddyfile"


class Echo(BaseHTTPRequestHandler):
    """Answers with the host that it was asked for, or with the credentials it was given."""

    def do_GET(self) -> None:
        given = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic "))
        body = given if self.path == "/api/credentials" else self.headers["Host"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


class Proxy(NamedTuple):
    """A proxy for lab.test, and the certificate that its clients need."""

    https: int
    http: int
    root: Path

    def get(self, host: str, context: ssl.SSLContext, path: str = "/") -> tuple[HTTPResponse, str]:
        """Asks for a host by TLS, at this machine."""
        plain = socket.create_connection(("127.0.0.1", self.https), timeout=10)
        with plain, context.wrap_socket(plain, server_hostname=host) as wrapped:
            wrapped.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = HTTPResponse(wrapped)
            answer.begin()
            return answer, answer.read().decode()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("caddy")
    server = HTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    made = Proxy(free_port(), free_port(), folder / "caddy/pki/authorities/local/root.crt")
    ports = {f"ZERO_{name}_PORT": str(server.server_port) for name in ("PREFECT", "MLFLOW", "S3")}
    ports |= {"ZERO_HTTP_PORT": str(made.http), "ZERO_HTTPS_PORT": str(made.https)}
    names = {"ZERO_DOMAIN": "lab.test", "ZERO_TLS": "internal", "XDG_DATA_HOME": str(folder), "HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        caddy = subprocess.Popen(
            ["caddy", "run", "--adapter", "caddyfile", "--config", str(CADDYFILE)],
            env=os.environ | ports | names,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + 30
        while not all(has_certificate(made, name) for name in ("prefect", "mlflow", "s3")):
            assert caddy.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        yield made
    finally:
        caddy.terminate()
        caddy.wait(30)
        server.shutdown()
        server.server_close()


def has_certificate(proxy: Proxy, name: str) -> bool:
    """True once Caddy, which makes them one after the other, has one for that name."""
    try:
        proxy.get(f"{name}.lab.test", ssl.create_default_context(cafile=str(proxy.root)))
    except OSError:  # ssl's errors are of this kind
        return False
    return True


@pytest.mark.parametrize("name", ["prefect", "mlflow", "s3"])
def test_a_client_with_the_root_certificate_gets_through(proxy: Proxy, name: str) -> None:
    answer, body = proxy.get(f"{name}.lab.test", ssl.create_default_context(cafile=str(proxy.root)))
    assert (answer.status, body) == (200, f"{name}.lab.test")  # S3 signs the host, MLflow has a list of those it allows
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.parametrize(("length", "status"), [(255, 200), (256, 400)])
def test_mlflow_is_not_asked_for_an_artifact_whose_name_is_too_long(proxy: Proxy, length: int, status: int) -> None:
    path = "/api/2.0/mlflow-artifacts/artifacts/a/" + "x" * length + "/b"
    answer, _ = proxy.get("mlflow.lab.test", ssl.create_default_context(cafile=str(proxy.root)), path)
    assert answer.status == status


def test_certificates_are_asked_for_without_a_made_up_contact() -> None:
    command = ["caddy", "adapt", "--adapter", "caddyfile", "--config", str(CADDYFILE)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ZERO_")}
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    (policy,) = json.loads(shown)["apps"]["tls"]["automation"]["policies"]
    assert policy["issuers"] == [{"module": "acme"}]


def test_our_own_requests_trust_the_root_that_prefect_is_told_of(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *rest, **more: look_up("127.0.0.1", *rest, **more))
    words = {
        "PREFECT_API_URL": f"https://prefect.lab.test:{proxy.https}/api",
        "PREFECT_API_AUTH_STRING": "zero:a/b#c?d@e",
    }
    api = api_of_environment(words)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(f"{api}/credentials", patience=0)
    monkeypatch.setenv("PREFECT_API_SSL_CERT_FILE", str(proxy.root))
    assert fetch(f"{api}/credentials") == "zero:a/b#c?d@e"


def test_another_host_is_refused(proxy: Proxy) -> None:
    with pytest.raises(ssl.SSLError):
        proxy.get("evil.test", ssl.create_default_context(cafile=str(proxy.root)))


def test_plain_http_is_sent_to_tls(proxy: Proxy) -> None:
    connection = HTTPConnection("127.0.0.1", proxy.http, timeout=10)
    connection.request("GET", "/", headers={"Host": "prefect.lab.test"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Location"].split("/")[2].split(":")[0]) == (308, "prefect.lab.test")
    connection.close()
