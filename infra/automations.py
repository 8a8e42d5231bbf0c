"""The automations for zombies: a run whose heartbeats stop is set to Crashed, so that its parent plays it again.

A killed worker, or a machine that is gone, cannot say that its run ended. Each run sends an event every
PREFECT_FLOWS_HEARTBEAT_FREQUENCY seconds; the server watches for the one that does not come. Installing twice makes
each of them once. Standard library only; `python -m infra.pools` installs them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from infra.api import fetch


class Watch(NamedTuple):
    """Flows whose runs have crashed after so long without a heartbeat."""

    name: str
    flows: tuple[str, ...]
    seconds: int
    message: str


SHARDS = Watch(
    "zero: runs without heartbeats have crashed",
    ("zero-shard", "zero-train"),
    90,  # three heartbeats
    "its process or its machine is gone; what it was doing is done again",
)
"""Their parents ask for a crashed run again."""
GENERATIONS = Watch(
    "zero: generations without heartbeats have crashed",
    ("zero-generation", "zero-campaign"),
    900,  # they wait 600 s for a server that is away, which takes its own absence for theirs
    "the trainer or its machine is gone; run the lineage's next generation, which goes on from what is there",
)
"""Nobody asks for these again, but the page does not say for ever that they run."""
HEARTBEAT = "prefect.flow-run.heartbeat"
BEGINNINGS = ("prefect.flow-run.Running", HEARTBEAT)
"""A process may be killed before its first heartbeat has left it; the server itself tells that a run began."""
ENDS = ("Completed", "Failed", "Crashed", "Cancelled")


def automation(watch: Watch) -> dict[str, Any]:
    """The automation, as the API takes it: after its beginning or a heartbeat, another or an end in that time."""
    return {
        "name": watch.name,
        "description": "A process that was killed cannot say that its run ended.",
        "enabled": True,
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "match_related": {"prefect.resource.role": "flow", "prefect.resource.name": list(watch.flows)},
            "after": list(BEGINNINGS),
            "expect": [HEARTBEAT, *(f"prefect.flow-run.{state}" for state in ENDS)],
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            "within": watch.seconds,
        },
        "actions": [
            {
                "type": "change-flow-run-state",
                "state": "CRASHED",
                "message": f"no heartbeat for {watch.seconds} s: {watch.message}",
            }
        ],
    }


def install(api: str, watches: Sequence[Watch] = (SHARDS, GENERATIONS)) -> None:
    """Makes the automations, or brings those of their names up to date.

    Raises:
      OSError: the server does not answer, or refuses.
    """
    for watch in watches:
        wanted = automation(watch)
        found = fetch(f"{api}/automations/filter", {"automations": {"name": {"any_": [watch.name]}}})
        for one in found[1:]:
            fetch(f"{api}/automations/{one['id']}", method="DELETE")
        if not found:
            fetch(f"{api}/automations/", wanted)
        elif differs(found[0], wanted):
            fetch(f"{api}/automations/{found[0]['id']}", wanted, method="PUT")


def differs(found: Any, wanted: Any) -> bool:
    """True where what the server has is not what is wanted; it adds fields of its own and does not keep the order."""
    if isinstance(wanted, dict):
        return any(differs(found.get(key), value) for key, value in wanted.items())
    if not isinstance(wanted, list):
        return bool(found != wanted)
    if wanted and isinstance(wanted[0], dict):
        return len(found) != len(wanted) or any(differs(*both) for both in zip(found, wanted, strict=True))
    return sorted(found) != sorted(wanted)
