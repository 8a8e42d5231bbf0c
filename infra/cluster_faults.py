"""The faults of the cluster's drill: each is done in the middle of a generation that workers play."""

import os
import shutil
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError

from infra.api import fetch
from infra.automations import SHARDS
from infra.cluster import change
from infra.cluster_parts import Cluster, command_of, environment_of
from infra.processes import Record, lives, process_tree, read_process
from infra.services import PROJECT_DIR, LocalError

MINUTE = 60.0
START_TIMEOUT = 240.0
RUN_SECONDS = 900.0
"""The longest that a generation may take, whatever happens."""
ORPHAN_SECONDS = 20.0
"""The longest that a process goes on whose worker was killed: two seconds, and the ends of what it started."""
ENDS = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class Run(NamedTuple):
    """A run of a flow on the cluster, as Prefect's server knows it."""

    api: str
    id: str

    def state(self) -> dict[str, Any] | None:
        """Its state; None while the server does not answer."""
        try:
            state: dict[str, Any] = fetch(f"{self.api}/flow_runs/{self.id}")["state"]
        except HTTPError as error:
            if error.code < 500:
                raise
            return None
        except OSError:
            return None
        return state

    def created(self) -> str:
        """When it was asked for."""
        return str(fetch(f"{self.api}/flow_runs/{self.id}")["created"])

    def is_over(self) -> bool:
        """True where it ended, well or not."""
        state = self.state()
        return state is not None and state["type"] in ENDS

    def wait(self) -> dict[str, Any]:
        """The state that it ended in.

        Raises:
          LocalError: it goes on after `RUN_SECONDS`.
        """
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            state = self.state()
            if state is not None and state["type"] in ENDS:
                return state
            time.sleep(1.0)
        raise LocalError(f"the run {self.id} has not ended in {RUN_SECONDS:.0f} s: {self.state()}")


def start_generation(cluster: Cluster, lineage: str, flow: str = "zero-generation", **parameters: Any) -> Run:
    """Asks for a generation that is played by the pool."""
    deployment = fetch(f"{cluster.api}/deployments/name/{flow}/{flow}")["id"]
    parameters |= {"lineage": lineage, "executor": "pool"}
    asked = {"parameters": parameters, "state": {"type": "SCHEDULED"}}
    return Run(cluster.api, fetch(f"{cluster.api}/deployments/{deployment}/create_flow_run", asked)["id"])


def runs_of(run: Run, states: Sequence[str] = ENDS) -> Counter[str]:
    """How the runs on the workers that began since this one ended."""
    return Counter(found["state"]["name"] for found in _found(run, SHARDS.flows, states))


def is_running(since: Run, flow: str) -> bool:
    """True while a run of a flow goes on that began after this one."""
    return bool(_found(since, [flow], ["RUNNING"]))


def _found(since: Run, flows: Sequence[str], states: Sequence[str]) -> list[dict[str, Any]]:
    filters = {"state": {"type": {"any_": list(states)}}, "expected_start_time": {"after_": since.created()}}
    wanted = {"flows": {"name": {"any_": list(flows)}}, "flow_runs": filters}
    found: list[dict[str, Any]] = fetch(f"{since.api}/flow_runs/filter", wanted)
    return found


class Ground(NamedTuple):
    """Where a fault is done."""

    cluster: Cluster
    lineage: str
    run: Run

    def busy_worker(self) -> str:
        """A worker that is playing at this moment; waits for one."""
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline and not self.run.is_over():
            for name in self.cluster.workers:
                if self.child_of(name):
                    time.sleep(2.0)  # it is past its imports
                    if self.child_of(name):
                        return name
            time.sleep(0.2)
        raise LocalError("no worker was ever busy")

    def busy_child(self) -> tuple[str, int]:
        """A worker that is playing at this moment, and the process that plays for it."""
        while True:
            name = self.busy_worker()
            child = self.child_of(name)
            if child:
                return name, child

    def child_of(self, worker: str) -> int | None:
        """Process of the run that a worker is at; None where it is idle."""
        record = self.cluster.home.record(worker)
        below = defaultdict[int, list[int]](list)
        for process in process_tree(record) if record else []:
            below[process.parent].append(process.pid)
        if record is None:
            return None
        leashes = [child for child in below[record.pid] if "leash.py" in _words_of(child)]
        held = [run for leash in leashes for holder in below[leash] for run in below[holder]]
        own = [child for child in below[record.pid] if "-m\0prefect.engine" in _words_of(child)]
        return next(iter(held or own), None)

    def kill_alone(self, part: str) -> None:
        """Kill -9 of a part's leading process; the others of it must be gone soon.

        Raises:
          LocalError: they are not.
        """
        record = self.record_of(part)
        others = [process for process in process_tree(record) if process.pid != record.pid]
        os.kill(record.pid, signal.SIGKILL)
        deadline = time.monotonic() + ORPHAN_SECONDS
        while left := [process for process in others if lives(process)]:
            if time.monotonic() > deadline:
                raise LocalError(f"{part} was killed, and {ORPHAN_SECONDS:.0f} s later these go on: {left}")
            time.sleep(0.5)

    def record_of(self, part: str) -> Record:
        """The leading process of a part."""
        record = self.cluster.home.record(part)
        if record is None:
            raise LocalError(f"{part} does not run; `python -m infra.cluster up`")
        return record


