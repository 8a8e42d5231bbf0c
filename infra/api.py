"""What the servers of this machine answer over HTTP; standard library only, and no proxy is asked.

A server with a password has it in its URL here (`http://zero:PASSWORD@127.0.0.1:4200/api`): it is sent as a header. The
authority of one with a certificate of its own is the file PREFECT_API_SSL_CERT_FILE, as for Prefect.
"""

import base64
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

HOST = "127.0.0.1"
POOL = "zero"
OPEN_STATES = ("RUNNING", "PENDING", "CANCELLING")
FLOWS = ("zero-generation", "zero-campaign")
BUSY = 503
"""Prefect's server says so while its SQLite file is locked by another writer."""
BUSY_SECONDS, ANSWER_SECONDS = 30.0, 10.0


def address(port: int) -> str:
    """Address of a server of this machine."""
    return f"http://{HOST}:{port}"


def api_of_environment(env: Mapping[str, str]) -> str:
    """Prefect's API as PREFECT_API_URL and PREFECT_API_AUTH_STRING say, that quoted; empty where they do not."""
    parts, credentials = urlsplit(env.get("PREFECT_API_URL", "")), env.get("PREFECT_API_AUTH_STRING")
    netloc = f"{quote(credentials, safe=':')}@{parts.netloc}" if credentials else parts.netloc
    return urlunsplit(parts._replace(netloc=netloc)).rstrip("/")


def fetch(
    url: str,
    body: dict[str, Any] | None = None,
    method: str | None = None,
    patience: float = BUSY_SECONDS,
    timeout: float = ANSWER_SECONDS,
) -> Any:
    """What a server of this machine answers, as JSON where it is; no proxy is asked.

    By default a GET, or a POST where there is a body. One that says it is busy is asked again for `patience` seconds;
    an answer may take `timeout` seconds.

    Raises:
      OSError: it does not answer, or answers with an error.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    parts = urlsplit(url)
    credentials, at, place = parts.netloc.rpartition("@")
    if at:
        headers["Authorization"] = "Basic " + base64.b64encode(unquote(credentials).encode()).decode()
        url = urlunsplit(parts._replace(netloc=place))
    request = urllib.request.Request(url, data=data, headers=headers, method=method)
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=os.environ.get("PREFECT_API_SSL_CERT_FILE") or None)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)
    deadline = time.monotonic() + patience
    while True:
        try:
            with opener.open(request, timeout=timeout) as answer:
                text = answer.read().decode()
            break
        except urllib.error.HTTPError as error:
            if error.code != BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.5)
    return json.loads(text) if text.startswith(("{", "[")) else text


def answers(url: str) -> bool:
    """True where a GET succeeds."""
    try:
        fetch(url, patience=0)
    except (OSError, ValueError):
        return False
    return True


def worker_is_online(api: str, since: datetime, pool: str = POOL, worker: str | None = None) -> bool:
    """True where a worker of the pool, or the one of that name, has been heard of since then."""
    try:
        workers = fetch(f"{api}/work_pools/{pool}/workers/filter", {})
    except (OSError, ValueError):
        return False
    return any(
        datetime.fromisoformat(found["last_heartbeat_time"]) >= since
        for found in workers
        if worker in (None, found["name"])
    )


def open_runs(api: str, states: Sequence[str]) -> list[str]:
    """Ids of the runs of our flows in these states."""
    wanted = {"flows": {"name": {"any_": list(FLOWS)}}, "flow_runs": {"state": {"type": {"any_": list(states)}}}}
    return [run["id"] for run in fetch(f"{api}/flow_runs/filter", wanted)]


def close_runs(api: str, state: str, message: str, states: Sequence[str] = OPEN_STATES) -> int:
    """Sets the state of the open runs; returns their number."""
    runs = open_runs(api, states)
    for run in runs:
        fetch(f"{api}/flow_runs/{run}/set_state", {"state": {"type": state, "message": message}, "force": True})
    return len(runs)
