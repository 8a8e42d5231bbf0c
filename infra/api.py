"""What the servers of this machine answer over HTTP; standard library only, and no proxy is asked."""

import json
import urllib.request
from datetime import datetime
from typing import Any

HOST = "127.0.0.1"
POOL = "zero"
FLOWS = ["zero-generation", "zero-campaign", "zero-shard"]


def address(port: int) -> str:
    """Address of a server of this machine."""
    return f"http://{HOST}:{port}"


def fetch(url: str, body: dict[str, Any] | None = None) -> Any:
    """What a server of this machine answers, as JSON where it is; no proxy is asked.

    Raises:
      OSError: it does not answer, or answers with an error.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.startswith(("{", "[")) else text


def answers(url: str) -> bool:
    """True where a GET succeeds."""
    try:
        fetch(url)
    except (OSError, ValueError):
        return False
    return True


def worker_is_online(api: str, since: datetime) -> bool:
    """True where a worker of the pool has been heard of since then."""
    try:
        workers = fetch(f"{api}/work_pools/{POOL}/workers/filter", {})
    except (OSError, ValueError):
        return False
    return any(datetime.fromisoformat(worker["last_heartbeat_time"]) >= since for worker in workers)


def open_runs(api: str, states: list[str]) -> list[str]:
    """Ids of the runs of our flows in these states."""
    wanted = {"flows": {"name": {"any_": FLOWS}}, "flow_runs": {"state": {"type": {"any_": states}}}}
    return [run["id"] for run in fetch(f"{api}/flow_runs/filter", wanted)]


def close_runs(api: str, state: str, message: str) -> int:
    """Puts the runs that nobody will end into a state; returns how many there were."""
    runs = open_runs(api, ["RUNNING", "PENDING", "CANCELLING"])
    for run in runs:
        fetch(f"{api}/flow_runs/{run}/set_state", {"state": {"type": state, "message": message}, "force": True})
    return len(runs)
