"""Faults of a cluster: each is caused in the middle of a generation, which must finish with the right hashes.

    python -m tests.faults                        all faults, in a cluster that is started for them
    python -m tests.faults nanny flow+trainer     some of them; the last two in the same generation
    python -m tests.faults --log faults.json      skips the faults that the log has; by default faults.json

A generation has a lineage of its own and is played by two Dask workers. After a fault, each worker's shard may be
begun again, at most twice. `zero reproduce` then computes the hashes from nothing with one process of this machine, and
no process may be left over.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import yaml

from infra.pools import fetch
from infra.processes import process_tree
from tests.cluster.parts import command_of, environment_of, known_workers
from tests.cluster.stack import Stack, cluster_stack
from tests.end_to_end.project import make_project
from zero.config.params import preset_text
from zero.storage.layout import SHARD_DIRS, workspace_dir

RUN_SECONDS = 1800.0
"""Time limit of a generation, whatever happens."""
END_SECONDS = 30.0
"""Time that processes have to end after their parent, or after the generation."""
AWAY_SECONDS = 60.0
NUM_WORKERS = 2
MAX_REPEATS = 2
"""How often a shard may be begun again after a fault: by its worker, if the process that plays ends first, and by
another."""
ENDS = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class HarmError(Exception):
    """A fault did harm, or it could not be caused."""


class Generation(NamedTuple):
    """A generation in progress."""

    stack: Stack
    lineage: str
    run: str

    def state(self) -> dict[str, Any]:
        """State of its run; its type is empty while Prefect's server is away."""
        try:
            state: dict[str, Any] = fetch(f"{self.stack.cluster.api}/flow_runs/{self.run}")["state"]
        except httpx.HTTPError:
            return {"type": "", "message": ""}
        return state

    def wait(self) -> dict[str, Any]:
        """State of its run at the end."""
        until(lambda: self.state()["type"] in ENDS, RUN_SECONDS, "the generation has not ended")
        return self.state()

    def descendants(self, part: str, *words: str) -> list[psutil.Process]:
        """The processes below a part whose command line has these words."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in self.stack.process(part).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if set(words) <= set(" ".join(process.cmdline()).split()):
                        found.append(process)
        return found

    def playing(self, command: str = "worker") -> tuple[str, psutil.Process]:
        """A worker that runs a task now, and its child process `zero COMMAND`, which does the work."""
        found: list[tuple[str, psutil.Process]] = []

        def look() -> bool:
            if self.state()["type"] in ENDS:
                raise HarmError(f"the generation ended before the fault: {self.state()}")
            for part in self.stack.cluster.workers:
                children = self.descendants(part, "zero", command) if is_busy(self.stack, part) else []
                found.extend((part, child) for child in children[-1:])
            return bool(found)

        until(look, RUN_SECONDS, "no worker was busy")
        return found[0]

    def flow(self) -> psutil.Process:
        """The process of the flow."""
        self.playing()
        return self.descendants("trainer", "prefect.engine")[0]


def until(condition: Callable[[], bool], seconds: float, message: str) -> None:
    """Waits until a condition holds.

    Raises:
      HarmError: it does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise HarmError(f"{message} in {seconds:.0f} s")
        time.sleep(0.3)


def is_busy(stack: Stack, part: str) -> bool:
    """True if the scheduler says that a worker runs a task."""
    worker = known_workers(stack.cluster).get(part, {})
    return bool(worker.get("metrics", {}).get("task_counts", {}).get("executing"))


# The faults. One that ends the flow returns True; the generation is then started again.


def killed(*which: str) -> Callable[[Generation], None]:
    """Kill -9 of processes of a busy worker: `nanny`, `worker`, or the `child` that plays; all of them at once."""

    def fault(generation: Generation) -> None:
        part, child = generation.playing()
        nanny = generation.stack.process(part)
        (worker,) = [one for one in nanny.children() if "spawn_main" in " ".join(one.cmdline())]
        for name, process in (("nanny", nanny), ("worker", worker), ("child", child)):
            if name in which:
                process.kill()
        generation.stack.command("up")

    return fault


def training_killed(generation: Generation) -> None:
    """Kill -9 of the process that trains for a worker."""
    generation.playing("train")[1].kill()


def part_signalled(part: str, number: signal.Signals) -> Callable[[Generation], bool]:
    """A signal to a part that is then started again; without the trainer the flow ends too."""

    def fault(generation: Generation) -> bool:
        busy, _ = generation.playing()
        process = generation.stack.process(part or busy)
        process.send_signal(number)
        if number == signal.SIGTERM:
            with contextlib.suppress(psutil.Error):
                process.wait(END_SECONDS * 2)
        generation.stack.command("up")
        return part == "trainer"

    return fault


def flow_signalled(number: signal.Signals) -> Callable[[Generation], bool]:
    """A signal to the process of the flow."""

    def fault(generation: Generation) -> bool:
        generation.flow().send_signal(number)
        return True

    return fault


