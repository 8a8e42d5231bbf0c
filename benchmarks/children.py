"""The parent's end of a child: it is started on its cores, asked for samples, and ended with its block."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from benchmarks.machine import PROJECT_DIR
from benchmarks.results import Sample
from benchmarks.work import Side
from zero.errors import WorkerError
from zero.storage.manifests import Manifest

END_SECONDS = 10.0
"""How long a child may take to end once its input has."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def child_environment(num_threads: int) -> dict[str, str]:
    """This process's environment, with libraries kept to some threads and modules found in the project."""
    paths = os.pathsep.join(filter(None, (str(PROJECT_DIR), os.environ.get("PYTHONPATH"))))
    return os.environ | dict.fromkeys(THREAD_VARIABLES, str(num_threads)) | {"PYTHONPATH": paths}


class Child:
    """A process that does the work of `benchmarks.MODULE`; use it in a `with`."""

    def __init__(
        self, module: str, arguments: Manifest, cores: Sequence[int], environment: Mapping[str, str] | None = None
    ) -> None:
        """Starts it with as many threads as cores; `environment` is added to this process's own."""
        self._module = module
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 # closed when the child has ended
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "benchmarks.child", module, arguments.model_dump_json()),
                ",".join(map(str, cores)),
            ],
            env=child_environment(len(cores)) | dict(environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        self._ready = False
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            self._process.kill()
        try:
            self._process.communicate(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        finally:
            self._stderr.close()

    def wait_until_ready(self) -> None:
        """Waits until it is warm.

        Raises:
          WorkerError: it cannot do its work; with what it said.
        """
        if not self._ready:
            self._read()
            self._ready = True

    def ask(self, measure: str, seconds: float) -> None:
        """Lets it begin; `answer` waits for what it counted."""
        self.wait_until_ready()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which `answer` finds out
            self._process.stdin.write(json.dumps({"measure": measure, "seconds": seconds}) + "\n")
            self._process.stdin.flush()

    def answer(self) -> Sample:
        """What it counted since it was asked.

        Raises:
          WorkerError: it died or failed; with what it said.
        """
        return Sample.model_validate(self._read())

    def run(self, measure: str, seconds: float) -> Sample:
        """Lets it work for some seconds while this process waits.

        Raises:
          WorkerError: it died or failed; with what it said.
        """
        self.ask(measure, seconds)
        return self.answer()

    def side(self, measure: str) -> Side:
        """`run` of one measure, as a side of a comparison."""
        return lambda seconds: self.run(measure, seconds)

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(
                f"the child of benchmark {self._module} ended with status {self._process.wait()}: {self._said()}"
            )
        told: dict[str, Any] = json.loads(line)
        if "error" in told:
            raise WorkerError(f"benchmark {self._module}: {told['error']}")
        return told

    def _said(self) -> str:
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"
