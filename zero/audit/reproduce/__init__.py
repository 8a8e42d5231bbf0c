"""`zero reproduce`: recomputes a recorded generation with its own code, and compares every digest.

Every stage runs in a clean clone at the tag, without the store of shards. `dvc.lock` must come out the same, byte for
byte; otherwise the first difference in the data is reported. A generation without stages is made again from its inputs:
the seeded network from the parameters, a rollback or a branch from its source.
"""

import contextlib
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from zero.audit.reproduce.clones import Recorded, clone_at, note_done, read_notes
from zero.audit.reproduce.differences import file_difference, first_difference
from zero.audit.reproduce.inputs import Inputs, check_inputs, local_profile
from zero.audit.reproduce.pipeline import (
    check_stages,
    compute_again,
    out_hashes,
    play_shard,
    recorded_lock,
    stages_of,
)
from zero.audit.reproduce.results import Compared, MatchComparison, Reproduction, Score, StageResult, compare_scores
from zero.audit.reproduce.without_stages import recompute_state
from zero.errors import LineageError, StorageError
from zero.lineage.rollback import entry_at
from zero.storage.files import read_manifest
from zero.storage.layout import CHALLENGER_DIR, DVC_LOCK, GAMES_DIR, GATING_METRICS, MATCH_DIR, STATE_DIRS
from zero.storage.manifests import GameSet
from zero.storage.vcs import git

SAMPLED = {"selfplay": GAMES_DIR, "gating": MATCH_DIR}
LOST = "the recorded data is neither on this machine nor on the remote, so the place is unknown"

Listener = Callable[[str], None]
"""Called with a line of progress for the terminal."""


def reproduce(home: Path, tag: str, listen: Listener, keep: Path | None = None) -> Reproduction:
    """Recomputes a generation and compares it with the record.

    Args:
      home: the project's folder.
      tag: the generation.
      listen: receives lines of progress.
      keep: folder in which everything stays. If an earlier call there was interrupted, this one continues it.

    Raises:
      LineageError: the tag is unknown, its record is corrupt, or a stage fails.
      StorageError: an input is missing or corrupt; nothing is computed then.
    """
    entry_at(home, tag)
    with clone_at(home, tag, STATE_DIRS, keep) as clone:
        inputs = check_inputs(clone, tag)
        listen(f"{inputs.num_files} input files have the digests in their manifests and in the attestation of {tag}")
        lock = recorded_lock(clone)
        if lock is None:
            stages = tuple(recompute_state(home, clone, inputs.entry, tag))
        else:
            with Recorded(home, tag) as recorded:
                stages = tuple(_stages_again(clone, lock, recorded, listen))
        lock_equal = None if lock is None else (clone / DVC_LOCK).read_text() == lock
        folder = None if keep is None else str(clone)
        return _reproduction(clone, inputs, tag, stages, lock_equal, _match(clone, stages), folder)


def sample(home: Path, tag: str, num_shards: int, listen: Listener) -> Reproduction:
    """Plays random shards of a generation's self-play and match again, and compares their SHA-256.

    Args:
      home: the project's folder.
      tag: the generation.
      num_shards: number of shards of each of the two; all if there are fewer.
      listen: receives lines of progress.

    Raises:
      LineageError: the tag is unknown, has no games, or a shard cannot be played.
      StorageError: an input is missing or corrupt.
    """
    if entry_at(home, tag).decision is None:
        raise LineageError(f"{tag} has no games; recompute its state with `zero reproduce {tag}`")
    with clone_at(home, tag, (*STATE_DIRS, CHALLENGER_DIR, *SAMPLED.values()), None) as clone:
        inputs = check_inputs(clone, tag)
        listen(f"{inputs.num_files} input files have the digests in their manifests and in the attestation of {tag}")
        stages = []
        for stage, folder in SAMPLED.items():
            stages.append(_shards_again(clone, inputs, stage, folder, num_shards))
            listen(_progress_line(stages[-1]))
        return _reproduction(clone, inputs, tag, tuple(stages))


