"""What a generation cost, stage by stage. Never in a hashed out nor in a commit: two equal runs cost different hours.

A shard's cost is in the receipt beside it in the store. What else a stage spends goes to
`<workspace>/.zero/costs/gen-0012.jsonl`, a line every few seconds, so that a stage that is killed loses little of it.
When the generation is recorded both become a git note on its commit, `refs/notes/zero-costs/<lineage>`, which is pushed
with the tag; MLflow and `zero status` read the note.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import ValidationError

from zero.config.params import load_params
from zero.errors import ZeroError
from zero.network.profile import set_environment
from zero.record.costs import GenerationCosts, StageCosts
from zero.shards.meter import Meter, worker_name
from zero.shards.spec import ShardReceipt
from zero.storage.files import canonical_line, read_manifest
from zero.storage.layout import COSTS_DIR, GAMES_DIR, GENERATION_FILE, MATCH_DIR
from zero.storage.manifests import GameSet, GenerationId, Manifest
from zero.storage.store import Store

STAGES = ("selfplay", "replay", "training", "gating", "verification")
SHARD_DIRS = {"selfplay": GAMES_DIR, "gating": MATCH_DIR}
"""Stages whose shards have receipts; what their own process spends is counted without the processes that play."""
GPU_STAGES = ("training", "verification")
"""Stages that are on the GPU, where there is one, for as long as they run."""
BEAT_SECONDS = 5.0
"""Between two lines: what a stage that is killed may have spent unseen."""

log = logging.getLogger(__name__)


class StageLine(Manifest):
    """What one process of a stage has spent since it began; its last line counts."""

    stage: str
    worker: str
    begun: float
    """Seconds since 1970."""
    seconds: float
    cpu_seconds: float
    gpu_seconds: float
    joules: float | None


@contextlib.contextmanager
def stage_costs(folder: Path, stage: str) -> Iterator[None]:
    """Counts what this process spends on a stage. A stage does not fail because its costs cannot be written."""
    try:
        number = read_manifest(folder, GenerationId, GENERATION_FILE).number
        profile = load_params(folder).profile if stage in GPU_STAGES else None
    except ZeroError:  # the stage itself says what is wrong
        yield
        return
    path = _path(folder, number)
    device = profile.device if profile else "cpu"
    if profile and device == "cuda":
        set_environment(profile)  # the meter of a GPU imports torch
    meter = Meter(device, children=stage not in SHARD_DIRS, since_start=True)
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_SECONDS):
            _append(path, _line(stage, meter))

    _append(path, _line(stage, meter))
    thread = threading.Thread(target=beat, name="costs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _append(path, _line(stage, meter))


def generation_costs(workspace: Path, store: Store, generation: int) -> GenerationCosts:
    """What the generation cost whose data the workspace holds; what nobody knows is left out.

    Raises:
      StorageError: the workspace's generation or a manifest cannot be read, or the store does not answer.
    """
    lines = _last_lines(_path(workspace, generation))
    lineage = read_manifest(workspace, GenerationId, GENERATION_FILE).lineage
    stages = {}
    for stage in STAGES:
        receipts: list[ShardReceipt] = []
        without = games = shards = 0
        if stage in SHARD_DIRS:
            game_set = read_manifest(workspace / SHARD_DIRS[stage], GameSet)
            shards, games = len(game_set.shards), game_set.num_games
            for shard in game_set.shards:
                found = receipts_of(store, shard.key)
                receipts += found
                without += not found
        spent = [line for line in lines if line.stage == stage]
        if spent or shards:
            stages[stage] = _sum(spent, receipts, games, shards, without)
    return GenerationCosts(lineage=lineage, generation=generation, stages=stages)


def lines_of(folder: Path, stage: str, generation: int) -> tuple[StageLine, ...]:
    """What each process of a stage has spent in a folder."""
    return tuple(line for line in _last_lines(_path(folder, generation)) if line.stage == stage)


def add_lines(folder: Path, generation: int, lines: Iterable[StageLine]) -> None:
    """Counts what was spent elsewhere for a generation of this workspace; given twice, it counts once."""
    for line in lines:
        _append(_path(folder, generation), line)


def receipts_of(store: Store, key: str) -> list[ShardReceipt]:
    """Receipts of a shard, one for each time it was played.

    Raises:
      StorageError: the store does not answer.
    """
    receipts = []
    for data in store.get_receipts(key):
        with contextlib.suppress(ValidationError):  # of another version of this program
            receipts.append(ShardReceipt.model_validate_json(data))
    return receipts


def _sum(
    lines: Iterable[StageLine], receipts: Iterable[ShardReceipt], games: int, shards: int, without: int
) -> StageCosts:
    parts: list[StageLine | ShardReceipt] = [*lines, *receipts]
    known = [part.joules for part in parts if part.joules is not None]
    return StageCosts(
        seconds=round(_union((part.begun, part.begun + part.seconds) for part in parts), 3),
        cpu_seconds=round(sum(part.cpu_seconds for part in parts), 3),
        gpu_seconds=round(sum(part.gpu_seconds for part in parts), 3),
        joules=round(sum(known), 1) if known else None,
        games=games,
        evaluations=sum(receipt.num_evaluations for receipt in receipts),
        shards=shards,
        shards_without_receipt=without,
        workers=tuple(sorted({part.worker for part in parts})),
    )


def _union(spans: Iterable[tuple[float, float]]) -> float:
    """Length of what the spans cover together."""
    covered, last = 0.0, float("-inf")
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, last))
        last = max(last, end)
    return covered


def _line(stage: str, meter: Meter) -> StageLine:
    return StageLine(stage=stage, worker=worker_name(), begun=meter.begun, **meter.read()._asdict())


def _append(path: Path, line: StageLine) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, canonical_line(line))
        finally:
            os.close(handle)
    except OSError as error:
        log.warning("costs are not counted: cannot write %s: %s", path, error.strerror)


def _path(folder: Path, generation: int) -> Path:
    return folder / COSTS_DIR / f"gen-{generation:04d}.jsonl"


def _last_lines(path: Path) -> list[StageLine]:
    """The last line of each process, in the order in which they began; a line that was cut short is passed over."""
    last: dict[tuple[str, str, float], StageLine] = {}
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    for row in text.splitlines():
        with contextlib.suppress(ValidationError):
            line = StageLine.model_validate_json(row)
            last[line.stage, line.worker, line.begun] = line
    return sorted(last.values(), key=lambda line: line.begun)
