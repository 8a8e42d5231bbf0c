"""Whether an MLflow server answers, and what it says where it refuses."""

import contextlib
import time
from collections.abc import Iterator

import requests
from mlflow.exceptions import MlflowException

from zero.errors import ServerError

PROBES = 3
PROBE_SECONDS = 5
RETRY_SECONDS = 1
"""A server that is not there is reported after 2 seconds, one that hangs after 17."""


def check_server(uri: str) -> None:
    """Returns where an MLflow server answers at `uri`.

    Raises:
      ServerError: none does.
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
            reason = f"is no MLflow server, or is not well (HTTP {answer.status_code} for /health)"
    raise ServerError(f"what MLFLOW_TRACKING_URI names, {uri}, {reason}; start the servers with `make up`")


@contextlib.contextmanager
def answering(uri: str) -> Iterator[None]:
    """Turns whatever the MLflow library raises into one line.

    Raises:
      ServerError: the server did not answer, or refused what was written.
    """
    check_server(uri)
    try:
        yield
    except (MlflowException, requests.RequestException) as error:
        reason = " ".join(str(error).split())[:300]
        raise ServerError(f"MLflow at {uri} failed: {reason}; see that it runs (`make up`) and try again") from error


@contextlib.contextmanager
def unless(code: str) -> Iterator[None]:
    """Passes over an answer of the server that says only `code`."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != code:
            raise
