"""Stage 1, self-play: the champion plays against itself. Reads `state/champion`, writes `data/games`.

With `selfplay.overlap` it is the champion that stood when the generation before began, `state/champion/selfplay`. So
the next generation's games can be planned as soon as this one's have been played, and who plays them, and when, has no
part in what they are.
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from zero.config.params import Params, SelfplayParams, load_params, params_digest
from zero.errors import LineageError, StorageError
from zero.record.metrics import SelfplayMetrics, following_threshold
from zero.shards.executor import Progress
from zero.shards.spec import ShardSpec, code_digest, plan_shards
from zero.stages.resignation import calibrate
from zero.storage.files import checked_path, read_manifest, write_manifest
from zero.storage.layout import CHAMPION_DIR, GAMES_DIR, GENERATION_FILE, PLAYER_DIR, SELFPLAY_METRICS
from zero.storage.manifests import RESIGNATION, Champion, GameSet, GenerationId, Origin
from zero.storage.store import Store

if TYPE_CHECKING:
    from zero.data.records import GameColumns


class Player(NamedTuple):
    """Who plays, with the folder of its manifest and weights."""

    champion: Champion
    folder: Path


def player_of(folder: Path, params: Params, generation: GenerationId) -> Player:
    """Who plays the generation's games: the champion, or with `selfplay.overlap` the one that the state names.

    Raises:
      StorageError: it is not there, or is another one than the state names.
    """
    if not params.selfplay.overlap or generation.player is None:
        return Player(read_manifest(folder / CHAMPION_DIR, Champion), folder / CHAMPION_DIR)
    champion = read_manifest(folder / PLAYER_DIR, Champion)
    if champion.weights.sha256 != generation.player:
        raise StorageError(
            f"{folder / PLAYER_DIR} is {champion.weights.sha256[:12]}, state/generation.json says "
            f"{generation.player[:12]}; restore it with `git checkout HEAD -- state dvc.lock && dvc checkout --force`"
        )
    return Player(champion, folder / PLAYER_DIR)


def plan(folder: Path, store: Store) -> list[ShardSpec]:
    """The stage's shards; puts the player's weights into the store, where the workers find them."""
    params = load_params(folder)
    generation = read_manifest(folder, GenerationId, GENERATION_FILE)
    player = player_of(folder, params, generation)
    return _plan(params, generation.number, player, generation.resign_threshold, store)


def plan_next(folder: Path, store: Store) -> list[ShardSpec]:
    """The shards that the next generation will plan, as soon as the games of this one are there.

    They are by the champion that this generation began with, whatever its match says, with the threshold of resignation
    that its games gave.

    Raises:
      LineageError: self-play does not overlap, or it is too early, or too late.
    """
    params = load_params(folder)
    if not params.selfplay.overlap:
        raise LineageError(
            "the next generation's self-play is by the champion that this one's match decides; set selfplay.overlap to "
            "true in params.yaml and commit it, to play by the one that stood when this generation began"
        )
    generation = read_manifest(folder, GenerationId, GENERATION_FILE)
    threshold = _threshold_after(folder, generation)
    champion = read_manifest(folder / CHAMPION_DIR, Champion)
    if champion.generation >= generation.number:
        raise LineageError(
            f"generation {generation.number} of {generation.lineage} has just been decided, and the next one is being "
            "set up; plan it without --next when `zero advance` is done"
        )
    return _plan(params, generation.number + 1, Player(champion, folder / CHAMPION_DIR), threshold, store)


def run(folder: Path, store: Store, progress: Progress | None = None) -> GameSet:
    """Runs the stage in a lineage's workspace."""
    from zero.shards.collect import collect_games  # with the kernels; who plans shards or reads metrics needs none

    params = load_params(folder)
    specs = plan(folder, store)
    origin = _origin(params, read_manifest(folder, GenerationId, GENERATION_FILE), specs)
    collected = collect_games(folder, params, specs, store, origin, folder / GAMES_DIR, progress)
    metrics = metrics_of(collected.games, params.selfplay, specs[0].resign_threshold)
    write_manifest(folder, metrics, SELFPLAY_METRICS)
    return collected.game_set


def metrics_of(games: "GameColumns", selfplay: SelfplayParams, resign_threshold: float) -> SelfplayMetrics:
    """What a person wants to know of a set of games that were played with a threshold of resignation."""
    lengths = np.diff(games.move_offsets)
    sequences = {games.actions[a:b].tobytes() for a, b in zip(games.move_offsets, games.move_offsets[1:], strict=False)}
    mover = np.concatenate([np.where(np.arange(length) % 2 == 0, 1, -1) for length in lengths])
    targets = np.repeat(games.outcome, lengths) * mover
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
        root_value_error=float(((games.root_values.astype(np.float64) - targets) ** 2).mean()),
        target_positions=int((np.diff(games.visit_offsets) > 0).sum()),
        resignation=resignation,
    )


def _plan(params: Params, number: int, player: Player, threshold: float, store: Store) -> list[ShardSpec]:
    digest = store.put_weights(checked_path(player.champion.weights, player.folder).read_bytes())
    return plan_shards(params, "selfplay", params.selfplay, number, (digest,), threshold)


def _threshold_after(folder: Path, generation: GenerationId) -> float:
    """The threshold that the games of this generation's self-play stage give.

    Raises:
      LineageError: the stage is not done.
    """
    early = LineageError(
        f"the self-play of generation {generation.number} of {generation.lineage} is not done, and its games set the "
        f"next one's threshold of resignation; run `dvc repro selfplay` in {folder} first"
    )
    try:
        games = read_manifest(folder / GAMES_DIR, GameSet)
        metrics = read_manifest(folder, SelfplayMetrics, SELFPLAY_METRICS)
    except StorageError:
        raise early from None
    made = (games.origin.lineage, games.origin.generation, games.num_games, games.num_positions)
    if made != (generation.lineage, generation.number, metrics.num_games, metrics.num_positions):
        raise early  # they are of the generation before, or its metrics are not written yet
    return following_threshold(metrics)


def _origin(params: Params, generation: GenerationId, specs: list[ShardSpec]) -> Origin:
    return Origin(
        stage="selfplay",
        lineage=generation.lineage,
        generation=generation.number,
        seed=params.seed,
        params_digest=params_digest(params, "selfplay"),
        engine=code_digest("selfplay"),
        inputs={"champion": specs[0].weights[0]},
    )
