"""`python -m infra.drill --kills 200`: kills the loop at many moments and compares what comes out with a quiet run."""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from infra.drill.log import EQUAL, Line, Log, num_kills, summary, summary_text
from infra.drill.moments import generation_moments, new_lineage_moments
from infra.drill.project import SOURCE_DIR, Place, put_back
from infra.drill.rounds import (
    BASE,
    NUM_GENERATIONS,
    Reference,
    drill_generation,
    drill_new,
    make_reference,
    moments_of_round,
)

PARTS = ("new", "disk", "servers", "loop")


def say(line: str) -> None:
    """One line to the person who watches."""
    print(line, flush=True)


def smoke_params(shard_fraction: float = 0.25) -> str:
    """The `smoke` preset with a gate that lets every challenger in; one process at work makes a kill cheap.

    Args:
      shard_fraction: shards that are played twice.
    """
    import yaml

    from zero.config.presets import preset_text

    params = yaml.safe_load(preset_text("smoke"))
    params["executor"]["num_processes"] = 1
    params["verification"]["shard_fraction"] = shard_fraction
    params["gating"]["threshold"] = 0.0
    return str(yaml.safe_dump(params, sort_keys=False))


def run_part(part: str, place: Place, reference: Reference, log: Log, kills: int) -> None:
    """Runs a part of the drill, less the runs that the log has."""
    if part == "loop":
        loop(place, reference, log, kills)
    elif part == "new" and "new" not in log.done:
        finish(log, "new", *drill_new(place, reference, "new", say))
    elif part == "disk":
        from infra.drill.disk import drill_disk

        for name, result, lines in drill_disk(place, reference, set(log.done), say):
            finish(log, name, result, lines)
    elif part == "servers":
        from infra.drill.servers import drill_servers

        for name, result, lines in drill_servers(place, reference, set(log.done), say):
            finish(log, name, result, lines)


def loop(place: Place, reference: Reference, log: Log, kills: int) -> None:
    """Rounds of two generations, until there were so many kills."""
    round_number = 0
    while num_kills(log) < kills:
        names = [f"round {round_number}, gen {number}" for number in range(1, NUM_GENERATIONS + 1)]
        if not all(name in log.done for name in names):
            put_back(place, BASE)
            for number, name in enumerate(names, start=1):
                moments, num_random = moments_of_round(place, round_number, number)
                result, lines = drill_generation(place, reference, number, name, moments, num_random, say)
                finish(log, name, result, lines)
                if result != EQUAL:
                    break
        for name in names:
            log.done.setdefault(name, "not run: the generation before it differs")
        round_number += 1


def finish(log: Log, name: str, result: str, lines: list[Line]) -> None:
    """Takes a finished run into the log."""
    if name not in log.done:
        log.add(name, result, lines)
    say(f"{time.strftime('%H:%M:%S')} {name}: {len(lines)} kills, {result}; {num_kills(log)} kills in all")


def main() -> int:
    """Runs the drill. Exit status 1 where a result differs."""
    parser = argparse.ArgumentParser(prog="infra.drill", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="kills to reach")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run, in their order")
    out = SOURCE_DIR / "benchmarks/results/latest-drill"
    parser.add_argument("--out", type=Path, default=out, help="log: OUT.jsonl, and a summary OUT.json and OUT.txt")
    place_dir = Path(tempfile.gettempdir()) / "zero-drill"
    parser.add_argument("--place", type=Path, default=place_dir, help="folder of the project that is killed")
    options = parser.parse_args()
    place = Place(options.place.resolve())
    place.root.mkdir(parents=True, exist_ok=True)
    reference = make_reference(place, smoke_params(), NUM_GENERATIONS, say)
    named = [*generation_moments(str(place.home), 1), *new_lineage_moments(str(place.home))]
    try:
        log = Log(options.out.with_suffix(".jsonl"), {"project_commit": reference.commit})
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for part in options.parts:
        run_part(part, place, reference, log, options.kills)
    figures = summary(log, len({moment.name for moment in named}))
    options.out.with_suffix(".json").write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    options.out.with_suffix(".txt").write_text(summary_text(figures, log.lines))
    say(summary_text(figures, []))
    for folder in (place.home, place.root / "scratch", place.used_dir):
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if figures["runs_that_differ"] else 0


if __name__ == "__main__":
    sys.exit(main())
