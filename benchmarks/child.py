"""A process that does one side's work whenever it is asked: `python -m benchmarks.child MODULE ARGUMENTS CORES`.

It keeps itself on its cores before anything that starts threads is imported, lets `benchmarks.MODULE` prepare its work
(`prepare(ARGUMENTS)`, which compiles and warms up), says `{"ready": [...]}`, and answers each line
`{"measure": NAME, "seconds": S}` with a `Sample` or `{"error": ...}`. It ends when its standard input does.
"""

import importlib
import json
import os
import sys
from typing import Any


def main(module: str, arguments: str, cores: str) -> None:
    """Serves standard input and output."""
    os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not get between the lines
    from zero.errors import ZeroError

    def say(line: dict[str, Any]) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    try:
        measures = {
            measure.name: measure for measure in importlib.import_module(f"benchmarks.{module}").prepare(arguments)
        }
        say({"ready": list(measures)})
        for line in sys.stdin:
            request = json.loads(line)
            say(measures[request["measure"]].run(request["seconds"]).model_dump(mode="json"))
    except ZeroError as error:
        say({"error": str(error)})


if __name__ == "__main__":
    main(*sys.argv[1:])
