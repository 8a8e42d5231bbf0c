"""`python -m tests.faults.drill --kills 200 --seed 1`: interrupts the loop at random moments; compares the results."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.drill.project import Project
from tests.faults.drill.rounds import make_lineage, make_reference, random_faults

NUM_GENERATIONS = 2
FAULTS_PER_LINEAGE = 25


def main() -> int:
    """Runs the drill; exit status 1 if a result differs."""
    parser = argparse.ArgumentParser(prog="tests.faults.drill", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=200, help="number of faults to reach; default 200")
    parser.add_argument("--seed", type=int, default=1, help="seed of the faults; default 1")
    options = parser.parse_args()
    choice = random.Random(options.seed)
    num_faults = num_lineages = 0
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="zero-drill-") as folder, Project(Path(folder) / "drill") as project:
        reference = make_reference(project, NUM_GENERATIONS)
        print(f"{NUM_GENERATIONS} generations without a fault: {reference.num_events} events", flush=True)
        begun = time.monotonic()
        while num_faults < options.kills:
            per_lineage = min(FAULTS_PER_LINEAGE, options.kills - num_faults)
            faults = random_faults(reference.num_events, per_lineage, choice)
            injected, found = make_lineage(project, reference, faults, choice)
            num_faults, num_lineages = num_faults + injected, num_lineages + 1
            result = "; ".join(found) or "equal"
            print(f"lineage {num_lineages}: {injected} faults, {result}; {num_faults} in all", flush=True)
            failures += found
        seconds = (time.monotonic() - begun) / num_faults
    print(f"{num_faults} faults in {num_lineages} lineages, {seconds:.1f} s each: {len(failures)} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
