"""Stage 1, self-play: the champion plays against itself. Reads `state/champion`, writes `data/games`."""

from pathlib import Path

import numpy as np

from zero.artifacts import (
    RESIGNATION,
    Champion,
    GameSet,
    GenerationId,
    Manifest,
    Origin,
    checked_path,
    read_manifest,
    write_manifest,
)
from zero.params import Params, SelfplayParams, load_params, params_digest
from zero.resignation import Resignation, calibrate
from zero.shards.collect import collect_games
from zero.shards.executor import Progress
from zero.shards.records import GameColumns
from zero.shards.spec import ShardSpec, engine_fingerprint, plan_shards
from zero.storage import Store

GAMES_DIR = "data/games"
METRICS_FILE = "selfplay.json"


class SelfplayMetrics(Manifest):
    """`metrics/selfplay.json`."""

    num_games: int
    num_positions: int
    unique_games: int
    mean_length: float
    black_wins: int
    white_wins: int
    draws: int
    ended: dict[str, int]
    """Games by how they ended."""
    mean_abs_margin: float
    """Points a game was won by that was played out."""
    root_value_error: float
    """Mean squared error of the root values against the outcomes."""
    target_positions: int
    """Positions that are policy targets: all but the fast moves."""
    resignation: Resignation | None
    """None where the parameters have no resignation."""


def plan(folder: Path, store: Store) -> list[ShardSpec]:
    """The stage's shards; puts the champion's weights into the store, where the workers find them."""
    params = load_params(folder)
    generation = read_manifest(folder / "state", GenerationId, "generation.json")
    champion = read_manifest(folder / "state/champion", Champion)
    digest = store.put_weights(checked_path(champion.weights, folder / "state/champion").read_bytes())
    threshold = generation.resign_threshold
    return plan_shards(params, "selfplay", params.selfplay, generation.number, (digest,), threshold)


def run(folder: Path, store: Store, progress: Progress | None = None) -> GameSet:
    """Runs the stage in a lineage's workspace."""
    params = load_params(folder)
    specs = plan(folder, store)
    origin = _origin(params, read_manifest(folder / "state", GenerationId, "generation.json"), specs)
    collected = collect_games(folder, params, specs, store, origin, folder / GAMES_DIR, progress)
    metrics = metrics_of(collected.games, params.selfplay, specs[0].resign_threshold)
    write_manifest(folder / "metrics", metrics, METRICS_FILE)
    return collected.game_set


def metrics_of(games: GameColumns, selfplay: SelfplayParams, resign_threshold: float) -> SelfplayMetrics:
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


def _origin(params: Params, generation: GenerationId, specs: list[ShardSpec]) -> Origin:
    return Origin(
        stage="selfplay",
        lineage=generation.lineage,
        generation=generation.number,
        seed=params.seed,
        params_digest=params_digest(params, "selfplay"),
        engine=engine_fingerprint("selfplay"),
        inputs={"champion": specs[0].weights[0]},
    )
