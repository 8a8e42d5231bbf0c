"""`python -m benchmarks.gpu` (or `make gpu`): tests and measures one NVIDIA GPU, and writes one report.

Each section is written as soon as it is finished, and a repeated call skips finished sections of the same commit. So
the command can be killed at any time, and `--minutes 10` divides it into several calls. With `--fake` the sections run
on the CPU with the preset `smoke`: that tests the command, and the figures mean nothing.

The folder gets `report.json`, `report.md`, the results of the tests (`tests.xml`) and a lineage per commit
(`generation-COMMIT/`, see `benchmarks.seeds`).
"""

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from xml.etree import ElementTree

import typer

from benchmarks.gpu_device import Device, find_device
from benchmarks.gpu_work import Memory, Profile, memory, network_flops, profile, shard_digest
from benchmarks.harness import measure, spread_of
from benchmarks.results import PROJECT_DIR, Side, describe_machine, markdown, number, rows_named, run_command
from benchmarks.seeds import read_experiment
from benchmarks.setting import ON_CPU, changed, params_of
from zero.config.params import Params
from zero.config.settings import STATE_FOLDER
from zero.errors import StorageError, WorkerError, ZeroError
from zero.network.gpu_lock import lock_visible_gpus
from zero.storage.files import locked, read_manifest, write_atomic, write_manifest
from zero.storage.manifests import Manifest

JSON_FILE, MARKDOWN_FILE = "report.json", "report.md"
PRESET, FAKE_PRESET = "go9-gpu", "smoke"
FAKE = Device(name="fake device (the CPU)")
SMALL_SHARDS = "selfplay.num_games=512,selfplay.games_per_shard=256,selfplay.num_slots=256"
"""Changed parameters of the determinism check: two shards."""
FEW_GAMES = "selfplay.num_games=256,selfplay.num_simulations=16,selfplay.fast_simulations=1"
"""Changed parameters where games, played without a network, only provide samples."""
PASSES = 3
"""Passes of a training step: forward, and backward for inputs and for weights."""
SECONDS, REPEATS, FAKE_SECONDS, FAKE_SIZE = 5.0, 3, 0.02, 64
SEEDS = "--seeds 1 --generations 1 --opponents random --probe-games 2 --confirmation-games 2 --simulations 2 --options="
SECTIONS = {
    "tests": 180,
    "gpu-matmul": 40,
    "gpu-inference-512": 40,
    "gpu-inference-2048": 60,
    "gpu-inference-8192": 120,
    "gpu-10x128": 120,
    "gpu-training": 100,
    "determinism": 120,
    "memory": 60,
    "profile": 50,
    "generation": 300,
}
"""The sections in order, with the seconds planned for each: 20 minutes. Names with `gpu-` are rows of `rows.yaml`."""


class Figure(Manifest):
    """A measured figure, and the one that it cannot exceed."""

    name: str
    value: float
    unit: str
    bound: float | None = None
    bound_name: str = ""


class BenchSection(Manifest):
    """The result of a part of the command."""

    name: str = ""
    figures: tuple[Figure, ...] = ()
    problem: str = ""
    """What failed or is wrong; the next call then repeats the section. Empty: nothing."""
    table: str = ""
    seconds: float = 0.0


class Report(Manifest):
    """All finished sections of one device and one commit."""

    device: Device
    machine: dict[str, Any]
    """See `benchmarks.results.describe_machine`."""
    sections: tuple[BenchSection, ...] = ()

    def figure(self, name: str) -> float | None:
        """The first figure of a section; None if there is none yet."""
        return next((each.figures[0].value for each in self.sections if each.name == name and each.figures), None)


class Bench(NamedTuple):
    """What a section works with."""

    folder: Path
    is_fake: bool
    report: Report
    params: Params
    """Those of the preset."""
    deadline: float
    """Time of `time.monotonic` when the call should end."""

    def changed(self, changes: str) -> Params:
        """The parameters with changes, which the fake device does not need."""
        return self.params if self.is_fake else changed(self.params, changes)


