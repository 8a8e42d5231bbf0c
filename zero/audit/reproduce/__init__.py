"""`zero reproduce`: a recorded generation is computed again, by its own code, and compared hash by hash.

In a clean clone at the tag, without the store of shards, every stage runs again; `dvc.lock` must come out the same,
byte for byte. Where it does not, the first difference is looked up in the data. A generation without stages is made
again from what it says it was made of: the seeded network from the parameters, a rollback or a branch from its source.
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
from zero.audit.reproduce.inputs import Inputs, check_inputs, profile_here
from zero.audit.reproduce.pipeline import check_stages, compute_again, out_hashes, play_shard, recorded_lock, stages_of
from zero.audit.reproduce.results import Compared, MatchComparison, Reproduction, Score, StageResult, compare_scores
from zero.audit.reproduce.without_stages import make_state_again
from zero.errors import LineageError, StorageError
from zero.lineage.rollback import entry_at
from zero.storage.files import read_manifest
from zero.storage.layout import CHALLENGER_DIR, DVC_LOCK_FILE, GAMES_DIR, GATING_METRICS, MATCH_DIR, STATE_OUTS
from zero.storage.manifests import GameSet
from zero.storage.vcs import git

SAMPLED = {"selfplay": GAMES_DIR, "gating": MATCH_DIR}
LOST = "the recorded data are neither here nor on the remote, so it cannot be said where"

Listener = Callable[[str], None]
"""Called with a line for a person whenever something is done."""


def reproduce(home: Path, tag: str, listen: Listener, keep: Path | None = None) -> Reproduction:
    """Computes a generation again and compares it with the record.

    Args:
      home: the project's folder.
      tag: the generation.
      listen: is told what is done.
      keep: folder in which everything stays; where an earlier call was cut short, this one goes on there.

    Raises:
      LineageError: there is no such tag, its record is altered, or a stage fails.
      StorageError: one of its inputs is missing or altered; nothing is computed then.
    """
    entry_at(home, tag)
    with clone_at(home, tag, STATE_OUTS, keep) as clone:
        inputs = check_inputs(clone, tag)
        listen(f"{inputs.num_files} input files are what their manifests and the signed statement of {tag} say")
        lock = recorded_lock(clone)
        if lock is None:
            stages = tuple(make_state_again(home, clone, inputs.entry, tag))
        else:
            with Recorded(home, tag) as recorded:
                stages = tuple(_stages_again(clone, lock, recorded, listen))
        lock_equal = None if lock is None else (clone / DVC_LOCK_FILE).read_text() == lock
        folder = None if keep is None else str(clone)
        return _reproduction(clone, inputs, tag, stages, lock_equal, _match(clone, stages), folder)


def sample(home: Path, tag: str, num_shards: int, listen: Listener) -> Reproduction:
    """Plays random shards of a generation again, of its self-play and of its match, and compares their SHA-256.

    Args:
      home: the project's folder.
      tag: the generation.
      num_shards: of each of the two; all where there are fewer.
      listen: is told what is done.

    Raises:
      LineageError: there is no such tag, it has no games, or a shard cannot be played.
      StorageError: one of the inputs is missing or altered.
    """
    if entry_at(home, tag).decision is None:
        raise LineageError(f"{tag} has no games of its own; `zero reproduce {tag}` makes its state again")
    with clone_at(home, tag, (*STATE_OUTS, CHALLENGER_DIR, *SAMPLED.values()), None) as clone:
        inputs = check_inputs(clone, tag)
        listen(f"{inputs.num_files} input files are what their manifests and the signed statement of {tag} say")
        stages = []
        for stage, folder in SAMPLED.items():
            stages.append(_shards_again(clone, inputs, stage, folder, num_shards))
            listen(_told(stages[-1]))
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
        profile_then=inputs.statement.found.profile,
        profile_now=profile_here(clone),
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
            listen(f"{stage}: was done before")
            yield done[stage]
            continue
        seconds = compute_again(clone, stage, outs)
        result = StageResult(stage=stage, seconds=seconds, outs=tuple(_compare(clone, stage, outs, lock, recorded)))
        note_done(clone, result)
        listen(_told(result))
        yield result


def _compare(clone: Path, stage: str, outs: tuple[str, ...], lock: str, recorded: Recorded) -> Iterator[Compared]:
    then, now = out_hashes(lock, stage), out_hashes((clone / DVC_LOCK_FILE).read_text(), stage)
    for out in dict.fromkeys((*then, *outs, *now)):
        committed = git(clone, "ls-tree", "--format=%(objectname)", "HEAD", "--", out).strip()
        same_file = not committed or git(clone, "hash-object", "--", out).strip() == committed
        first = None
        if then.get(out) != now.get(out) or not same_file:
            old = recorded.path(out)
            first = LOST if old is None else first_difference(old, clone / out)
            if first is None:
                first = "the files are equal, but the record names another hash"
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
            then = inputs.statement.dependencies[name].sha256
            outs.append(Compared(path=name, then=then, now=shard.sha256, first=first))
    return StageResult(stage=stage, seconds=time.monotonic() - started, outs=tuple(outs))


def _match(clone: Path, stages: tuple[StageResult, ...]) -> MatchComparison | None:
    """How far apart the two matches are, where a match came out otherwise."""
    differs = any(out.path == GATING_METRICS and not out.equal for stage in stages for out in stage.outs)
    if not differs:
        return None
    scores = []
    with contextlib.suppress(LineageError, StorageError, OSError, ValueError, KeyError):
        for text in (git(clone, "show", f"HEAD:{GATING_METRICS}"), (clone / GATING_METRICS).read_text()):
            match = json.loads(text)["match"]
            scores.append(Score(score=match["score"], interval=tuple(match["interval"])))
    return compare_scores(*scores) if len(scores) == 2 else None


def _told(result: StageResult) -> str:
    word = "equal" if result.equal else "DIFFERS"
    return f"{result.stage}: {word} after {result.seconds:.1f} s"
