"""Costs of a generation, by stage. They are never in a hashed output or in a commit, because they differ between runs.

The cost of a shard is in its receipt in the store. Other costs of a stage are appended to
`<workspace>/.zero/costs/gen-0012.jsonl`, one line every few seconds, so that a killed stage loses little of them. When
the generation is recorded, both become a git note on its commit, under `refs/notes/zero-costs/<lineage>`, which is
pushed with the tag. MLflow and `zero status` read the note.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from zero.record.costs import GenerationCosts, StageCosts
from zero.stages.inputs import Inputs
from zero.stages.meter import Meter, worker_name
from zero.stages.spec import ShardReceipt, read_receipts
from zero.storage.files import canonical_line, read_manifest
from zero.storage.layout import COSTS_DIR, SHARD_DIRS
from zero.storage.manifests import GameSet, Manifest
from zero.storage.store import Store

STAGES = ("selfplay", "replay", "training", "gating", "verification")
GPU_STAGES = ("training", "verification")
"""Stages that use the GPU, if the profile has one, for as long as they run."""
SAMPLE_SECONDS = 5.0
"""Interval between two lines; a killed stage loses at most this much."""

log = logging.getLogger(__name__)


class ProcessCosts(Manifest, extra="ignore"):  # older lines have an energy, `joules`
    """Costs of one process of a stage since it began. The last line of a process is its total."""

    stage: str
    worker: str
    begun: float
    """Seconds since 1970."""
    seconds: float
    cpu_seconds: float
    gpu_seconds: float


@contextlib.contextmanager
def stage_costs(inputs: Inputs, stage: str) -> Iterator[None]:
    """Records what this process spends on a stage, with its ended child processes if the stage plays no shards.

    Costs that cannot be written are logged and do not fail the stage.
    """
    path = _path(inputs.folder, inputs.generation.number)
    device = inputs.params.profile.device if stage in GPU_STAGES else "cpu"
    # The receipts of shards cover the child processes that played them.
    meter = Meter(device, children=stage not in SHARD_DIRS, since_start=True)
    over = threading.Event()

    def sample() -> None:
        while not over.wait(SAMPLE_SECONDS):
            _append(path, _costs_so_far(stage, meter))

    _append(path, _costs_so_far(stage, meter))
    thread = threading.Thread(target=sample, name="costs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _append(path, _costs_so_far(stage, meter))


def generation_costs(workspace: Path, store: Store, lineage: str, generation: int) -> GenerationCosts:
    """Costs of the generation whose data the workspace holds; stages without known costs are omitted.

    Raises:
      StorageError: a manifest cannot be read, or the store does not respond.
    """
    lines = _last_lines(_path(workspace, generation))
    stages = {}
    for stage in STAGES:
        receipts: list[ShardReceipt] = []
        num_unknown = num_games = num_shards = 0
        if stage in SHARD_DIRS:
            game_set = read_manifest(workspace / SHARD_DIRS[stage], GameSet)
            num_shards, num_games = len(game_set.shards), game_set.num_games
            for shard in game_set.shards:
                found = read_receipts(store.get_receipts(shard.key))
                receipts += found
                num_unknown += not found
        of_stage = [line for line in lines if line.stage == stage]
        if of_stage or num_shards:
            stages[stage] = _sum(of_stage, receipts, num_games, num_shards, num_unknown)
    return GenerationCosts(lineage=lineage, generation=generation, stages=stages)


def process_costs(folder: Path, stage: str, generation: int) -> tuple[ProcessCosts, ...]:
    """Costs of each process that worked on a stage in a folder."""
    return tuple(line for line in _last_lines(_path(folder, generation)) if line.stage == stage)


def add_process_costs(folder: Path, generation: int, lines: Iterable[ProcessCosts]) -> None:
    """Adds costs of processes on other machines to a generation of this workspace; idempotent."""
    for line in lines:
        _append(_path(folder, generation), line)


def _sum(
    lines: Iterable[ProcessCosts],
    receipts: Iterable[ShardReceipt],
    num_games: int,
    num_shards: int,
    num_unknown: int,
) -> StageCosts:
    # Wall-clock times overlap if several workers play at once, so their union counts; CPU and GPU times add up,
    # also those of two processes that share a GPU.
    parts: list[ProcessCosts | ShardReceipt] = [*lines, *receipts]
    return StageCosts(
        seconds=round(_union((part.begun, part.begun + part.seconds) for part in parts), 3),
        cpu_seconds=round(sum(part.cpu_seconds for part in parts), 3),
        gpu_seconds=round(sum(part.gpu_seconds for part in parts), 3),
        games=num_games,
        evaluations=sum(receipt.num_evaluations for receipt in receipts),
        shards=num_shards,
        shards_without_receipt=num_unknown,
        workers=tuple(sorted({part.worker for part in parts})),
    )


def _union(spans: Iterable[tuple[float, float]]) -> float:
    """Total length of the union of time spans."""
    covered, last = 0.0, float("-inf")
    # In the order of their beginnings, so that one pass finds what each span adds.
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, last))
        last = max(last, end)
    return covered


def _costs_so_far(stage: str, meter: Meter) -> ProcessCosts:
    return ProcessCosts(stage=stage, worker=worker_name(), begun=meter.begun, **meter.read()._asdict())


def _append(path: Path, line: ProcessCosts) -> None:
    """Appends a line with one write, so that the lines of several processes do not mix."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not a Python file: its buffer may split a line into several writes.
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, canonical_line(line))
        finally:
            os.close(handle)
    except OSError as error:
        log.warning("costs are not recorded: cannot write %s: %s", path, error.strerror)


def _path(folder: Path, generation: int) -> Path:
    return folder / COSTS_DIR / f"gen-{generation:04d}.jsonl"


def _last_lines(path: Path) -> list[ProcessCosts]:
    """The last line of each process, in the order in which the processes began. Incomplete lines are skipped."""
    last: dict[tuple[str, str, float], ProcessCosts] = {}
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    for row in text.splitlines():
        with contextlib.suppress(ValidationError):
            line = ProcessCosts.model_validate_json(row)
            last[line.stage, line.worker, line.begun] = line
    return sorted(last.values(), key=lambda line: line.begun)
