"""Prefect's server: requests to it, its work pool `zero`, and the automation for generations that died.

    python -m infra.pools        makes what is missing on the server of PREFECT_API_URL (PREFECT_API_AUTH_STRING)

A killed process cannot report its end. Each run sends an event every PREFECT_FLOWS_HEARTBEAT_FREQUENCY seconds; the
automation sets a run to Crashed if the event does not come. Here the URL of a server contains its password.
"""

import hashlib
import json
import os
import ssl
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import httpx

POOL = "zero"
FLOWS = ("zero-generation", "zero-campaign", "zero-ablation")
OPEN_STATES = ("RUNNING", "PENDING", "CANCELLING")
BUSY_SECONDS = 30.0
"""Time for which a request is repeated if Prefect answers 503: another writer has locked its SQLite file."""
ANSWER_SECONDS = 10.0
PREFIX = "zero: "
"""Start of the names of our automations; all but the current one are deleted, such as those of earlier versions."""
SILENCE_SECONDS = 900
"""A run waits 600 s for a server that is away, and sends no heartbeat meanwhile."""
HEARTBEAT = "prefect.flow-run.heartbeat"
BEGINNINGS = ("prefect.flow-run.Running", HEARTBEAT)
"""A process may be killed before it sends its first heartbeat; the server itself reports that a run began."""
ENDS = ("Completed", "Failed", "Crashed", "Cancelled")


# Requests


def api_of_environment(env: Mapping[str, str]) -> str:
    """URL of Prefect's API by PREFECT_API_URL and PREFECT_API_AUTH_STRING; empty if the first is not set."""
    url = httpx.URL(env.get("PREFECT_API_URL", ""))
    user, colon, password = env.get("PREFECT_API_AUTH_STRING", "").partition(":")
    if url.host and colon:
        url = url.copy_with(username=user, password=password)
    return str(url).rstrip("/")


@cache
def _client(ca_file: str | None) -> httpx.Client:
    # Without `trust_env` no proxy is used. Kept connections would break when the server restarts.
    return httpx.Client(
        trust_env=False,
        follow_redirects=True,
        verify=ssl.create_default_context(cafile=ca_file),
        limits=httpx.Limits(max_keepalive_connections=0),
    )


def fetch(
    url: str,
    body: Any = None,
    method: str | None = None,
    patience: float = BUSY_SECONDS,
    timeout: float = ANSWER_SECONDS,
) -> Any:
    """Answer of a server, parsed if it is JSON; by default to a GET, or to a POST if there is a body.

    A request that gets status 503 is repeated for `patience` seconds. An answer may take `timeout` seconds.

    Raises:
      httpx.HTTPError: the server does not answer, or answers with an error.
    """
    client = _client(os.environ.get("PREFECT_API_SSL_CERT_FILE") or None)
    parts = httpx.URL(url)
    auth = (parts.username, parts.password) if parts.userinfo else None
    parts = parts.copy_with(userinfo=b"")  # error messages contain the URL
    deadline, token = time.monotonic() + patience, dict[str, str]()
    while True:
        answer = client.request(
            method or ("GET" if body is None else "POST"), parts, json=body, auth=auth, timeout=timeout, headers=token
        )
        if not token and answer.status_code == httpx.codes.FORBIDDEN and "CSRF" in answer.text:
            token = csrf_token(url.rpartition("/api/")[0] + "/api")
        elif answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
            break
        else:
            time.sleep(0.5)
    if not answer.is_success:
        message = f"{parts} answers {answer.status_code} {answer.reason_phrase}: {answer.text[:200]}"
        raise httpx.HTTPStatusError(message, request=answer.request, response=answer)
    return answer.json() if answer.text.startswith(("{", "[")) else answer.text


def csrf_token(api: str) -> dict[str, str]:
    """Headers of a request that changes something, if the server has Prefect's CSRF protection.

    Raises:
      httpx.HTTPError: the server does not answer, or answers with an error.
    """
    client = str(uuid.uuid4())
    token = fetch(f"{api}/csrf-token?client={client}")["token"]
    return {"Prefect-Csrf-Client": client, "Prefect-Csrf-Token": token}


def answers(url: str) -> bool:
    """True if a GET succeeds."""
    try:
        fetch(url, patience=0)
    except (httpx.HTTPError, ValueError):
        return False
    return True


# Workers and runs


