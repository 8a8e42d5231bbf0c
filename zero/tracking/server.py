"""Checks that an MLflow server answers, and turns its errors into one line."""

import contextlib
import time
from collections.abc import Iterator

import requests
from mlflow.exceptions import MlflowException

from zero.errors import ServerError

PROBES = 3
PROBE_SECONDS = 5
RETRY_SECONDS = 1
"""Seconds between probes. A missing server is reported after 2 seconds, one that hangs after 17."""


def check_server(uri: str) -> None:
    """Returns if an MLflow server answers at `uri`.

    Raises:
      ServerError: it does not answer, or is not an MLflow server.
    """
    reason = ""
    for probe in range(PROBES):
        if probe:
            time.sleep(RETRY_SECONDS)
        try:
            answer = requests.get(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS)
        except requests.RequestException as error:
            reason = f"does not answer ({type(error).__name__})"
        else:
            if answer.ok and answer.text.strip() == "OK":
                return
            reason = f"is not a healthy MLflow server (HTTP {answer.status_code} for /health)"
    raise ServerError(f"MLFLOW_TRACKING_URI = {uri} {reason}; start the servers with `make up`")


@contextlib.contextmanager
def answering(uri: str) -> Iterator[None]:
    """Turns the errors of the MLflow library into one line.

    Raises:
      ServerError: the server does not answer, or rejected a call.
    """
    check_server(uri)
    try:
        yield
    except (MlflowException, requests.RequestException) as error:
        reason = " ".join(str(error).split())[:300]
        raise ServerError(f"MLflow at {uri} failed: {reason}; check that it runs (`make up`) and repeat") from error


@contextlib.contextmanager
def unless(code: str) -> Iterator[None]:
    """Ignores the server's error `code`."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise
