"""From the start of a process to its first simulation, with the compiled kernels on disk: the wait before any work."""

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

PROGRAM = (sys.executable, "-m", "benchmarks.first_simulation")
MAKE_WEIGHTS = """
import sys
from pathlib import Path
from zero.bench import new_weights
from zero.params import Params
Path(sys.argv[2]).write_bytes(new_weights(Params.model_validate_json(sys.argv[1])))
"""


def startup(context: Context, with_network: bool) -> Measured:
    """Seconds of a fresh process; the first of all is not counted, it may have to compile."""
    params = params_of(GO9, context.profile)
    with tempfile.TemporaryDirectory(prefix="zero-bench-") as folder:
        arguments = [*PROGRAM, params.model_dump_json()]
        if with_network:
            weights = Path(folder) / "weights.safetensors"
            _run(sys.executable, "-c", MAKE_WEIGHTS, params.model_dump_json(), str(weights))
            arguments.append(str(weights))
        return alone(context, lambda _: Sample(figure=_run(*arguments)))


def _run(*command: str) -> float:
    """Seconds of a process that ends well.

    Raises:
      WorkerError: it does not; with its last words.
    """
    started = time.perf_counter()
    done = subprocess.run(command, env=child_environment(1), capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise WorkerError(f"`{' '.join(command[1:3])}` ended with status {done.returncode}: {said[-1] if said else ''}")
    return seconds
