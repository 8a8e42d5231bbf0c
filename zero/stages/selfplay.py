"""Stage `selfplay`: the champion plays against itself. Reads `state/champion`; writes `data/games` and its metrics.

With `selfplay.overlap` the player is the champion at the start of the previous generation (`state/champion/selfplay`).
The games of the next generation can then be planned and played as soon as the games of this generation are complete.
The games depend on their specification alone, not on where or when they are played.
"""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from zero.config.params import SelfplayParams
from zero.errors import LineageError, StorageError
from zero.record.metrics import SelfplayMetrics, following_threshold
from zero.stages.executor import Progress
from zero.stages.inputs import Inputs
from zero.stages.resignation import calibrate
from zero.stages.spec import ShardSpec, plan_shards
from zero.storage.files import checked_bytes, read_manifest, write_manifest
from zero.storage.layout import CHAMPION_DIR, GAMES_DIR, SELFPLAY_METRICS
from zero.storage.manifests import RESIGNATION, GameSet, Origin
from zero.storage.store import Store

if TYPE_CHECKING:
    from zero.data.records import GameColumns

STAGE: Final = "selfplay"


def run(inputs: Inputs, store: Store, progress: Progress | None = None) -> GameSet:
    """Plays the self-play games of a generation in its workspace, and measures them.

    Args:
      inputs: what the stages read of the workspace.
      store: finished shards, which are not played again, and weights.
      progress: called with the number of finished games and the number of games.

    Raises:
      StorageError: the champion is missing or corrupt, or a shard breaks the data contract each time it is played.
      WorkerError: the process that played a shard died repeatedly.
      ZeroError: this machine cannot play the shards, for example because its code digest differs.
    """
    from zero.stages.collect import collect_games  # imports the kernels, which planning does not need

    folder, generation = inputs.folder, inputs.generation
    specs = plan(inputs, store)
    # "champion" also where an earlier champion plays (`selfplay.overlap`): recorded manifests have that key.
    origin = inputs.origin(STAGE, {"champion": inputs.player.weights.sha256})
    if not specs:
        return _write_no_games(folder, origin)
    collected = collect_games(inputs, specs, store, origin, folder / GAMES_DIR, progress)
    metrics = selfplay_metrics(collected.games, inputs.params.selfplay, generation.resign_threshold)
    # After the games: `_measured_threshold` compares both, to see whether this stage is finished.
    write_manifest(folder, metrics, SELFPLAY_METRICS)
    return collected.game_set


def plan(inputs: Inputs, store: Store) -> list[ShardSpec]:
    """Specifications of the generation's shards. Uploads the player's weights to the store for the workers.

    Raises:
      StorageError: the player's manifest or weights are missing or corrupt, or the store cannot be written.
    """
    generation = inputs.generation
    weights = store.put_weights(checked_bytes(inputs.player.weights, inputs.player_dir))
    return plan_shards(inputs.params, STAGE, generation.number, (weights,), generation.resign_threshold)


def plan_next(inputs: Inputs, store: Store) -> list[ShardSpec]:
    """Specifications of the next generation's shards, equal to what `plan` returns there; needs `selfplay.overlap`.

    The player is the present champion, whatever the match of this generation decides. The resignation threshold is the
    one measured on the games of this generation.

    Raises:
      LineageError: self-play does not overlap, this generation's self-play is not finished, or `zero advance` has
        installed this generation's challenger as champion and is still setting up the next generation.
      StorageError: the champion is missing or corrupt, or the store cannot be written.
    """
    generation = inputs.generation
    if not inputs.params.selfplay.overlap:
        raise LineageError(
            "the player of the next generation's self-play is not known before this generation's match decides; to "
            "plan ahead, set selfplay.overlap to true in params.yaml and commit it"
        )
    threshold = _measured_threshold(inputs)
    # `zero advance` replaces the champion before it writes the next number.
    if inputs.champion.generation >= generation.number:
        raise LineageError(
            f"generation {generation.number} of {generation.lineage} has just been decided, and `zero advance` is "
            "setting up the next one; plan it without --next when that is done"
        )
    weights = store.put_weights(checked_bytes(inputs.champion.weights, inputs.folder / CHAMPION_DIR))
    return plan_shards(inputs.params, STAGE, generation.number + 1, (weights,), threshold)


def selfplay_metrics(games: "GameColumns", selfplay: SelfplayParams, resign_threshold: float) -> SelfplayMetrics:
    """Statistics of a generation's games, at least one, which were played with the given resignation threshold."""
    lengths = np.diff(games.move_offsets)
    sequences = {games.actions[a:b].tobytes() for a, b in zip(games.move_offsets, games.move_offsets[1:], strict=False)}
    # Black makes the even moves. Root values are for the player to move, outcomes for Black.
    mover = np.concatenate([np.where(np.arange(length) % 2 == 0, 1, -1) for length in lengths])
    results = np.repeat(games.outcome, lengths) * mover
    played_out = np.array([end != RESIGNATION for end in games.end])
    resignation = None
    if selfplay.calibration_fraction:
        resignation = calibrate(games, resign_threshold, selfplay.false_positive_target)
    return SelfplayMetrics(
        num_games=games.num_games,
        num_positions=games.num_positions,
        unique_games=len(sequences),
        mean_length=float(lengths.mean()),
        black_wins=int((games.outcome > 0).sum()),
        white_wins=int((games.outcome < 0).sum()),
        draws=int((games.outcome == 0).sum()),
        ended={name: games.end.count(name) for name in sorted(set(games.end))},
        mean_abs_margin=float(np.abs(games.margin[played_out].astype(np.float64)).mean()) if played_out.any() else 0.0,
        root_value_error=float(((games.root_values.astype(np.float64) - results) ** 2).mean()),
        target_positions=int((np.diff(games.visit_offsets) > 0).sum()),
        resignation=resignation,
    )


def _write_no_games(folder: Path, origin: Origin) -> GameSet:
    """Writes the output of a generation without self-play."""
    shutil.rmtree(folder / GAMES_DIR, ignore_errors=True)
    games = GameSet(origin=origin, shards=(), num_games=0, num_positions=0)
    nothing: dict[str, Any] = dict.fromkeys(SelfplayMetrics.model_fields, 0) | {"ended": {}, "resignation": None}
    metrics = SelfplayMetrics(**nothing)
    write_manifest(folder / GAMES_DIR, games)
    write_manifest(folder, metrics, SELFPLAY_METRICS)
    return games


def _measured_threshold(inputs: Inputs) -> float:
    """The resignation threshold that this generation's games give for the next one.

    Raises:
      LineageError: the self-play stage of this generation is not finished.
    """
    folder, generation = inputs.folder, inputs.generation
    unfinished = LineageError(
        f"the self-play of generation {generation.number} of {generation.lineage} is not finished, and its games set "
        f"the resignation threshold of the next one; run `dvc repro selfplay` in {folder} first"
    )
    try:
        games = inputs.game_set(STAGE)
        metrics = read_manifest(folder, SelfplayMetrics, SELFPLAY_METRICS)
    except StorageError:
        raise unfinished from None
    found = (games.origin.lineage, games.origin.generation, games.num_games, games.num_positions)
    if found != (generation.lineage, generation.number, metrics.num_games, metrics.num_positions):
        raise unfinished  # the games are of the previous generation, or their metrics are not written yet
    return following_threshold(metrics)
