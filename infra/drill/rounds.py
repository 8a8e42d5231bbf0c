"""Runs that are killed again and again and resumed each time, until they are done; then compared with the reference.

The reference is one uninterrupted run of two generations from the same copy of the project.
"""

import json
import random
import shutil
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from infra.drill.attempts import GENERATION, Attempt, Kill, RandomKill, StuckError
from infra.drill.compare import (
    Outcome,
    damage,
    differences,
    outcome_of,
    played_again,
    read_outcome,
    write_outcome,
)
from infra.drill.log import EQUAL, Line
from infra.drill.moments import Moment, generation_moments, new_lineage_moments
from infra.drill.project import Place, keep, make_project, put_back, zero

NUM_GENERATIONS = 2
EMPTY, BASE = "empty", "base"
"""Copies: the project without a lineage, and with one at generation 0."""
KEYS_DIR = ".zero/keys"
RANDOM_SECONDS = (0.2, 9.0)
RANDOM_KILLS_A_GENERATION = 4
"""Beside the named ones."""
ONLY_RANDOM_KILLS = 20
"""In a generation that has no others."""

Say = Callable[[str], None]


class Reference(NamedTuple):
    """The uninterrupted run."""

    commit: str
    """Of the project."""
    outcomes: tuple[Outcome, ...]
    """At the end of generation 0, 1, ..."""


class Run(NamedTuple):
    """A generation, or the beginning of a lineage, that was killed and resumed until it was done."""

    kills: list[tuple[Kill, str, float]]
    """Each with the command that went on, and the seconds until then."""
    stuck: str
    """What a command said that failed though nothing was killed; empty where all went on."""


def make_reference(place: Place, params: str, num_generations: int, say: Say) -> Reference:
    """The uninterrupted run, made where it is not kept yet for these very sources and parameters."""
    commit = make_project(place, params)
    paths = [place.root / "reference" / f"{commit}-{number}.json" for number in range(num_generations + 1)]
    is_kept = place.kept_commit.exists() and place.kept_commit.read_text() == commit
    if not is_kept or not all(path.exists() for path in paths):
        place.kept_commit.unlink(missing_ok=True)
        say("making the lineage, and two generations of it without any harm ...")
        keep(place, EMPTY)
        zero(place, "new", "tiny")
        keep(place, BASE)
        shutil.copytree(place.home / KEYS_DIR, place.kept(EMPTY) / KEYS_DIR)  # the same key signs all
        write_outcome(paths[0], outcome_of(place))
        for path in paths[1:]:
            attempt = Attempt(place, [])
            for step in GENERATION:
                attempt.run(step)
            write_outcome(path, outcome_of(place))
        place.kept_commit.write_text(commit)
    return Reference(commit, tuple(map(read_outcome, paths)))


def drill_new(place: Place, reference: Reference, name: str, say: Say) -> tuple[str, list[Line]]:
    """Kills `zero new` at each of its moments; where it says that `zero restore` is the way, that is gone."""
    put_back(place, EMPTY)
    shutil.rmtree(place.used_dir, ignore_errors=True)
    moments = new_lineage_moments(str(place.home))

    def go(attempt: Attempt, first: str) -> str | None:
        try:
            return None if attempt.run(first) else first
        except StuckError as error:
            if "exists already in" in str(error):
                return None
            if "zero restore" not in str(error):
                raise
        return None if attempt.run("restore") else "new"

    run = _until_done(place, moments, 0, random.Random(name), go, lambda step, _: "new", "new", say)
    return _judged(place, reference.outcomes[0], "new", name, run)


def drill_generation(
    place: Place, reference: Reference, number: int, name: str, moments: Sequence[Moment], num_random: int, say: Say
) -> tuple[str, list[Line]]:
    """Makes a generation in the project as it stands, under kills; its result and its lines."""
    shutil.rmtree(place.used_dir, ignore_errors=True)

    def go(attempt: Attempt, first: str) -> str | None:
        for step in GENERATION[GENERATION.index(first) :]:
            if not attempt.run(step):
                return step
            if step == "prepare" and _next_generation(place) > number:
                return None  # it was recorded already, and `prepare` has done the rest
        return None

    def following(step: str, choice: random.Random) -> str:
        return step if choice.random() < 0.5 else "prepare"

    run = _until_done(place, moments, num_random, random.Random(name), go, following, "prepare", say)
    return _judged(place, reference.outcomes[number], "loop", name, run)


def moments_of_round(place: Place, round_number: int, number: int) -> tuple[list[Moment], int]:
    """Named moments and kills at random of a generation in a round: all moments in two rounds, then chance alone."""
    if round_number % 3 == 2:
        return [], ONLY_RANDOM_KILLS
    named = generation_moments(str(place.home), number)
    half = (round_number + number) % 2
    return [moment for index, moment in enumerate(named) if index % 2 == half], RANDOM_KILLS_A_GENERATION


def _until_done(
    place: Place,
    moments: Sequence[Moment],
    num_random: int,
    choice: random.Random,
    go: Callable[[Attempt, str], str | None],
    following: Callable[[str, random.Random], str],
    fallback: str,
    say: Say,
) -> Run:
    """Attempts until one is through.

    Args:
      place: the folder of the drill.
      moments: when to kill.
      num_random: kills at a random time, at most one an attempt.
      choice: chance.
      go: runs what is left from a command on; gives the command that was killed, None where all is done.
      following: the command to go on with after one was killed.
      fallback: the command that mends what the others cannot go on from.
      say: tells what happens.
    """
    run = Run([], "")
    first = fallback
    begun = time.monotonic()
    while True:
        at_random = RandomKill(choice.uniform(*RANDOM_SECONDS), choice) if num_random else None
        attempt = Attempt(place, moments, at_random)
        try:
            killed = go(attempt, first)
        except StuckError as error:
            if first != fallback and not attempt.kills:
                say(f"  {error}; so `zero {fallback}` first")
                first = fallback
                run.kills[-1] = (run.kills[-1][0], f"{fallback}, after {run.kills[-1][1]} refused", run.kills[-1][2])
                continue
            killed, run = first, run._replace(stuck=str(error))
        num_random -= sum(kill.moment.startswith("at random") for kill in attempt.kills)
        following_step = following(killed, choice) if killed else "itself"
        for kill in attempt.kills:
            seconds, begun = time.monotonic() - begun, time.monotonic()
            run.kills.append((kill, following_step, seconds))
            say(f"  {kill.moment} ({kill.victim}: {kill.process or kill.step}); {seconds:.1f} s")
        if run.stuck or killed is None:
            return run
        first = following_step


def _judged(place: Place, wanted: Outcome, part: str, name: str, run: Run) -> tuple[str, list[Line]]:
    faults = [f"stuck: {run.stuck}"] if run.stuck else []
    if not run.stuck:
        faults = [*differences(wanted, outcome_of(place)), *played_again(place), *damage(place)]
    result = "; ".join(faults) or EQUAL
    return result, [
        Line(part, name, kill.moment, kill.process, kill.victim, kill.step, resumed, result, round(seconds, 1))
        for kill, resumed, seconds in run.kills
    ]


def _next_generation(place: Place) -> int:
    said = [line for line in place.output.read_text().splitlines() if line.startswith("{")]
    return int(json.loads(said[-1])["generation"]["number"])
