"""`python -m benchmarks.feeding`: how many evaluations per second the search requests from a fast device.

A fake device takes the place of the GPU in the loop of a shard. It answers a batch after a set time and computes
nothing, so the figures are those of the host: search, copies, and waiting between the two. Each setting is measured on
as many cores as it has search threads. Amdahl's law through the figures of one and two cores predicts those of more.
"""

import itertools
import os
import time
from collections import deque
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.harness import ONE_THREAD, Work, measure, spread_of
from benchmarks.results import FAILED, Results, Row, Side, describe_machine, markdown, results_text, run_command
from benchmarks.selfplay import PREPARING_SECONDS, selfplay_with
from benchmarks.setting import ON_CPU, numbers_of
from zero.config.params import Params
from zero.games.position import NUM_PLANES
from zero.games.rules import rules_of
from zero.play.batched_games import SMALLEST_BATCH
from zero.progress import progress_of
from zero.search.evaluator import MAX_SUBMITTED
from zero.storage.files import write_manifest

PREDICTED_CORES = (4, 8, 16)
MICRO = 1e-6
POLICY_SCALE = 2.0
"""Standard deviation of the logits of the answers. Equal priors would make every tree broad and shallow."""


class FakeDevice:
    """An `AsyncEvaluator` whose answers are drawn once and are ready after `fixed + position * rows` seconds.

    It takes two batches, evaluates them in turn, and copies positions in and answers out, as `CudaEvaluator` does. It
    sleeps while it waits, and a sleep lasts up to 0.1 ms longer than asked.
    """

    def __init__(self, params: Params, fixed: float, position: float) -> None:
        """Draws the answers; both times are in seconds."""
        # Slots are rounded up to a multiple of the parts, so a batch can have a few more rows.
        rules, rows = rules_of(params.game), params.selfplay.num_slots + SMALLEST_BATCH * params.profile.search_threads
        draws = np.random.default_rng(0)
        powers = np.exp(POLICY_SCALE * draws.standard_normal((rows, rules.num_actions), np.float32))
        self._prior = powers / powers.sum(axis=1, keepdims=True)
        self._value = draws.uniform(-0.5, 0.5, rows).astype(np.float32)
        self._fixed, self._position, self._ready = fixed, position, 0.0
        self._planes = np.zeros((rows, NUM_PLANES, rules.num_words), np.uint64)
        self._submitted: deque[tuple[np.ndarray, np.ndarray, float]] = deque()

    def evaluate(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Answers a batch."""
        assert not self._submitted, "`wait` was not called for the earlier batches"
        self.submit(planes, prior, value)
        self.wait()

    def submit(self, planes: np.ndarray, prior: np.ndarray, value: np.ndarray) -> None:
        """Takes a batch and returns."""
        assert len(self._submitted) < MAX_SUBMITTED, "`wait` was not called for the earlier batches"
        self._planes[: len(planes)] = planes
        self._ready = max(time.perf_counter(), self._ready) + self._fixed + self._position * len(planes)
        self._submitted.append((prior, value, self._ready))

    def wait(self) -> None:
        """Sleeps until the oldest answers are ready. Writes them into the arrays given to `submit`."""
        assert self._submitted, "no batch was submitted"
        prior, value, ready = self._submitted.popleft()
        if (remaining := ready - time.perf_counter()) > 0:
            time.sleep(remaining)
        prior[:], value[:] = self._prior[: len(prior)], self._value[: len(value)]


def fed(params: Params, fixed_us: float, position_us: float) -> Work:
    """Evaluations per second that the loop of a shard requests from a fake device and applies."""
    work = selfplay_with(FakeDevice(params, fixed_us * MICRO, position_us * MICRO), params)
    work(PREPARING_SECONDS)
    return work


def new_row(preset: str, processes: int, threads: int, games: int, is_double: bool, latency: dict[str, float]) -> Row:
    """A row for one setting. `games` are those of all processes together; the rival is the device without a host."""
    slots = games // processes
    batch = slots // (2 if is_double else 1)
    seconds = (latency["fixed_us"] + latency["position_us"] * batch) * MICRO
    limit = processes * batch / seconds
    changes = {"selfplay": {"num_slots": slots}, "profile": {"search_threads": threads, "half_batches": is_double}}
    buffering = "double" if is_double else "single"
    return Row(
        name=f"{processes}x{threads}-{games}-{buffering}",
        work=f"{processes} x {threads} search threads, {games} games, {buffering} buffering",
        unit="evaluations/s",
        ours=Side(
            work="feeding:fed", preset=preset, changes=changes, cores=(threads,) * processes, arguments=dict(latency)
        ),
        rival="the devices alone (computed)",
        rival_figure=spread_of([limit]),
    )


def predicted(one: float, two: float, cores: int) -> float:
    """Figure on `cores` cores by Amdahl's law through the figures on one and on two."""
    serial = min(1.0, max(0.0, 2.0 * one / two - 1.0))
    return one / (serial + (1.0 - serial) / cores)


def law_text(rows: list[Row]) -> str:
    """A table of predictions for the settings that were measured on one core and on two."""
    figures = {row.name: row.figure.median for row in rows if row.figure}
    table = []
    for name, one in figures.items():
        cores, _, setting = name.partition("-")
        for two_cores, axis in (("1x2", "threads"), ("2x1", "processes")):
            if cores == "1x1" and (two := figures.get(f"{two_cores}-{setting}")):
                cells = [f"{predicted(one, two, each):,.0f}" for each in PREDICTED_CORES]
                table.append((setting, axis, f"{one:,.0f}", f"{two:,.0f}", *cells))
    titles = ("setting", "cores are", "1 core", "2 cores", *(f"{each} cores, computed" for each in PREDICTED_CORES))
    return markdown(titles, table)


def main(
    processes: Annotated[str, typer.Option(help="Numbers of processes, separated by commas.")] = "1,2",
    threads: Annotated[str, typer.Option(help="Numbers of search threads per process.")] = "1,2",
    games: Annotated[str, typer.Option(help="Numbers of games, of all processes together.")] = "256,1024,4096,8192",
    fixed_us: Annotated[float, typer.Option(min=0.0, help="Time of a batch of any size, in microseconds.")] = 200.0,
    position_us: Annotated[float, typer.Option(min=0.0, help="Additional time per position.")] = 1.0,
    preset: Annotated[str, typer.Option(help="Preset of the games and the search.")] = "go9-gpu",
    seconds: Annotated[float, typer.Option(min=0.01, help="Seconds per measurement.")] = 5.0,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of a setting; medians are shown.")] = 3,
    out: Annotated[Path | None, typer.Option(help="JSON file for the results.")] = None,
) -> None:
    """Measures the search with a device that answers after a set time, and predicts the figures of more cores.

    Measures one process with several search threads, and several processes with one, both with and without double
    buffering. A setting that needs more cores than the machine has is not measured. Exit status 1 if a setting fails.
    """
    latency = {"fixed_us": fixed_us, "position_us": position_us}
    given = {"--processes": processes, "--threads": threads, "--games": games}
    counts = [numbers_of(option, text) for option, text in given.items()]
    settings = [each for each in itertools.product(*counts) if min(each[:2]) == 1]
    machine = describe_machine()
    os.environ.update(ONE_THREAD)
    measured: list[Row] = []
    with progress_of("feeding", "settings") as progress:
        progress(0, 2 * len(settings))
        for (p, t, g), is_double in itertools.product(settings, (False, True)):
            measured.append(measure(new_row(preset, p, t, g, is_double, latency), ON_CPU, seconds, repeats))
            progress(len(measured), 2 * len(settings))
    results = Results(
        machine=machine, settings={**latency, "seconds": seconds, "repeats": repeats}, rows=tuple(measured)
    )
    if out:
        write_manifest(out.parent, results, out.name)
    typer.echo(results_text(results) + "\n\n" + law_text(measured))
    raise typer.Exit(any(row.note.startswith(FAILED) for row in measured))


if __name__ == "__main__":
    run_command(main, "feeding")
