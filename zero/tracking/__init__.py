"""Writes generations of the record to MLflow: runs to compare, curves, and the catalogue of players.

MLflow is not evidence: everything in it is read from the files of a tag and can be written again. A generation is
written completely or not at all: its runs are never repaired, but deleted and written again.

| module | content |
|---|---|
| `pages` | content of the runs and versions of a generation, without a server |
| `cards` | its texts and pictures: descriptions of runs, model cards, the picture of the gate |
| `views` | the table and the charts of a lineage that its experiment opens with |
| `client` | the calls to the server, and its errors |
| `backfill` | writes the missing generations of a lineage, and runs over all of them, such as its ladder |
| `player` | the code of a registered player |
| `audit` | reads everything that a server has of a lineage |
| `server` | the server, whose pages open on model training |

The MLflow library takes seconds to import and reads its environment then. So it is imported in `open_client`, when a
server is used.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator
from types import ModuleType

from zero.errors import ServerError

ENVIRONMENT = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""Defaults for the MLflow library: no telemetry, no minutes of retries, no output."""


@contextlib.contextmanager
def open_client(uri: str) -> Iterator[ModuleType]:
    """The module `zero.tracking.client`, after a check that the server answers.

    Raises:
      ServerError: the server does not answer, or rejected a call.
    """
    if not uri.startswith(("http://", "https://")):
        raise ServerError(f"MLFLOW_TRACKING_URI = {uri!r} is not an http:// address; `make up` starts a local server")
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own, about its own types
        from zero.tracking import client
    with client.answering(uri):
        yield client
