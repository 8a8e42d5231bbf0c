"""What goes wrong in a cluster, done to a real one: each fault in the middle of a generation, and what came of it.

    python -m infra.cluster up --workers 4
    python -m infra.cluster_drill --log faults.json                       all faults, or those of --only
    python -m infra.cluster_drill --only sigterm,postgres-restarted

For each fault a lineage of its own is made and one generation of it is played by the pool; while it plays, the fault is
done. The generation must finish, and `zero reproduce` must compute the same hashes from nothing on one process of this
machine. The log has a line a fault: times, runs and how they ended. What is in the log is not done again. The cluster
must have nothing else to do: after each fault all runs that are left are cancelled.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from infra.api import OPEN_STATES, close_runs, open_runs
from infra.cluster_faults import CAMPAIGNS, FAULTS, HITS, START_TIMEOUT, Ground, runs_of, start_generation
from infra.cluster_parts import Cluster, environment_of, read_cluster
from infra.services import PROJECT_DIR, Home, LocalError, say
from zero.config.presets import preset_text


def as_trainer(cluster: Cluster, *words: str) -> str:
    """What a command of `zero` says.

    Raises:
      LocalError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "zero", *words],
        cwd=cluster.home.state.parent.parent,
        env=environment_of(cluster, "trainer"),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LocalError(f"zero {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def end_all(cluster: Cluster) -> None:
    """Cancels what a fault has left running, and waits for its end: the next one needs the workers."""
    deadline = time.monotonic() + START_TIMEOUT
    while open_runs(cluster.api, OPEN_STATES) and time.monotonic() < deadline:
        close_runs(cluster.api, "CANCELLED", "the fault is over", ("SCHEDULED",))
        close_runs(cluster.api, "CANCELLING", "the fault is over", ("RUNNING", "PENDING"))
        time.sleep(2.0)


def drill(cluster: Cluster, name: str, seed: int, preset: str) -> dict[str, Any]:
    """One fault, and what came of it.

    Raises:
      LocalError: the generation did not finish, its hashes are others, or nothing was hit.
    """
    params = yaml.safe_load(preset_text(preset))
    params["seed"] = seed
    if preset == "smoke":  # so large that there is a middle: eight shards of some seconds
        params["selfplay"] |= {"num_games": 96, "num_simulations": 64}
        params["search"]["max_nodes"] = 128
    number = CAMPAIGNS.get(name, 0)
    params["selfplay"]["overlap"] = bool(number)
    file = cluster.home.state / f"{name}.yaml"
    file.write_text(yaml.safe_dump(params, sort_keys=False))
    lineage = f"fault-{name}-{seed}"
    as_trainer(cluster, "new", lineage, "--params", str(file))
    began = time.time()
    if number:
        run = start_generation(cluster, lineage, "zero-campaign", num_generations=number)
    else:
        run = start_generation(cluster, lineage)
    try:
        finishing = FAULTS[name](Ground(cluster, lineage, run)) or run
        end = finishing.wait()
    finally:
        end_all(cluster)
    seconds = time.time() - began
    if end["type"] != "COMPLETED":
        raise LocalError(f"the generation ended as {end['type']}: {end['message']}")
    ends = runs_of(run)
    if name in HITS and not ends["Crashed"]:
        raise LocalError(f"no run died of it, so it proves nothing: {dict(ends)}")
    tags = [f"{lineage}/gen-{made:04d}" for made in range(1, max(number, 1) + 1)]
    told = [as_trainer(cluster, "reproduce", tag).strip().splitlines()[-1] for tag in tags]
    return {
        "fault": name,
        "seconds": round(seconds, 1),
        "runs": dict(ends),
        "reproduced": "; ".join(told),
    }


def main(words: list[str]) -> int:
    """Does the faults; exit status 1 where one of them did harm."""
    parser = argparse.ArgumentParser(prog="infra.cluster_drill", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(FAULTS), help="some of: " + ", ".join(FAULTS))
    parser.add_argument("--log", type=Path, default=Path("cluster-drill.json"), help="by default cluster-drill.json")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    parser.add_argument("--preset", default="smoke")
    options = parser.parse_args(words)
    cluster = read_cluster(Home(Path(os.environ.get("ZERO_HOME") or PROJECT_DIR).resolve() / ".zero" / "cluster"))
    unknown = set(options.only.split(",")) - set(FAULTS)
    if cluster is None or unknown:
        say(f"error: {f'no fault is called {sorted(unknown)}' if unknown else 'no cluster; `make cluster` first'}")
        return 1
    if open_runs(cluster.api, ("SCHEDULED", *OPEN_STATES)):
        say("error: the cluster has work, which the drill would cancel; wait for its end, or cancel it")
        return 1
    log: list[dict[str, Any]] = json.loads(options.log.read_text()) if options.log.exists() else []
    harmed = 0
    for number, name in enumerate(options.only.split(",")):
        if any(line["fault"] == name and "harm" not in line for line in log):
            continue
        try:
            line = drill(cluster, name, options.seed + number, options.preset)
        except (LocalError, OSError) as error:
            line = {"fault": name, "harm": str(error)}
            harmed += 1
        say(json.dumps(line))
        log.append(line)
        options.log.write_text(json.dumps(log, indent=1) + "\n")
    return 1 if harmed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
