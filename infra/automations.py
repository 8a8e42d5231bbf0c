"""The automation for zombies: a run whose heartbeats stop is set to Crashed, so that its parent plays it again.

A killed worker, or a machine that is gone, cannot say that its run ended. Each run of a shard or a training sends an
event every PREFECT_FLOWS_HEARTBEAT_FREQUENCY seconds; the server watches for the one that does not come. Installing
twice makes one automation. Standard library only; `python -m infra.pools` installs it.
"""

from typing import Any

from infra.api import fetch

NAME = "zero: runs without heartbeats have crashed"
WATCHED = ("zero-shard", "zero-train")
"""Flows whose parents play a crashed run again."""
SILENCE_SECONDS = 90
"""Three heartbeats."""
HEARTBEAT = "prefect.flow-run.heartbeat"
BEGINNINGS = ("prefect.flow-run.Running", HEARTBEAT)
"""A process may be killed before its first heartbeat has left it; the server itself tells that a run began."""
ENDS = ("Completed", "Failed", "Crashed", "Cancelled")


def automation(silence_seconds: int = SILENCE_SECONDS) -> dict[str, Any]:
    """The automation, as the API takes it: after its beginning or a heartbeat, another or an end in that time."""
    return {
        "name": NAME,
        "description": "A killed worker cannot say that its run ended; what it was playing is played again.",
        "enabled": True,
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "match_related": {"prefect.resource.role": "flow", "prefect.resource.name": list(WATCHED)},
            "after": list(BEGINNINGS),
            "expect": [HEARTBEAT, *(f"prefect.flow-run.{state}" for state in ENDS)],
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            "within": silence_seconds,
        },
        "actions": [
            {
                "type": "change-flow-run-state",
                "state": "CRASHED",
                "message": f"no heartbeat for {silence_seconds} s: its process or its machine is gone",
            }
        ],
    }


def install(api: str, silence_seconds: int = SILENCE_SECONDS) -> None:
    """Makes the automation, or brings the one of its name up to date.

    Raises:
      OSError: the server does not answer, or refuses.
    """
    wanted = automation(silence_seconds)
    found = fetch(f"{api}/automations/filter", {"automations": {"name": {"any_": [NAME]}}})
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
