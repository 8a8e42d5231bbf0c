"""The drill with the real servers: the flow, the worker, Prefect, MLflow and what they run are killed in a generation.

Everything is started by `infra.local`, as `make up` does; after a kill `infra.local up` starts what is down, and the
generation is asked for again where its run has ended.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from infra.drill.compare import damage, differences, outcome_of, played_again
from infra.drill.log import EQUAL, Line
from infra.drill.moments import LINEAGE
from infra.drill.project import Place, environment_of, git, put_back
from infra.drill.rounds import BASE, NUM_GENERATIONS, Reference, Say
from infra.processes import Process, process_tree, read_record

POLL_SECONDS = 0.05
MOMENT_SECONDS = 90.0
"""Patience with a stage that is to begin."""
RUN_SECONDS = 240.0
"""Patience with a run."""
SETTLE_SECONDS = 0.5
TRIES = 3
"""Times that a moment is waited for at which there was nobody to kill: the run had just ended."""
CLOSED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


class ServerKill(NamedTuple):
    """Who is killed, and while what runs."""

    victim: str
    """`flow`, `worker`, `prefect`, `mlflow`, or a command: `dvc`, `player`, `stage`."""
    during: str
    """Words of a command that runs at that time."""
    seconds: float = 0.3
    """After it has begun."""


KILLS = {
    1: (
        ServerKill("flow", "zero prepare", 0.1),
        ServerKill("player", "zero worker"),
        ServerKill("flow", "zero worker"),
        ServerKill("prefect", "zero worker", 0.1),
        ServerKill("worker", "dvc repro --single-item selfplay", 0.1),
        ServerKill("mlflow", "zero training"),
        ServerKill("flow", "zero training", 0.8),
        ServerKill("prefect", "dvc repro --single-item gating", 0.1),
        ServerKill("flow", "zero advance", 1.0),
        ServerKill("mlflow", "zero advance", 0.5),
    ),
    2: (
        ServerKill("worker", "zero worker"),
        ServerKill("dvc", "dvc repro --single-item replay"),
        ServerKill("worker", "zero training", 0.5),
        ServerKill("stage", "zero training", 0.8),
        ServerKill("prefect", "zero training", 0.5),
        ServerKill("worker", "zero advance", 0.5),
        ServerKill("prefect", "zero advance", 1.5),
        ServerKill("mlflow", "zero advance", 2.5),
    ),
}


class Servers:
    """Prefect, MLflow and the worker of the project that is killed."""

    def __init__(self, place: Place) -> None:
        """Starts nothing yet."""
        self._place = place
        self._ports = {name: free_port() for name in ("prefect", "mlflow")}

    def up(self) -> None:
        """Starts what does not run."""
        places = [f"--{name}-port={port}" for name, port in self._ports.items()]
        self._run(sys.executable, "-m", "infra.local", "up", *places)

    def down(self) -> None:
        """Stops all."""
        self._run(sys.executable, "-m", "infra.local", "down")

    def begin(self) -> str:
        """Asks for a generation; id of the run."""
        words = ("prefect", "deployment", "run", "zero-generation/zero-generation", "--param", f"lineage={LINEAGE}")
        self._run(sys.executable, "-m", "infra.local", "exec", *words)
        newest = {"sort": "EXPECTED_START_TIME_DESC", "limit": 1}
        return str(self._ask("/flow_runs/filter", newest)[0]["id"])

    def has_ended(self, run: str) -> bool:
        """True where a run is over, however it ended; False also where the server does not answer."""
        try:
            return self._ask(f"/flow_runs/{run}")["state_type"] in CLOSED
        except OSError:
            return False

    def track(self) -> None:
        """Catches MLflow up with the record."""
        self._run(sys.executable, "-m", "infra.local", "exec", sys.executable, "-m", "zero", "track", LINEAGE)

    def tracked(self) -> list[str]:
        """Names of the finished runs of generations in MLflow."""
        found = self._ask_mlflow("experiments/get-by-name", {"experiment_name": LINEAGE}, "GET")
        wanted = {"experiment_ids": [found["experiment"]["experiment_id"]], "max_results": 100}
        runs = self._ask_mlflow("runs/search", wanted, "POST").get("runs", [])
        return sorted(
            run["info"]["run_name"]
            for run in runs
            if run["info"]["status"] == "FINISHED" and run["info"]["run_name"].startswith("gen-")
        )

    def kill(self, victim: str, during: str) -> str:
        """Kills; command line of who died, empty where nobody was there."""
        pids = self._pids(victim, during)
        words = command_line(pids[0]) if pids else ""
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return words

    def is_at(self, during: str) -> bool:
        """True where a command with those words runs for the project."""
        return any(during in command_line(process.pid) for process in self._tree("worker"))

    def _pids(self, victim: str, during: str) -> list[int]:
        """Process numbers, the one that matters first; of a server also its children, which would hold its port."""
        if victim == "worker":
            return [process.pid for process in self._tree("worker")][:1]
        if victim in ("prefect", "mlflow"):
            return [process.pid for process in self._tree(victim)]
        if victim == "flow":
            worker = read_record(self._place.home / ".zero/run/worker.json")
            return [process.pid for process in self._tree("worker") if worker and process.parent == worker.pid][:1]
        words = {"dvc": "-m dvc repro", "player": "-m zero worker", "stage": f"-m {during}"}[victim]
        found = [p.pid for p in self._tree("worker") if command_line(p.pid).startswith(words)]
        return found[:1]

    def _tree(self, name: str) -> list[Process]:
        """A service and all that runs under it, itself first."""
        record = read_record(self._place.home / ".zero/run" / f"{name}.json")
        return sorted(process_tree(record), key=lambda process: process.pid != record.pid) if record else []

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, cwd=self._place.home, env=environment_of(self._place), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} gave {done.returncode}\n{done.stdout}{done.stderr}")

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return ask(f"http://127.0.0.1:{self._ports['prefect']}/api{path}", body)

    def _ask_mlflow(self, path: str, body: dict[str, Any], method: str) -> Any:
        address = f"http://127.0.0.1:{self._ports['mlflow']}/api/2.0/mlflow/{path}"
        if method == "GET":
            return ask(f"{address}?{urllib.parse.urlencode(body)}", None)
        return ask(address, body)


def drill_servers(
    place: Place, reference: Reference, done: set[str], say: Say
) -> Iterator[tuple[str, str, list[Line]]]:
    """Generations made by the flow under kills, compared with those that were made without a server."""
    names = {number: f"servers, gen {number}" for number in range(1, NUM_GENERATIONS + 1)}
    if all(name in done for name in names.values()):
        return
    put_back(place, BASE)
    servers = Servers(place)
    try:
        servers.up()
        for number, name in names.items():
            kills = _generation(servers, place, number, say)
            faults = [*differences(reference.outcomes[number], outcome_of(place)), *played_again(place), *damage(place)]
            if number == NUM_GENERATIONS:
                servers.track()
                wanted = [f"gen-{each:04d}" for each in names]
                found = [run for run in servers.tracked() if run in wanted]
                faults += [] if found == wanted else [f"MLflow has {found}, not {wanted}"]
            result = "; ".join(faults) or EQUAL
            yield name, result, [line._replace(run=name, result=result) for line in kills]
    finally:
        servers.down()
        shutil.rmtree(place.home, ignore_errors=True)


def _generation(servers: Servers, place: Place, number: int, say: Say) -> list[Line]:
    """Kills one after the other, each time going on as a person would, until the generation is recorded."""
    lines: list[Line] = []
    run = servers.begin()
    for kill in KILLS[number]:
        begun, before = time.monotonic(), run
        process = ""
        for _ in range(TRIES):
            run = _wait_for(servers, place, number, kill.during, run)
            time.sleep(kill.seconds)
            if (process := servers.kill(kill.victim, kill.during)) or is_recorded(place, number):
                break
        if lines:
            lines[-1] = lines[-1]._replace(resumed=_resumed(before, run))
        moment = f"{kill.victim} during {kill.during}"
        if process:
            time.sleep(SETTLE_SECONDS)
            servers.up()
            seconds = round(time.monotonic() - begun, 1)
            lines.append(Line("servers", "", moment, process[:120], kill.victim, kill.during, "", "", seconds))
        say(f"  {moment}; {f'{seconds:.1f} s' if process else 'nobody was there'}")
    before = run
    while not is_recorded(place, number):
        wait_until(partial(servers.has_ended, run), RUN_SECONDS)
        if not is_recorded(place, number):
            run = servers.begin()
    wait_until(partial(servers.has_ended, run), RUN_SECONDS)
    lines[-1] = lines[-1]._replace(resumed=_resumed(before, run))
    return lines


def _resumed(before: str, run: str) -> str:
    return "the same run, its dead servers started again" if run == before else "another run"


def _wait_for(servers: Servers, place: Place, number: int, during: str, run: str) -> str:
    """Waits for a command, or for the end of the generation; the run, or the one that had to follow it."""
    deadline = time.monotonic() + MOMENT_SECONDS
    while not servers.is_at(during) and time.monotonic() < deadline:
        if servers.has_ended(run):
            if is_recorded(place, number):
                break
            run = servers.begin()
        time.sleep(POLL_SECONDS)
    return run


def is_recorded(place: Place, number: int) -> bool:
    """True where the project has the tag of a generation and the workspace goes on to the next."""
    if not git(place, "tag", "--list", f"{LINEAGE}/gen-{number:04d}").strip():
        return False
    state = json.loads((place.workspace / "state/generation.json").read_text())
    return int(state["number"]) > number


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Waits for something, or for the end of patience."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def command_line(pid: int) -> str:
    """Command line of a process, from after the interpreter; empty where there is none."""
    try:
        words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[:-1]
    except OSError:
        return ""
    return " ".join(words[1:])


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(address: str, body: dict[str, Any] | None) -> Any:
    """Answer of a server as JSON.

    Raises:
      OSError: it does not answer.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)