def gpu_tests(bench: Bench) -> BenchSection:
    """Runs the tests that need a GPU."""
    path = bench.folder.resolve() / "tests.xml"
    path.unlink(missing_ok=True)
    # One process, so that the tests do not share the GPU's memory.
    words = ["-q", "-n", "0", "-m", "gpu", "tests/network", f"--junitxml={path}"]
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True, check=False)
    if not path.exists():
        raise WorkerError(f"pytest ended with status {done.returncode}: {(done.stdout + done.stderr).strip()[-500:]}")
    suite = next(ElementTree.parse(path).iter("testsuite"))
    total, failures, errors, skipped = (int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped"))
    bad = failures + errors + (0 if bench.is_fake else skipped)
    figure = Figure(name="passed", value=total - failures - errors - skipped, unit="tests", bound=total)
    return BenchSection(
        figures=(figure,), problem=f"{bad} of {total} failed or skipped: {path}" if bad or not total else ""
    )


def measure_row(bench: Bench, name: str) -> BenchSection:
    """Measures a row of the benchmarks."""
    # `find_device` has found the GPU. In a container /proc, where rows look for it, may not show it.
    row = rows_named(name)[0].model_copy(update={"needs": {}})
    seconds, repeats = SECONDS, REPEATS
    if bench.is_fake:
        row = row.model_copy(update={"ours": _small(row.ours), "against": _small(row.against)})
        seconds, repeats = FAKE_SECONDS, 1
    with lock_visible_gpus(bench.params.profile):
        measured = measure(row, ON_CPU, seconds, repeats)
    if measured.figure is None:
        raise WorkerError(measured.note)
    if name == "gpu-matmul":
        bound, bound_name = bench.report.device.peak_tflops, "data sheet"
    else:
        flops = network_flops(bench.params) * (PASSES if name == "gpu-training" else 1)
        tflops, bound_name = bench.report.figure("gpu-matmul"), f"gpu-matmul / {flops / 1e9:.2f} GFLOP"
        bound = tflops * 1e12 / flops if tflops else None
    found = ((row.work, measured.figure), (row.rival, measured.rival_figure))
    figures = [
        Figure(name=work, value=spread.median, unit=row.unit, bound=bound, bound_name=bound_name)
        for work, spread in found
        if spread
    ]
    return BenchSection(figures=tuple(figures))


def determinism(bench: Bench) -> BenchSection:
    """Plays a shard alone, and again beside another shard, and compares the digests."""
    params = bench.changed(SMALL_SHARDS)
    with lock_visible_gpus(params.profile), ProcessPoolExecutor(2, get_context("spawn")) as pool:
        alone = pool.submit(shard_digest, params, 0).result()
        beside, other = (future.result() for future in [pool.submit(shard_digest, params, i) for i in (0, 1)])
    assert other != alone, "two different shards have the same digest"
    problem = "" if beside == alone else f"the shard is {alone[:12]} alone and {beside[:12]} beside another"
    figure = Figure(name="equal digests of a shard, alone and beside another", value=beside == alone, unit="", bound=1)
    return BenchSection(figures=(figure,), problem=problem)


def memory_use(bench: Bench) -> BenchSection:
    """Measures the memory of play and training, and whether it grows."""
    found: Memory = _in_child(memory, bench.changed(FEW_GAMES))
    bound, names = (
        bench.report.device.total_mib or None,
        ("play, first batches", "play, later batches", "with training"),
    )
    figures = [Figure(name=name, value=x, unit="MiB", bound=bound) for name, x in zip(names, found, strict=True)]
    # The resident memory of a process, which the fake device reports, grows for other reasons too.
    problem = (
        f"{found.first:.0f} MiB grew to {found.later:.0f}" if found.later > found.first and not bench.is_fake else ""
    )
    return BenchSection(figures=tuple(figures), problem=problem)


def batch_profile(bench: Bench) -> BenchSection:
    """Profiles the network alone at the batch size of self-play."""
    found: Profile = _in_child(profile, bench.params)
    calls = Figure(name="kernels and copies per batch", value=found.calls, unit="")
    busy = Figure(name="share of the time in which one runs", value=found.busy, unit="", bound=1)
    return BenchSection(figures=(calls, busy), table=found.table)


def generation(bench: Bench) -> BenchSection:
    """Makes one generation of the preset. If the time runs out, the next call continues it."""
    folder = bench.folder / f"generation-{bench.report.machine['commit'][:12]}"
    options = ["--preset", FAKE_PRESET if bench.is_fake else PRESET, "--folder", str(folder), *SEEDS.split()]
    command = [sys.executable, "-m", "benchmarks.seeds", *options]
    timeout = max(60.0, bench.deadline - time.monotonic())
    try:  # the children of a killed command end with it
        done = subprocess.run(command, cwd=PROJECT_DIR, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise WorkerError("not finished; repeat the command, it continues") from None
    if done.returncode:
        raise WorkerError(f"benchmarks.seeds failed: {(done.stdout + done.stderr).strip()[-500:]}")
    made = read_experiment(folder).seed(1).generations[0]
    seconds, bound = sum(made.attempts), bench.report.figure("gpu-inference-512")
    rate = Figure(
        name="evaluations of self-play and match over the time of all stages",
        value=(made.evaluations or 0) / seconds,
        unit="evaluations/s",
        bound=bound,
        bound_name="gpu-inference-512",
    )
    games = Figure(name="games of self-play and match", value=made.games or 0, unit="games")
    return BenchSection(figures=(rate, games, Figure(name="one generation", value=seconds, unit="s")))


WORKS: dict[str, Callable[[Bench], BenchSection]] = {
    "tests": gpu_tests,
    "determinism": determinism,
    "memory": memory_use,
    "profile": batch_profile,
    "generation": generation,
}


def run_section(bench: Bench, name: str) -> BenchSection:
    """Runs a section. An error becomes its problem, so that the other sections are run."""
    begun = time.monotonic()
    try:
        section = WORKS[name](bench) if name in WORKS else measure_row(bench, name)
    except (ZeroError, RuntimeError) as error:  # PyTorch's errors and that of a dead child are RuntimeErrors
        section = BenchSection(problem=f"{type(error).__name__}: {error}")
    return section.model_copy(update={"name": name, "seconds": round(time.monotonic() - begun, 1)})


def report_text(report: Report) -> str:
    """The report in Markdown."""
    machine = {name: str(report.machine[name]) for name in ("cpu", "cores", "system", "python", "commit")}
    rows = [
        (section.name, figure.name, f"{_digits(figure.value)} {figure.unit}")
        + (
            (_digits(figure.bound), figure.bound_name, f"{figure.value / figure.bound:.1%}")
            if figure.bound
            else ("",) * 3
        )
        for section in report.sections
        for figure in section.figures
    ]
    results = [(each.name, f"{each.seconds:,.0f} s", each.problem or "finished") for each in report.sections]
    note = ["**A MIG slice: the figures are those of the slice, not of the GPU.**"] if report.device.is_slice else []
    parts = [
        f"# {report.device.name}",
        *note,
        markdown(("fact", "value"), (report.device.facts | machine).items()),
        markdown(("section", "time", "result"), results),
        markdown(("section", "figure", "value", "bound", "bound by", "share"), rows),
        *(each.table for each in report.sections if each.table),
    ]
    return "\n\n".join(parts) + "\n"


def open_report(folder: Path, device: Device) -> Report:
    """The report in the folder, to be continued; a new one if there is none or it is of another commit.

    Raises:
      StorageError: the folder has the report of another device, or a file that is not a report.
    """
    machine = describe_machine()
    if (folder / JSON_FILE).exists():
        report = read_manifest(folder, Report, JSON_FILE)
        if report.device.name != device.name:
            raise StorageError(f"{folder} has the report of {report.device.name}, not of {device.name}; give --folder")
        if report.machine["commit"] == machine["commit"]:
            return report
    return Report(device=device, machine=machine)


def main(
    folder: Annotated[Path | None, typer.Option(help="Folder of the report; by default .zero/gpu.")] = None,
    minutes: Annotated[float, typer.Option(min=0.0, help="Skip each section that may end later than this.")] = 30.0,
    sections: Annotated[str, typer.Option(help=f"Some of {','.join(SECTIONS)}; by default all.")] = "",
    fake: Annotated[bool, typer.Option("--fake", help="Test the command on the CPU, with tiny networks.")] = False,
) -> None:
    """Tests and measures one NVIDIA GPU, and writes a report. Exit status 1: a section failed or is missing."""
    deadline = time.monotonic() + 60 * minutes
    wanted = [name for name in sections.split(",") if name] or list(SECTIONS)
    if unknown := [name for name in wanted if name not in SECTIONS]:
        raise ZeroError(f"unknown section {unknown[0]!r}; --sections must be some of {','.join(SECTIONS)}")
    where = folder or PROJECT_DIR / STATE_FOLDER / ("gpu-fake" if fake else "gpu")
    device = FAKE if fake else find_device()
    if device.is_slice:
        typer.echo(f"note: {device.name} is a MIG slice; the figures are those of the slice", err=True)
    params = params_of(Side(work="", preset=FAKE_PRESET if fake else PRESET, cores=(int(fake),)), ON_CPU)
    with locked(where, f"another process writes the report in {where}; wait for it, or give another --folder"):
        report = open_report(where, device)
        for name, seconds in SECTIONS.items():
            if name not in wanted or any(each.name == name and not each.problem for each in report.sections):
                continue
            if time.monotonic() + seconds > deadline:
                typer.echo(f"{name}: not begun, because it may take {seconds} s; repeat the command", err=True)
                continue
            section = run_section(Bench(where, fake, report, params, deadline), name)
            by_name = {each.name: each for each in (*report.sections, section)}
            kept = tuple(by_name[each] for each in SECTIONS if each in by_name)
            report = report.model_copy(update={"sections": kept})
            write_manifest(where, report, JSON_FILE)
            write_atomic(where / MARKDOWN_FILE, report_text(report).encode())
            typer.echo(f"{name}: {section.problem or 'finished'} ({section.seconds:,.0f} s)", err=True)
    typer.echo(report_text(report))
    raise typer.Exit(not {each.name for each in report.sections if not each.problem}.issuperset(wanted))


def _small(side: Side | None) -> Side | None:
    """The same work with the preset of the fake device on one core."""
    if side is None:
        return None
    arguments = dict.fromkeys(side.arguments, FAKE_SIZE)
    return side.model_copy(update={"preset": FAKE_PRESET, "changes": {}, "cores": (1,), "arguments": arguments})


def _in_child(work: Callable[[Params], Any], params: Params) -> Any:
    with lock_visible_gpus(params.profile), ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, params).result()


def _digits(value: float) -> str:
    return number(spread_of([value]))


if __name__ == "__main__":
    run_command(main, "gpu")