def _words_of(process: int) -> str:
    """Command line of a process; empty where it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


Fault = Callable[[Ground], Run | None]
"""Does harm; the run that has to finish, where it is not the one that was harmed."""


def worker_killed(ground: Ground) -> None:
    """Kill -9 of a worker; its child goes on, and must end by itself."""
    name = ground.busy_worker()
    ground.kill_alone(name)
    change(ground.cluster, "start", name, START_TIMEOUT)


def child_killed(ground: Ground) -> None:
    """Kill -9 of the process that plays."""
    os.kill(ground.busy_child()[1], signal.SIGKILL)


def both_killed(ground: Ground) -> None:
    """Kill -9 of a worker and its child at once: nobody is left to say so but the heartbeats."""
    name, child = ground.busy_child()
    os.kill(ground.record_of(name).pid, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    time.sleep(10.0)
    change(ground.cluster, "start", name, START_TIMEOUT)


def leash_killed(ground: Ground) -> None:
    """Kill -9 of what a worker forks its runs from: the run ends, and the worker's next ones begin without it."""
    _, child = ground.busy_child()
    run = read_process(child)
    holder = read_process(run.parent) if run else None
    if holder is None or "leash.py" not in _words_of(holder.parent):
        raise LocalError(f"the run {child} is no fork")
    os.kill(holder.parent, signal.SIGKILL)


def worker_terminated(ground: Ground) -> None:
    """SIGTERM to a worker: it ends what it plays, hands the shard back and ends."""
    name = ground.busy_worker()
    os.kill(ground.record_of(name).pid, signal.SIGTERM)
    deadline = time.monotonic() + START_TIMEOUT
    while ground.cluster.home.record(name):
        if time.monotonic() > deadline:
            raise LocalError(f"{name} has not ended {START_TIMEOUT:.0f} s after SIGTERM")
        time.sleep(0.5)
    change(ground.cluster, "start", name, START_TIMEOUT)


def generation_killed(ground: Ground) -> Run:
    """Kill -9 of a generation's process, whose runs go on; the next one cancels them and goes on from what is there."""
    ground.busy_worker()
    child = ground.child_of("trainer")
    if child is None:
        raise LocalError("the trainer has no process")
    os.kill(child, signal.SIGKILL)
    return _after_its_crash(ground)


def trainer_killed(ground: Ground) -> Run:
    """Kill -9 of the worker that runs generations; the generation must end with it."""
    ground.busy_worker()
    ground.kill_alone("trainer")
    change(ground.cluster, "start", "trainer", START_TIMEOUT)
    return _after_its_crash(ground)


def training_killed(ground: Ground) -> None:
    """Kill -9 of the process that trains, on one of the workers."""
    deadline = time.monotonic() + RUN_SECONDS
    while not is_running(ground.run, "zero-train"):
        if ground.run.is_over() or time.monotonic() > deadline:
            raise LocalError("no training was seen that could be killed")
        time.sleep(0.1)
    children = [child for name in ground.cluster.workers if (child := ground.child_of(name))]
    if not children:
        raise LocalError("no worker trains")
    for child in children:
        os.kill(child, signal.SIGKILL)


def _after_its_crash(ground: Ground) -> Run:
    """A person's answer to a generation that is said to have crashed: it is asked for again."""
    end = ground.run.wait()
    if end["type"] != "CRASHED":
        raise LocalError(f"a killed generation is {end['type']}: {end['message']}")
    return start_generation(ground.cluster, ground.lineage)


def restarted(part: str) -> Fault:
    """A server stopped and started while workers play."""

    def fault(ground: Ground) -> None:
        ground.busy_worker()
        change(ground.cluster, "restart", part, START_TIMEOUT)

    return fault


def away_for_a_minute(part: str) -> Fault:
    """A server that is away for a minute while workers play."""

    def fault(ground: Ground) -> None:
        ground.busy_worker()
        change(ground.cluster, "stop", part, START_TIMEOUT)
        try:
            time.sleep(MINUTE)
        finally:
            change(ground.cluster, "start", part, START_TIMEOUT)

    return fault


