"""A full disk and a read-only one: the command says so in one line, nothing is lost, and it goes on when there is room.

Needs the right to mount (root): the store, or the whole project, is put on a small disk in memory.
"""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from infra.drill.attempts import GENERATION, TRACEBACK, Attempt, StuckError
from infra.drill.compare import damage, differences, outcome_of, played_again
from infra.drill.log import EQUAL, Line
from infra.drill.project import Place, put_back
from infra.drill.rounds import BASE, Reference, Say

ROOMY = "1g"
CLEAR = ("No space left on device", "Read-only file system", "full", "read-only")
"""Words of which a clear message has some."""


class Case(NamedTuple):
    """A disk that fails while a command runs."""

    name: str
    on: str
    """`store` or `project`: what lies on that disk."""
    step: str
    left_kilobytes: int | None
    """Room that is left on it; None: it is read-only."""


CASES = (
    Case("store full at its first weights", "store", "repro", 4),
    Case("store full at a shard", "store", "repro", 28),
    Case("store read-only", "store", "repro", None),
    Case("disk read-only", "project", "prepare", None),
    Case("disk read-only", "project", "repro", None),
    Case("disk full", "project", "repro", 0),
    Case("disk full, 300 KB before", "project", "repro", 300),
    Case("disk full, 600 KB before", "project", "repro", 600),
    Case("disk full, 1000 KB before", "project", "repro", 1000),
    Case("disk read-only", "project", "advance", None),
    Case("disk full", "project", "advance", 0),
    Case("disk full, 40 KB before", "project", "advance", 40),
    Case("disk full, 120 KB before", "project", "advance", 120),
    Case("disk full, 300 KB before", "project", "advance", 300),
)


def drill_disk(place: Place, reference: Reference, done: set[str], say: Say) -> Iterator[tuple[str, str, list[Line]]]:
    """One generation under the failures of each disk; those that are in `done` are passed over."""
    for on in ("store", "project"):
        name = f"disk: {on}"
        if name in done:
            continue
        put_back(place, BASE)
        folder = place.home / ".zero/store" if on == "store" else place.home
        try:
            with _in_memory(folder):
                lines = _generation(place, folder, [case for case in CASES if case.on == on], name, say)
                faults = [
                    *differences(reference.outcomes[1], outcome_of(place)),
                    *played_again(place),
                    *damage(place),
                ]
        except PermissionError as error:
            say(f"  {name}: left out, {error}")
            continue
        result = "; ".join(faults) or EQUAL
        yield name, result, [line._replace(result=result if line.result == EQUAL else line.result) for line in lines]
    shutil.rmtree(place.home, ignore_errors=True)


def _generation(place: Place, folder: Path, cases: list[Case], name: str, say: Say) -> list[Line]:
    lines = []
    for step in GENERATION:
        recorded = False
        for case in cases:
            if case.step == step and not recorded:
                begun = time.monotonic()
                said = _under(case, place, folder)
                clear = said is None or (TRACEBACK not in said and any(word in said for word in CLEAR))
                shown = "went through" if said is None else said
                recorded = said is None and step == GENERATION[-1]  # once more would be the next generation
                say(f"  {case.name}, {step}: {shown}")
                words = EQUAL if clear else f"not clear: {shown}"
                seconds = round(time.monotonic() - begun, 1)
                lines.append(
                    Line("disk", name, f"{case.name}, {step}", shown[:300], "disk", step, step, words, seconds)
                )
        if not recorded and not Attempt(place, []).run(step):
            raise AssertionError("nobody kills here")
    return lines


def _under(case: Case, place: Place, folder: Path) -> str | None:
    """What a command says on that disk; None where it went through."""
    with _full(folder, case.left_kilobytes) if case.left_kilobytes is not None else _read_only(folder):
        try:
            Attempt(place, []).run(case.step)
        except StuckError as error:
            return str(error)
    return None


@contextlib.contextmanager
def _in_memory(folder: Path) -> Iterator[None]:
    """Puts a folder with its content on a disk in memory.

    Raises:
      PermissionError: this user may not mount.
    """
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f"{folder.name}.aside")
    shutil.rmtree(aside, ignore_errors=True)
    subprocess.run(["cp", "--archive", str(folder), str(aside)], check=True)
    _mount("-t", "tmpfs", "-o", f"size={ROOMY},mode=755", "zero-drill", str(folder))
    try:
        subprocess.run(["cp", "--archive", f"{aside}/.", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.rmtree(aside)


@contextlib.contextmanager
def _full(folder: Path, left_kilobytes: int) -> Iterator[None]:
    """A disk with so much room left."""
    used = int(subprocess.check_output(["df", "--output=used", "-k", str(folder)], text=True).split()[-1])
    _mount("-o", f"remount,size={used + left_kilobytes}k", str(folder))
    try:
        yield
    finally:
        _mount("-o", f"remount,size={ROOMY}", str(folder))


@contextlib.contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    _mount("-o", "remount,ro", str(folder))
    try:
        yield
    finally:
        _mount("-o", "remount,rw", str(folder))


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PermissionError(f"`mount {' '.join(words)}`: {done.stderr.strip()}")
