"""Start of a process up to its first simulation, with the compiled kernels on disk.

The measured process is `python -m benchmarks.startup PARAMS SETTINGS WEIGHTS`: like a worker or an engine it imports
PyTorch, loads the weights, and makes one simulation. PARAMS and SETTINGS (the values of `PlaySettings`) are JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import Context, Measured, compare, thread_environment
from benchmarks.results import PROJECT_DIR, Sample
from benchmarks.setting import GO9, params_of, selfplay_settings
from zero.config.params import Params
from zero.errors import WorkerError
from zero.games.rules import rules_of
from zero.play.lockstep_games import advance
from zero.play.slots import PlaySettings, new_batch, new_records, new_slots
from zero.search.streams import stream_of

EXPECTED = "simulations: 1\n"


def main(params_json: str, settings_json: str, weights: str) -> None:
    """Makes one simulation of one game and prints the number of simulations."""
    params, settings = Params.model_validate_json(params_json), PlaySettings(*json.loads(settings_json))
    from zero.network.profile import prepare_torch

    prepare_torch(params.profile, params.profile.selfplay_threads)
    from zero.network.inference import new_evaluator

    evaluator = new_evaluator(Path(weights).read_bytes(), params.profile)
    rules = rules_of(params.game)
    slots, batch = new_slots(rules, settings, 1, params.search.max_nodes), new_batch(rules, 1, 1)
    records = new_records(rules, np.stack([stream_of(0, 0, "bench", 0)]))
    while (done := int(slots.trees.node_visits[0, 0])) == 0:
        advance(rules, settings, slots, batch, records)
        evaluator.evaluate(batch.planes[0], batch.prior[0], batch.value[0])
    print(f"simulations: {done}")


def startup(context: Context) -> Measured:
    """Seconds of a new process. The round that is discarded may compile the kernels."""
    from zero.network.weights import new_network, weights_bytes

    params = params_of(GO9, context.profile)
    settings = json.dumps(selfplay_settings(params))
    with tempfile.TemporaryDirectory(prefix="zero-bench-") as folder:
        weights = Path(folder) / "weights.safetensors"
        weights.write_bytes(weights_bytes(new_network(params.network, params.game, params.seed)))
        command = [sys.executable, "-m", "benchmarks.startup", params.model_dump_json(), settings, str(weights)]
        return compare(context, lambda _: Sample(process_seconds(command)))


def process_seconds(command: list[str]) -> float:
    """Seconds from the start to the end of a process that makes one simulation.

    Raises:
      WorkerError: it fails; with its last message.
    """
    environment = os.environ | thread_environment(1) | {"PYTHONPATH": str(PROJECT_DIR)}
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode or done.stdout != EXPECTED:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise WorkerError(f"the process ended with status {done.returncode}: {lines[-1] if lines else '(no output)'}")
    return seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
