"""Makes a lineage under faults: after each one the commands are run again, and the result must equal a run without."""

import json
import random
import shutil
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.faults.drill.outcome import digests, violations
from tests.faults.drill.project import LINEAGE, Fault, Project

BEFORE = "before-{}"
"""Name of the copy of the project before a generation of the reference. All have the same signing key."""
KEYS = ".zero/keys"
MAX_REFUSALS = 3
"""Failures in a row without a fault. `dvc repro` may need a `zero prepare` first."""
KINDS = ("kill", "kill", "kill", "term", "disk")
VICTIMS = ("self", "parent", "group", "group")
MAX_DELAY_SECONDS = 0.5


class Reference(NamedTuple):
    """The run without faults."""

    digests: tuple[dict[str, str], ...]
    """Of generation 0, 1, ..."""
    num_events: int


class StuckError(Exception):
    """A command failed although no fault was injected."""


def steps_of(number: int) -> dict[str, tuple[str, ...]]:
    """The commands of a generation: step -> words after `python -m`."""
    if number == 0:
        return {"new": ("zero", "new", LINEAGE, "--params", "../../params.yaml")}
    return {
        "prepare": ("zero", "prepare", LINEAGE),
        "repro": ("dvc", "repro"),
        "advance": ("zero", "advance", LINEAGE, "--generation", str(number)),
    }


def make_generation(project: Project, number: int, faults: Iterator[Fault], choice: random.Random) -> int:
    """Runs the commands of a generation until all have succeeded. Arms the next fault after each one.

    Returns:
      The number of injected faults.

    Raises:
      StuckError: a command failed although no fault was injected, also after `zero prepare`.
    """
    steps = steps_of(number)
    names = list(steps)
    position = num_faults = num_refusals = 0
    while position < len(names):
        step, begun = names[position], time.monotonic()
        status, output = project.run(*steps[step])
        where, fault = project.injected(), project.fault
        if where:
            num_faults, num_refusals = num_faults + 1, 0
            project.ballast.unlink(missing_ok=True)
            project.arm(next(faults, Fault()))
            message = f"; {message_of(output)}" if fault.kind == "disk" and status else ""
            seconds = time.monotonic() - begun
            print(f"  {fault.kind}, {fault.victim}, {where}; {seconds:.1f} s, exit {status}{message}", flush=True)
        if status == 0:
            if step == "prepare" and json.loads(output.splitlines()[-1])["generation"]["number"] > number:
                break  # it was recorded before the fault
            position += 1
        elif where:
            position = choice.choice((0, position))
        elif "zero restore" in output:
            steps[step] = ("zero", "restore", LINEAGE)
        elif number == 0 and "exists already in" in output:
            break
        else:
            print(f"  {step} refuses: {message_of(output)}", flush=True)
            num_refusals += 1
            if project.processes():
                project.wait_until_idle()  # a process that outlived its parent is the writer
            elif position == 0 or num_refusals > MAX_REFUSALS:
                raise StuckError(f"`{' '.join(steps[step])}` failed without a fault:\n{output}")
            else:
                position = 0
    project.wait_until_idle()
    return num_faults


def make_reference(project: Project, num_generations: int) -> Reference:
    """Makes the lineage without faults."""
    (project.home / ".zero").mkdir()
    project.arm(Fault())
    made = []
    for number in range(num_generations + 1):
        project.keep(BEFORE.format(number))
        make_generation(project, number, iter(()), random.Random())
        made.append(digests(project))
    shutil.copytree(project.home / KEYS, project.root / BEFORE.format(0) / KEYS)
    return Reference(tuple(made), project.num_events())


def random_faults(num_events: int, num_faults: int, choice: random.Random) -> Iterator[Fault]:
    """Random faults, about `num_faults` in a run of `num_events`. Each event has about the same probability."""
    while True:
        nth = choice.randint(1, max(1, 2 * num_events // num_faults))  # after the fault before
        delay = choice.choice((0.0, choice.uniform(0.0, MAX_DELAY_SECONDS)))
        yield Fault(nth, choice.choice(KINDS), choice.choice(VICTIMS), delay)


def make_lineage(
    project: Project, reference: Reference, faults: Iterator[Fault], choice: random.Random, first: int = 0
) -> tuple[int, list[str]]:
    """Makes the generations from `first` on under faults.

    Returns:
      The number of faults, and how the first generation that differs from the reference does so.
    """
    project.put_back(BEFORE.format(first))
    project.arm(next(faults, Fault()))
    num_faults = 0
    for number in range(first, len(reference.digests)):
        try:
            num_faults += make_generation(project, number, faults, choice)
            found = violations(project, reference.digests[number])
        except StuckError as error:
            found = [str(error)]
        if found:
            return num_faults, [f"generation {number}: {line}" for line in found]
    return num_faults, []


def message_of(output: str) -> str:
    """The lines of an output that say why a command failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("zero:", "error", "fatal"))]
    text = " | ".join(errors[-2:] or lines[-1:])
    return f"TRACEBACK {text}" if "Traceback (most recent call last)" in output else text