def _reproduction(
    clone: Path,
    inputs: Inputs,
    tag: str,
    stages: tuple[StageResult, ...],
    lock_equal: bool | None = None,
    match: MatchComparison | None = None,
    folder: str | None = None,
) -> Reproduction:
    return Reproduction(
        tag=tag,
        commit=read_notes(clone).commit,
        kind=inputs.entry.kind,
        num_inputs=inputs.num_files,
        profile_then=inputs.attestation.internal.profile,
        profile_now=local_profile(clone),
        stages=stages,
        lock_equal=lock_equal,
        match=match,
        folder=folder,
    )


def _stages_again(clone: Path, lock: str, recorded: Recorded, listen: Listener) -> Iterator[StageResult]:
    done = {result.stage: result for result in read_notes(clone).done}
    stages = stages_of(clone)
    check_stages(stages, lock)
    for stage, outs in stages.items():
        if stage in done:
            listen(f"{stage}: done by an earlier call")
            yield done[stage]
            continue
        seconds = compute_again(clone, stage, outs)
        result = StageResult(stage=stage, seconds=seconds, outs=tuple(_compare(clone, stage, outs, lock, recorded)))
        note_done(clone, result)
        listen(_progress_line(result))
        yield result


def _compare(clone: Path, stage: str, outs: tuple[str, ...], lock: str, recorded: Recorded) -> Iterator[Compared]:
    then, now = out_hashes(lock, stage), out_hashes((clone / DVC_LOCK).read_text(), stage)
    for out in dict.fromkeys((*then, *outs, *now)):
        committed = git(clone, "ls-tree", "--format=%(objectname)", "HEAD", "--", out).strip()
        same_file = not committed or git(clone, "hash-object", "--", out).strip() == committed
        first = None
        if then.get(out) != now.get(out) or not same_file:
            old = recorded.path(out)
            first = LOST if old is None else first_difference(old, clone / out)
            if first is None:
                first = "the files are equal, but the record names another digest"
        yield Compared(path=out, then=then.get(out, ""), now=now.get(out, ""), first=first)


def _shards_again(clone: Path, inputs: Inputs, stage: str, folder: str, num_shards: int) -> StageResult:
    started = time.monotonic()
    shards = read_manifest(clone / folder, GameSet).shards
    chosen = sorted(random.SystemRandom().sample(range(len(shards)), min(num_shards, len(shards))))
    outs = []
    with tempfile.TemporaryDirectory(prefix="zero-store-") as store:
        for index in chosen:
            ref = shards[index].file
            name = f"{folder}/{ref.path}"
            shard = play_shard(clone, stage, index, Path(store))
            first = file_difference((clone / name).read_bytes(), shard.data, Path(name).suffix)
            then = inputs.attestation.dependencies[name].sha256
            outs.append(Compared(path=name, then=then, now=shard.sha256, first=first))
    return StageResult(stage=stage, seconds=time.monotonic() - started, outs=tuple(outs))


def _match(clone: Path, stages: tuple[StageResult, ...]) -> MatchComparison | None:
    """The difference of the two matches' scores, if the match came out differently."""
    differs = any(out.path == GATING_METRICS and not out.equal for stage in stages for out in stage.outs)
    if not differs:
        return None
    scores = []
    with contextlib.suppress(LineageError, StorageError, OSError, ValueError, KeyError):
        for text in (git(clone, "show", f"HEAD:{GATING_METRICS}"), (clone / GATING_METRICS).read_text()):
            match = json.loads(text)["match"]
            scores.append(Score(score=match["score"], interval=tuple(match["interval"])))
    return compare_scores(*scores) if len(scores) == 2 else None


def _progress_line(result: StageResult) -> str:
    verdict = "equal" if result.equal else "DIFFERS"
    return f"{result.stage}: {verdict} after {result.seconds:.1f} s"
