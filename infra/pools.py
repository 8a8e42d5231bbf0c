"""What Prefect's server needs before it schedules: the work pool `zero` and the automation for generations that died.

    python -m infra.pools        makes what is missing on the server of PREFECT_API_URL (PREFECT_API_AUTH_STRING)

A killed process cannot report its end. Each run sends an event every PREFECT_FLOWS_HEARTBEAT_FREQUENCY seconds; the
automation sets a run to Crashed if the event does not come. Standard library only.
"""

import hashlib
import json
import os
import sys
import urllib.error
from typing import Any

from infra.api import FLOWS, POOL, api_of_environment, fetch

PREFIX = "zero: "
"""Start of the names of our automations; all but the current one are deleted, such as those of earlier versions."""
SILENCE_SECONDS = 900
"""A run waits 600 s for a server that is away, and sends no heartbeat meanwhile."""
HEARTBEAT = "prefect.flow-run.heartbeat"
BEGINNINGS = ("prefect.flow-run.Running", HEARTBEAT)
"""A process may be killed before it sends its first heartbeat; the server itself reports that a run began."""
ENDS = ("Completed", "Failed", "Crashed", "Cancelled")


def make_pool(api: str) -> None:
    """Makes the work pool, unless it exists.

    Raises:
      OSError: the server does not answer, or refuses.
    """
    known = fetch(f"{api}/collections/views/aggregate-worker-metadata")
    template = known["prefect"]["process"]["default_base_job_configuration"]
    try:
        fetch(f"{api}/work_pools/", {"name": POOL, "type": "process", "base_job_template": template})
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it exists
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
      OSError: the server does not answer, or refuses.
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
    api = api_of_environment(os.environ)
    try:
        if not api:
            raise OSError("PREFECT_API_URL does not say which server")
        make_pool(api)
        install(api, automation())
        kind = fetch(f"{api}/work_pools/{POOL}")["type"]
    except (OSError, ValueError) as error:
        print(f"error: {os.environ.get('PREFECT_API_URL', '')}: {error}", file=sys.stderr)
        return 1
    print(f"the pool {POOL} (type {kind}) and the automation exist")
    return 0


if __name__ == "__main__":
    sys.exit(main())
