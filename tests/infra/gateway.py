"""Clients of an S3 gateway: those who have a role of `infra/secrets`, and one who has none."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session  # type: ignore[import-untyped]
import httpx
from botocore.exceptions import ClientError  # type: ignore[import-untyped]

from tests.infra.test_secrets import credentials

UNAUTHENTICATED = "16"
"""Of the statuses of gRPC."""


class Gateway(NamedTuple):
    """The S3 gateway of a store on loopback."""

    url: str
    secrets: Path

    def client(self, role: str) -> Any:
        """An S3 client with the key of a role."""
        return client_of(self.url, *credentials(self.secrets, role))


class Stranger(NamedTuple):
    """Who makes up a key."""

    access: str = "key-of-a-stranger"
    secret: str = "secret-of-a-stranger"

    def client(self, url: str) -> Any:
        """An S3 client with that key."""
        return client_of(url, self.access, self.secret)

    def ask_to_be_admin(self, port: int) -> str | None:
        """Asks by gRPC, as SeaweedFS' own servers do; the status of a refusal."""

        def field(number: int, content: bytes) -> bytes:
            return bytes([number << 3 | 2, len(content)]) + content

        credential = field(1, self.access.encode()) + field(2, self.secret.encode())
        request = field(1, field(1, b"stranger") + field(2, credential) + field(3, b"Admin"))
        with httpx.Client(http1=False, http2=True, trust_env=False) as client:
            answer = client.post(
                f"http://127.0.0.1:{port}/messaging_pb.SeaweedS3IamCache/PutIdentity",
                content=b"\0" + struct.pack(">I", len(request)) + request,
                headers={"Content-Type": "application/grpc", "TE": "trailers"},
            )
        status: str | None = answer.headers.get("grpc-status")  # of a success it comes after the body
        return status


def is_refused(call: Callable[..., Any], **words: str | bytes) -> bool:
    """True where the gateway does not allow that call."""
    try:
        call(**words)
    except ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403), error
        return True
    return False


def client_of(url: str, access: str, secret: str) -> Any:
    """An S3 client with that key."""
    given = {"aws_access_key_id": access, "aws_secret_access_key": secret}
    return botocore.session.get_session().create_client("s3", "us-east-1", endpoint_url=url, **given)