def mlflow_away(ground: Ground) -> None:
    """MLflow away for a minute, from before the generation is recorded."""
    deadline = time.monotonic() + RUN_SECONDS
    change(ground.cluster, "stop", "mlflow", START_TIMEOUT)
    try:
        while not ground.run.is_over() and not _has_match(ground) and time.monotonic() < deadline:
            time.sleep(0.5)
        time.sleep(MINUTE)
    finally:
        change(ground.cluster, "start", "mlflow", START_TIMEOUT)


def _has_match(ground: Ground) -> bool:
    return (ground.cluster.home.state.parent / "workspaces" / ground.lineage / "metrics/gating.json").exists()


def worker_with_other_code(ground: Ground) -> None:
    """A fifth worker whose code plays in another way."""
    folder = ground.cluster.home.state / "other-code"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("zero", "flows", "infra"):
        shutil.copytree(PROJECT_DIR / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("constraints.txt", "pyproject.toml", "prefect.yaml"):
        shutil.copyfile(PROJECT_DIR / name, folder / name)
    with (folder / "zero/play/batched_games.py").open("a") as source:
        source.write("\n# other code\n")
    _with_stranger(ground, {"PYTHONPATH": str(folder)}, folder)


def worker_with_wrong_key(ground: Ground) -> None:
    """A fifth worker whose key the store does not know."""
    keys = ground.cluster.home.state / "wrong-key"
    keys.write_text("[default]\naws_access_key_id = nobody\naws_secret_access_key = nothing\n")
    _with_stranger(ground, {"AWS_SHARED_CREDENTIALS_FILE": str(keys)}, ground.cluster.home.state)


def _with_stranger(ground: Ground, changes: dict[str, str], folder: Path) -> None:
    """A worker with another environment serves the pool until the generation ends; it must have failed at something."""
    cluster = ground.cluster
    log = cluster.home.log(f"stranger-{ground.lineage}")
    with log.open("w") as output:
        stranger = subprocess.Popen(
            [word.replace("worker-3", "stranger") for word in command_of(cluster, "worker-3")],
            cwd=folder,
            env=environment_of(cluster, "worker-3") | {"ZERO_WORKER": "stranger"} | changes,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        ground.run.wait()
        ended = stranger.poll()
    finally:
        stranger.send_signal(signal.SIGTERM)
        try:
            stranger.wait(60.0)
        except subprocess.TimeoutExpired:
            stranger.kill()
            stranger.wait()
    if ended is not None or not runs_of(ground.run, states=("FAILED",)):
        raise LocalError(f"the stranger ended ({ended}) or was asked for nothing: see {log}")


def slow_worker(ground: Ground) -> None:
    """A worker whose process stands still for 40 s."""
    child = ground.busy_child()[1]
    os.kill(child, signal.SIGSTOP)
    time.sleep(40.0)
    os.kill(child, signal.SIGCONT)


def second_campaign(ground: Ground) -> None:
    """A second run for the same lineage, which must fail at once and say who writes."""
    ground.busy_worker()
    end = start_generation(ground.cluster, ground.lineage, "zero-campaign").wait()
    if end["type"] != "FAILED" or "is being written by" not in end["message"] or ground.run.is_over():
        raise LocalError(f"the second campaign was not refused beside the first: {end['type']}: {end['message']}")


def overlapping(ground: Ground) -> None:
    """No harm, but a campaign: games of its second generation are played while the first learns and is gated."""
    end = ground.run.wait()
    since = {"after_": ground.run.created()}
    ahead = {"name": {"like_": "selfplay-ahead-"}, "state": {"type": {"any_": ["COMPLETED"]}}, "start_time": since}
    if end["type"] == "COMPLETED" and not fetch(f"{ground.run.api}/task_runs/filter", {"task_runs": ahead}):
        raise LocalError("no game was played ahead")


CAMPAIGNS = {"overlap": 2}
"""Those of the faults that are done to a campaign with `selfplay.overlap`, of so many generations."""
HITS = ("worker-killed", "child-killed", "both-killed", "leash-killed", "sigterm", "training-killed")
"""Those that a run dies of; where none has, they hit nothing."""
FAULTS: dict[str, Fault] = {
    "none": lambda ground: None,
    "worker-killed": worker_killed,
    "child-killed": child_killed,
    "both-killed": both_killed,
    "leash-killed": leash_killed,
    "sigterm": worker_terminated,
    "generation-killed": generation_killed,
    "trainer-killed": trainer_killed,
    "training-killed": training_killed,
    "prefect-restarted": restarted("prefect"),
    "postgres-restarted": restarted("postgres"),
    "mlflow-away": mlflow_away,
    "store-away": away_for_a_minute("store"),
    "other-code": worker_with_other_code,
    "wrong-key": worker_with_wrong_key,
    "slow-worker": slow_worker,
    "second-campaign": second_campaign,
    "overlap": overlapping,
}