def worker_is_online(api: str, name: str, since: datetime) -> bool:
    """True if a worker of the pool has sent a heartbeat since then."""
    try:
        workers = fetch(f"{api}/work_pools/{POOL}/workers/filter", {})
    except (httpx.HTTPError, ValueError):
        return False
    return any(datetime.fromisoformat(one["last_heartbeat_time"]) >= since for one in workers if one["name"] == name)


def open_runs(api: str, states: Sequence[str] = OPEN_STATES) -> list[str]:
    """Ids of the runs of our flows in these states."""
    wanted = {"flows": {"name": {"any_": [*FLOWS]}}, "flow_runs": {"state": {"type": {"any_": [*states]}}}}
    return [run["id"] for run in fetch(f"{api}/flow_runs/filter", wanted)]


def close_runs(api: str, state: str, message: str) -> int:
    """Sets the state of the open runs; returns their number."""
    runs = open_runs(api)
    for run in runs:
        fetch(f"{api}/flow_runs/{run}/set_state", {"state": {"type": state, "message": message}, "force": True})
    return len(runs)


def cancel_runs(api: str, message: str, seconds: float) -> None:
    """Cancels the open runs, and waits until their workers have ended them, at most for that time."""
    deadline = time.monotonic() + seconds
    if close_runs(api, "CANCELLING", message):
        print("cancelling the runs ...", flush=True)
    while open_runs(api, ["CANCELLING"]) and time.monotonic() < deadline:
        time.sleep(0.5)


# The work pool and the automation


def make_pool(api: str) -> None:
    """Makes the work pool, unless it exists.

    Raises:
      httpx.HTTPError: the server does not answer, or refuses.
      ValueError: something else than Prefect answers.
    """
    known = fetch(f"{api}/collections/views/aggregate-worker-metadata")
    try:
        template = known["prefect"]["process"]["default_base_job_configuration"]
    except (KeyError, TypeError):  # JSON of something else, or a page
        raise ValueError("this is not Prefect's API; set PREFECT_API_URL to the server's URL with /api") from None
    try:
        fetch(f"{api}/work_pools/", {"name": POOL, "type": "process", "base_job_template": template})
    except httpx.HTTPStatusError as error:
        if error.response.status_code != httpx.codes.CONFLICT:  # it exists
            raise


def automation(seconds: int = SILENCE_SECONDS) -> dict[str, Any]:
    """The automation, as the API takes it: a run has crashed after that time without a heartbeat or an end."""
    wanted: dict[str, Any] = {
        "name": f"{PREFIX}generations without heartbeats have crashed",
        "enabled": True,
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "match_related": {"prefect.resource.role": "flow", "prefect.resource.name": list(FLOWS)},
            "after": list(BEGINNINGS),
            "expect": [HEARTBEAT, *(f"prefect.flow-run.{state}" for state in ENDS)],
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            "within": seconds,
        },
        "actions": [
            {
                "type": "change-flow-run-state",
                "state": "CRASHED",
                "message": f"no heartbeat for {seconds} s: the trainer or its machine is gone; run the lineage's next "
                "generation, which resumes this one",
            }
        ],
    }
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()
    return wanted | {"description": f"A killed process cannot report the end of its run. Version {digest[:12]}."}


def install(api: str, wanted: dict[str, Any]) -> None:
    """Makes the automation, unless it exists; a new one would forget the runs that it watches.

    Raises:
      httpx.HTTPError: the server does not answer, or refuses.
    """
    found = [one for one in fetch(f"{api}/automations/filter", {}) if one["name"].startswith(PREFIX)]
    current = [one for one in found if one["description"] == wanted["description"]]
    if not current:
        fetch(f"{api}/automations/", wanted)
    for one in found:
        if one not in current[:1]:
            fetch(f"{api}/automations/{one['id']}", method="DELETE")


def main() -> int:
    """Makes what is missing; an error is one message and exit status 1."""
    try:
        api = api_of_environment(os.environ)
        if not api:
            raise OSError("PREFECT_API_URL is not set; set it to the URL of the server's API")
        make_pool(api)
        install(api, automation())
        kind = fetch(f"{api}/work_pools/{POOL}")["type"]
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        print(f"error: {os.environ.get('PREFECT_API_URL', '')}: {error}", file=sys.stderr)
        return 1
    print(f"the pool {POOL} (type {kind}) and the automation exist")
    return 0


if __name__ == "__main__":
    sys.exit(main())
