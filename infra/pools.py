"""What Prefect's server must have before it schedules for a cluster: work pools, their queues, the automations.

    python -m infra.pools        makes what is missing on the server of PREFECT_API_URL (PREFECT_API_AUTH_STRING)

The pool `zero` is the trainer's: generations and campaigns. Workers serve `zero-gpu`, where a match comes before a
training and that before self-play; a pool that is there keeps its type. Standard library only.
"""

import os
import sys
import urllib.error

from infra.api import POOL, api_of_environment, fetch
from infra.automations import install

WORKER_POOL, WORKER_TYPE = "zero-gpu", "zero"
"""The workers' pool, and the type of the workers that come with this project (flows/worker.py)."""
QUEUES = {"gate": 1, "train": 2, "selfplay": 3}
"""Queues of the workers' pool and their priorities: the smallest is served first."""


def make_pools(api: str) -> None:
    """Makes the work pools and queues that are missing.

    Raises:
      OSError: the server does not answer, or refuses.
    """
    known = fetch(f"{api}/collections/views/aggregate-worker-metadata")
    template = known["prefect"]["process"]["default_base_job_configuration"]
    for pool, kind in ((POOL, "process"), (WORKER_POOL, WORKER_TYPE)):
        _make(f"{api}/work_pools/", {"name": pool, "type": kind, "base_job_template": template})
    for queue, priority in QUEUES.items():
        _make(f"{api}/work_pools/{WORKER_POOL}/queues", {"name": queue, "priority": priority})


def _make(url: str, body: dict[str, object]) -> None:
    try:
        fetch(url, body)
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it is there
            raise


def main() -> int:
    """Makes what is missing; an error is one message and exit status 1."""
    api = api_of_environment(os.environ)
    try:
        if not api:
            raise OSError("PREFECT_API_URL does not say which server")
        make_pools(api)
        install(api)
        kind = fetch(f"{api}/work_pools/{WORKER_POOL}")["type"]
    except (OSError, ValueError) as error:
        print(f"error: {os.environ.get('PREFECT_API_URL', '')}: {error}", file=sys.stderr)
        return 1
    queues = ", ".join(QUEUES)
    print(f"the pools {POOL} and {WORKER_POOL} (type {kind}), the queues {queues} and the automations are there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
