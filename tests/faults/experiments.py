"""Interrupts experiments at random moments, runs the same command again, and compares with an uninterrupted run.

    python -m tests.faults.experiments                  all experiments, three faults each
    python -m tests.faults.experiments match tune       some of them

The faults are those of `tests.faults.drill`. One lineage is of self-play, the other starts from imported games.
"""

import argparse
import hashlib
import json
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import yaml

from tests.end_to_end.project import dvc, git
from tests.end_to_end.test_supervised import DATASET, made_games
from tests.faults.drill.project import LINEAGE, Fault, Project
from tests.faults.drill.rounds import KINDS, MAX_DELAY_SECONDS, VICTIMS, make_generation

PLAYED = ("--games", "24", "--openings", "2", "--json")
# Without `zero elo --games`, which adds games each time.
EXPERIMENTS = {
    "import": ("import", "games.sgf", "--out", f"{DATASET}-again", "--params", "../../params.yaml"),
    "match": ("match", LINEAGE, "random", *PLAYED),
    "tournament": ("tournament", LINEAGE, f"raw:{LINEAGE}", "random", *PLAYED),
    "compare": ("compare", LINEAGE, "taught", *PLAYED),
    "tune": ("tune", LINEAGE, "c_puct", "0.5", "4", "--per-trial", "4", *PLAYED),
    "evaluate": ("evaluate", LINEAGE, "--json"),
    "curves": ("curves", LINEAGE, "--over", "generations", "--json"),
    "openings": ("openings", LINEAGE, "--json"),
}
FOLDERS = ("matches", "tournaments", "comparisons", "tunings", "ladders", "evaluation", "curves", "openings")
"""Below `.zero`, with results."""
UNTIMED = ("seconds", "hours", "started", "finished", "created")
MAX_TRIES = 20


def make_lineages(project: Project) -> None:
    """Makes `tiny` with two generations of self-play, and `taught` with one that learned from imported games."""
    (project.home / "games.sgf").write_text("".join(made_games(300)))
    run(project, "zero", "import", "games.sgf", "--out", DATASET, "--params", "../../params.yaml")
    dvc(project.home, "add", "--quiet", DATASET)
    git(project.home, "add", f"{DATASET}.dvc", "datasets/.gitignore")
    git(project.home, "commit", "--quiet", "-m", "a dataset")
    for number in range(3):
        make_generation(project, number, iter(()), random.Random())
    params = yaml.safe_load((project.root / "params.yaml").read_text()) | {"dataset": DATASET}
    params["selfplay"]["num_games"] = 0
    (project.root / "taught.yaml").write_text(yaml.safe_dump(params))
    run(project, "zero", "new", "taught", "--params", "../../taught.yaml")
    run(project, "zero", "prepare", "taught")
    run(project, "dvc", "--cd", str(project.workspace.with_name("taught")), "repro")
    run(project, "zero", "advance", "taught")


def run(project: Project, *words: str) -> str:
    """Output of a command that must succeed."""
    status, output = project.run(*words)
    if status:
        raise SystemExit(f"`{' '.join(words)}` failed without a fault:\n{output}")
    return output


def result_of(project: Project, output: str) -> dict[str, str]:
    """What the command printed, and the digest of each file of a result, without times."""
    # JSON, in one line or many, between lines on standard error; `zero import` prints a table with the seconds it took.
    printed = re.search(r"^[{\[].*[}\]]$", output, re.MULTILINE | re.DOTALL)
    found = {"output": without_times(printed[0])} if printed else {}
    for folder in (*FOLDERS, f"../{DATASET}-again"):
        for path in sorted((project.home / ".zero" / folder).rglob("*")):
            # SIGKILL may leave a file that was being written, under its temporary name: docs/crashes.md
            if path.is_file() and path.name != "lock" and not path.name.startswith("."):
                data = without_times(path.read_text()).encode() if path.suffix == ".json" else path.read_bytes()
                found[str(path.relative_to(project.home))] = hashlib.sha256(data).hexdigest()
    return found


def compare(expected: dict[str, str], found: dict[str, str]) -> set[str]:
    """What differs; shows output that does."""
    if expected.get("output") != found.get("output"):
        print(f"  expected {expected.get('output')}\n  found    {found.get('output')}", flush=True)
    return {key for key in expected | found if expected.get(key) != found.get(key)}


def without_times(text: str) -> str:
    """JSON without the fields that hold times."""
    return json.dumps(
        json.loads(text, object_hook=lambda tree: {k: v for k, v in tree.items() if k not in UNTIMED}), sort_keys=True
    )


def interrupted(project: Project, words: tuple[str, ...], num_events: int, choice: random.Random) -> tuple[int, str]:
    """Runs a command with a fault at a random event, again and again until it has succeeded.

    Returns:
      The number of faults, and the output.
    """
    num_faults = 0
    for _ in range(MAX_TRIES):
        delay = choice.choice((0.0, choice.uniform(0.0, MAX_DELAY_SECONDS)))
        nth = choice.randint(1, num_events) if num_faults < 2 else 0
        project.arm(Fault(nth, choice.choice(KINDS), choice.choice(VICTIMS), delay))
        status, output = project.run("zero", *words)
        where, fault = project.injected(), project.fault
        project.ballast.unlink(missing_ok=True)
        if where:
            num_faults += 1
            print(f"  {fault.kind}, {fault.victim}, {where}; exit {status}", flush=True)
            project.wait_until_idle()
        if not status:
            return num_faults, output
        if "already exists" in output:  # it was complete before the fault
            return num_faults, output
        if not where:
            raise SystemExit(f"`{' '.join(words)}` failed without a fault:\n{output}")
    raise SystemExit(f"`{' '.join(words)}` did not succeed in {MAX_TRIES} tries")


def main() -> int:
    """Runs the experiments; exit status 1 if a result differs."""
    parser = argparse.ArgumentParser(prog="tests.faults.experiments", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(EXPERIMENTS), help="all by default")
    parser.add_argument("--kills", type=int, default=3, help="number of faults to reach in each; default 3")
    parser.add_argument("--seed", type=int, default=1, help="seed of the faults; default 1")
    options = parser.parse_args()
    num_different = 0
    with tempfile.TemporaryDirectory(prefix="zero-drill-") as folder, Project(Path(folder) / "drill") as project:
        make_lineages(project)
        project.keep("before")
        for name in options.names:
            choice, begun, num_faults = random.Random(f"{options.seed} {name}"), time.monotonic(), 0
            project.put_back("before")
            project.arm(Fault())
            expected = result_of(project, run(project, "zero", *EXPERIMENTS[name]))
            num_events = project.num_events()
            assert ("output" in expected) == (name != "import")
            status, output = project.run("zero", *EXPERIMENTS[name])
            assert (status == 0) == (name != "import"), output  # a second import is refused
            again = result_of(project, output)
            different = compare(expected, again)
            while num_faults < options.kills:
                project.put_back("before")
                injected, output = interrupted(project, EXPERIMENTS[name], num_events, choice)
                num_faults += injected
                found = result_of(project, output)
                different |= compare(expected, found)
            num_different += len(different)
            said = "equal" if not different else f"DIFFERENT: {', '.join(sorted(different))}"
            seconds = time.monotonic() - begun
            print(f"{name}: {num_events} events, {num_faults} faults, {len(expected)} results, {seconds:.0f} s: {said}")
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main())