def restarted(part: str, seconds: float = 0.0) -> Callable[[Generation], None]:
    """A server stops for some time while workers play."""

    def fault(generation: Generation) -> None:
        generation.playing()
        generation.stack.command("stop", part)
        time.sleep(seconds)
        generation.stack.command("up")

    return fault


def cancelled(generation: Generation) -> bool:
    """The run is cancelled as by the button of Prefect's page."""
    generation.playing()
    state = {"state": {"type": "CANCELLING", "name": "Cancelling"}, "force": False}
    generation.stack.prefect(f"/flow_runs/{generation.run}/set_state", state)
    end = generation.wait()
    if end["type"] != "CANCELLED":
        raise HarmError(f"the cancelled run is {end}")
    return True


def worker_stands_still(generation: Generation) -> None:
    """A worker and its child stop without an end, until the generation has finished without them.

    The scheduler gives a worker up that it has not heard of for five minutes (Dask's `worker-ttl`).
    """
    part, child = generation.playing()
    still = [*generation.stack.process(part).children(), child]
    for process in still:
        process.suspend()
    try:
        generation.wait()
    finally:
        for process in still:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def mlflow_away(generation: Generation) -> None:
    """MLflow does not run while the generation is recorded."""
    generation.stack.command("stop", "mlflow")
    generation.wait()
    generation.stack.command("up")


def foreign_code(generation: Generation) -> None:
    """For some time only a worker with other code is there; it gets no task."""
    stack, cluster = generation.stack, generation.stack.cluster
    generation.playing()
    for part in cluster.workers:
        stack.command("stop", part)
    with foreign_worker(stack):
        until(lambda: "foreign" in known_workers(cluster), 60, "the foreign worker is not known")
        deadline = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < deadline:
            if is_busy(stack, "foreign") or generation.state()["type"] != "RUNNING":
                raise HarmError(f"the foreign worker got a task, or the generation ended: {generation.state()}")
            time.sleep(0.5)
        stack.command("up")
        generation.wait()


@contextlib.contextmanager
def foreign_worker(stack: Stack) -> Iterator[None]:
    """A worker of the cluster whose code plays in another way."""
    folder = stack.cluster.home.state / "foreign"
    shutil.rmtree(folder, ignore_errors=True)
    with (make_project(folder) / "zero/play/batched_games.py").open("a") as source:
        source.write("\n# other code\n")
    command = ["foreign" if word == "worker-1" else word for word in command_of(stack.cluster, "worker-1")]
    env = environment_of(stack.cluster, "worker-1") | {"ZERO_WORKER": "foreign", "PYTHONPATH": str(folder)}
    with stack.cluster.home.log("foreign").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


def workers_change(generation: Generation) -> None:
    """A third worker joins, and a busy one leaves."""
    part, _ = generation.playing()
    generation.stack.command("up", str(NUM_WORKERS + 1))
    generation.stack.command("stop", part)
    generation.wait()
    generation.stack.command("up", str(NUM_WORKERS))


def second_flow(generation: Generation) -> None:
    """A second run for the same lineage fails at once and reports the first."""
    generation.playing()
    second = start(generation.stack, generation.lineage, "zero-campaign").wait()
    if second["type"] != "FAILED" or "is being written by" not in second["message"]:
        raise HarmError(f"the second run was not refused: {second}")


FAULTS: dict[str, Callable[[Generation], bool | None]] = {
    "none": lambda _: None,
    "worker": killed("worker"),
    "nanny": killed("nanny"),
    "worker-and-nanny": killed("worker", "nanny"),
    "child": killed("child"),
    "training": training_killed,
    "scheduler": part_signalled("scheduler", signal.SIGKILL),
    "flow": flow_signalled(signal.SIGKILL),
    "trainer": part_signalled("trainer", signal.SIGKILL),
    "worker-sigterm": part_signalled("", signal.SIGTERM),
    "scheduler-sigterm": part_signalled("scheduler", signal.SIGTERM),
    "flow-sigterm": flow_signalled(signal.SIGTERM),
    "trainer-sigterm": part_signalled("trainer", signal.SIGTERM),
    "flow-ctrl-c": flow_signalled(signal.SIGINT),
    "cancelled": cancelled,
    "worker-stands-still": worker_stands_still,
    "prefect-restart": restarted("prefect"),
    "postgres-restart": restarted("postgres"),
    "store-away": restarted("store", AWAY_SECONDS),
    "mlflow-away": mlflow_away,
    "foreign-code": foreign_code,
    "workers-change": workers_change,
    "second-flow": second_flow,
}


def start(stack: Stack, lineage: str, flow: str = "zero-generation") -> Generation:
    """Starts a generation on the cluster."""
    deployment = stack.prefect(f"/deployments/name/{flow}/{flow}")["id"]
    parameters = {"lineage": lineage, "executor": "dask"}
    run = stack.prefect(f"/deployments/{deployment}/create_flow_run", {"parameters": parameters})
    return Generation(stack, lineage, run["id"])


