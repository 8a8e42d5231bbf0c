"""From the start of a process to its first simulation, with the compiled kernels on disk: the wait before any work."""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.children import child_environment
from benchmarks.results import Sample
from benchmarks.rounds import Context, Measured, alone
from benchmarks.setting import GO9, params_of
from zero.errors import WorkerError
from zero.evaluation.throughput import selfplay_settings

EXPECTED = "simulations: 1\n"


def startup(context: Context, with_network: bool) -> Measured:
    """Seconds of a fresh process; that of the round before the first, which may compile, does not count."""
    params = params_of(GO9, context.profile)
    given = {"params": params.model_dump(mode="json"), "settings": selfplay_settings(params)}
    command = [sys.executable, "-m", "benchmarks.first_simulation", json.dumps(given)]
    with tempfile.TemporaryDirectory(prefix="zero-bench-") as folder:
        if with_network:
            from zero.network.weights import new_network, weights_bytes

            weights = Path(folder) / "weights.safetensors"
            weights.write_bytes(weights_bytes(new_network(params.network, params.game, params.seed)))
            command.append(str(weights))
        return alone(context, lambda _: Sample(figure=process_seconds(command)))


def process_seconds(command: list[str]) -> float:
    """Seconds of a process that makes one simulation, from its start to its end.

    Raises:
      WorkerError: it does not; with its last words.
    """
    started = time.perf_counter()
    done = subprocess.run(command, env=child_environment(1), capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode or done.stdout != EXPECTED:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise WorkerError(f"the process ended with status {done.returncode} and said {said[-1] if said else 'nothing'}")
    return seconds
