"""What scheduling costs: from the moment a generation is asked for to its decision, less the time of any work on it.

    python -m infra.cluster exec python -m benchmarks.orchestration LINEAGE       on a cluster
    PREFECT_API_URL=http://127.0.0.1:4200/api python -m benchmarks.orchestration LINEAGE

It reads what is recorded: Prefect's runs, and the costs that are noted with each generation. Work is the wall clock in
which a shard is played or a stage's process computes; the rest is Prefect, DVC, the store, and the start of processes.
"""

import argparse
import os
import sys
from datetime import datetime
from typing import Any, NamedTuple

from infra.api import api_of_environment, fetch
from zero.config.settings import home_dir
from zero.record.costs import read_note

LAST_STAGE = "verification"
ALLOWED_SECONDS, ALLOWED_A_RUN = 20.0, 1.0


class Overhead(NamedTuple):
    """A generation's wall clock, in seconds."""

    tag: str
    wall: float
    work: float
    num_runs: int

    @property
    def lost(self) -> float:
        """In which nothing of it was at work."""
        return self.wall - self.work

    @property
    def allowed(self) -> float:
        """The goal."""
        return ALLOWED_SECONDS + ALLOWED_A_RUN * self.num_runs


def generations(api: str, lineage: str) -> list[Overhead]:
    """The finished generations of a lineage that have a note of what they cost, the first one first."""
    wanted = {
        "flows": {"name": {"any_": ["zero-generation"]}},
        "flow_runs": {"state": {"type": {"any_": ["COMPLETED"]}}, "name": {"like_": f"{lineage}/gen-"}},
        "sort": "EXPECTED_START_TIME_ASC",
    }
    found = []
    for run in fetch(f"{api}/flow_runs/filter", wanted):
        note = read_note(home_dir(), lineage, run["name"])
        tasks = fetch(f"{api}/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}, "limit": 200})
        ends = [task["end_time"] for task in tasks if task["name"].startswith(LAST_STAGE)]
        if note and ends and all(ends):
            wall = seconds_between(run["expected_start_time"], max(ends))
            found.append(Overhead(run["name"], wall, note.total().seconds, num_shard_runs(tasks)))
    return found


def num_shard_runs(tasks: list[dict[str, Any]]) -> int:
    """Runs that shards were asked for with: tasks called after a stage and a game, as `selfplay-24`."""
    return sum(task["name"].rpartition("-")[2].isdecimal() for task in tasks)


def seconds_between(first: str, last: str) -> float:
    """Between two times as Prefect writes them."""
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()


def main(words: list[str]) -> int:
    """Prints the table; exit status 1 where nothing is known of the lineage."""
    parser = argparse.ArgumentParser(prog="benchmarks.orchestration", description=__doc__.splitlines()[0])
    parser.add_argument("lineage")
    lineage = parser.parse_args(words).lineage
    rows = generations(api_of_environment(os.environ), lineage)
    if not rows:
        print(f"error: Prefect's server knows no finished generation of {lineage}", file=sys.stderr)
        return 1
    line = "{:<20} {:>8} {:>8} {:>11} {:>12} {:>8}"
    print(line.format("generation", "wall, s", "work, s", "shard runs", "overhead, s", "goal, s"))
    for row in rows:
        seconds = [f"{value:.1f}" for value in (row.wall, row.work, row.lost, row.allowed)]
        print(line.format(row.tag, *seconds[:2], row.num_runs, *seconds[2:]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