def zero(stack: Stack, *words: str) -> str:
    """Output of a command of `zero` as the trainer."""
    home, env = stack.cluster.home.state.parent.parent, environment_of(stack.cluster, "trainer")
    command = [sys.executable, "-m", "zero", *words]
    done = subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarmError(f"zero {' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def left_over(stack: Stack) -> list[str]:
    """Processes of the cluster that belong to no part, or that a finished run has left at the trainer."""
    home = str(stack.cluster.home.state.parent.parent)
    expected = {os.getpid()}
    for part in stack.cluster.parts:
        record = stack.cluster.home.record(part)
        if record:
            tree = [record] if part == "trainer" else process_tree(record)
            expected |= {process.pid for process in tree}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid in expected:
                continue
            if process.environ().get("ZERO_HOME") == home or process.cwd().startswith(home):
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
    return found


def count_shards(stack: Stack, lineage: str, runs: list[str]) -> tuple[int, int]:
    """How many shards the generation has, and how often workers began one in these runs."""
    workspace = workspace_dir(stack.cluster.home.state.parent.parent, lineage)
    needed = sum(1 for folder in SHARD_DIRS.values() for _ in (workspace / folder).glob("*.parquet"))
    tasks = stack.prefect("/task_runs/filter", {"flow_runs": {"id": {"any_": runs}}})
    shards = [task for task in tasks if task["name"].startswith(tuple(f"{stage}-" for stage in SHARD_DIRS))]
    states = [stack.prefect(f"/task_run_states/?task_run_id={task['id']}") for task in shards]
    return needed, sum(state["type"] == "RUNNING" for each in states for state in each)  # Running or Retrying


def cause(stack: Stack, name: str, seed: int) -> dict[str, Any]:
    """Causes one fault in a generation of its own.

    Raises:
      HarmError: the generation did not finish, its hashes differ, or a process is left.
    """
    params = yaml.safe_load(preset_text("smoke")) | {"seed": seed}
    params["selfplay"] |= {"num_games": 48, "num_simulations": 256}  # long enough for a fault: four shards of seconds
    params["search"]["max_nodes"] = 512
    params["training"] |= {"num_steps": 200}
    params["profile"] = {"backend": "openvino"}  # without torch, a process that plays starts twice as fast
    file = stack.cluster.home.state / "fault.yaml"
    file.write_text(yaml.safe_dump(params, sort_keys=False))
    lineage = f"fault-{seed}"
    zero(stack, "new", lineage, "--params", str(file))
    began = time.monotonic()
    generation = start(stack, lineage)
    ends, runs, faults = list[str](), [generation.run], name.split("+")
    for fault in faults:
        if FAULTS[fault](generation):
            ends.append(generation.wait()["type"])
            generation = start(stack, lineage)
            runs.append(generation.run)
    end = generation.wait()
    seconds = time.monotonic() - began
    if end["type"] != "COMPLETED":
        raise HarmError(f"the generation is {end['type']}: {end['message']}")
    until(lambda: not left_over(stack), END_SECONDS, f"processes are left: {left_over(stack)}")
    shards, begun = count_shards(stack, lineage, runs)
    if begun > shards + MAX_REPEATS * NUM_WORKERS * len(faults):
        raise HarmError(f"{shards} shards were begun {begun} times")
    reproduced = zero(stack, "reproduce", f"{lineage}/gen-0001").strip().splitlines()[-1]
    counts = {"shards": shards, "begun": begun}
    return {"fault": name, "seconds": round(seconds, 1), "ended_runs": ends, **counts, "reproduced": reproduced}


def main() -> int:
    """Causes the faults; exit status 1 if one of them did harm."""
    parser = argparse.ArgumentParser(prog="tests.faults", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"by default all: {', '.join(FAULTS)}")
    parser.add_argument("--log", type=Path, default=Path("faults.json"))
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1_000_000)
    options = parser.parse_args()
    if unknown := {fault for name in options.names for fault in name.split("+")} - set(FAULTS):
        parser.error(f"unknown faults: {', '.join(sorted(unknown))}")
    log: list[dict[str, Any]] = json.loads(options.log.read_text()) if options.log.exists() else []
    done = {line["fault"] for line in log if "harm" not in line}
    harm = 0
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: sys.exit(1))  # the cluster is then stopped
    with cluster_stack(num_workers=NUM_WORKERS) as stack:
        make_project(stack.cluster.home.state.parent.parent)
        for number, name in enumerate(name for name in options.names or FAULTS if name not in done):
            try:
                line = cause(stack, name, options.seed + number)
            except (HarmError, AssertionError, OSError, httpx.HTTPError, psutil.Error) as error:
                line = {"fault": name, "harm": f"{type(error).__name__}: {error}"}
                harm += 1
                stack.command("up", str(NUM_WORKERS), check=False)
            print(json.dumps(line), flush=True)
            log.append(line)
            options.log.write_text(json.dumps(log, indent=1) + "\n")
    return 1 if harm else 0


if __name__ == "__main__":
    sys.exit(main())
